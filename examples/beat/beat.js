// Says every few seconds that it is there, and where that is.
import { getEnvironment } from "wasi:cli/environment@0.2.12";
import { getStdout } from "wasi:cli/stdout@0.2.12";
import { subscribeDuration } from "wasi:clocks/monotonic-clock@0.2.12";

const NANOSECONDS = 1_000_000_000;

function say(output, text) {
  const bytes = Uint8Array.from(`${text}\n`, (character) => character.charCodeAt(0));
  output.blockingWriteAndFlush(bytes);
}

/** What the host gives is given back: the engine does so only when it collects its garbage, and a component may hold 1024. */
function sleep(nanoseconds) {
  const pollable = subscribeDuration(nanoseconds);
  pollable.block();
  pollable[Symbol.dispose]();
}

export const run = {
  run() {
    const environment = new Map(getEnvironment());
    const output = getStdout();
    const seconds = Number(environment.get("SECONDS") ?? "5");
    for (let beat = 1; ; beat += 1) {
      say(output, `beat ${beat} of ${environment.get("NODE_NAME") ?? "nowhere"}`);
      sleep(seconds * NANOSECONDS);
    }
  },
};
