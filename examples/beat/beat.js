// Says every few seconds that it is there, and where that is.
import { getEnvironment } from "wasi:cli/environment@0.2.12";
import { getStdout } from "wasi:cli/stdout@0.2.12";
import { subscribeDuration } from "wasi:clocks/monotonic-clock@0.2.12";

const NANOSECONDS = 1_000_000_000;

function say(text) {
  const bytes = Uint8Array.from(`${text}\n`, (character) => character.charCodeAt(0));
  getStdout().blockingWriteAndFlush(bytes);
}

export const run = {
  run() {
    const environment = new Map(getEnvironment());
    const seconds = Number(environment.get("SECONDS") ?? "5");
    for (let beat = 1; ; beat += 1) {
      say(`beat ${beat} of ${environment.get("NODE_NAME") ?? "nowhere"}`);
      subscribeDuration(seconds * NANOSECONDS).block();
    }
  },
};
