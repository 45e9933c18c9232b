import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { parseArguments } from "./agent-arguments.ts";

test("without arguments everything is where the documentation says", () => {
  assert.deepEqual(parseArguments([], {}), {
    command: "run",
    configPath: undefined,
    rootDir: "/var/lib/picolet",
    socketPath: "/run/picolet/picolet.sock",
  });
});

test("both forms of a flag with a value are taken, and a flag beats the environment", () => {
  const parsed = parseArguments(["--config=/c", "--root-dir", "/r", "--socket", "/s"], { PICOLET_SOCKET: "/e" });
  assert.deepEqual(parsed, { command: "run", configPath: "/c", rootDir: "/r", socketPath: "/s" });
  assert.equal(parseArguments([], { PICOLET_SOCKET: "/e" }).socketPath, "/e");
});

test("credential provider plugins are named as for the kubelet", () => {
  const flags = ["--image-credential-provider-config=/c", "--image-credential-provider-bin-dir", "/bin"];
  const { imageCredentialProviderConfig, imageCredentialProviderBinDir } = parseArguments(flags, {});
  assert.deepEqual([imageCredentialProviderConfig, imageCredentialProviderBinDir], ["/c", "/bin"]);
});

for (const [args, message] of [
  [["--config"], /--config needs a value/],
  [["--nope"], /unknown flag --nope/],
  [["--confg=/c"], /unknown flag --confg; did you mean "--config"\?/],
  [["--config="], /--config needs a value/],
  [["run"], /picolet takes no "run"/],
  [["--rootdir=/x"], /unknown flag --rootdir; did you mean "--root-dir"\?$/],
] as const) {
  test(`wrong usage is named: ${args.join(" ")}`, () => {
    assert.throws(
      () => parseArguments(args, {}),
      (error) => isPicoletError(error, "invalid") && message.test(error.message),
    );
  });
}
