import assert from "node:assert/strict";
import { resolve } from "node:path";
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
  const flags = ["--image-credential-provider-config=/c", "--image-credential-provider-bin-dir", "bin"];
  const { settings, notices } = parseArguments(flags, {}).kubelet ?? {};
  assert.deepEqual(
    settings?.map(({ path, value }) => [path.join("."), value]),
    [
      ["imageCredentialProviderConfig", "/c"],
      ["imageCredentialProviderBinDir", resolve("bin")],
    ],
  );
  assert.deepEqual(notices, [], "the kubelet calls neither deprecated");
});

test("flags of the kubelet are taken in all of its forms, and the last of a flag counts", () => {
  const line = ["-v", "4", "--register-node", "--fail-swap-on=false", "--max-pods", "5", "--max-pods=6"];
  const { settings, notices } = parseArguments(line, {}).kubelet ?? {};
  assert.deepEqual(
    settings?.map(({ path, value }) => [path.join("."), value]),
    [
      ["registerNode", true],
      ["maxPods", 6],
      ["logging.verbosity", 4],
      ["failSwapOn", false],
    ],
  );
  assert.deepEqual(
    notices?.[0],
    "Flag --register-node has been deprecated: this parameter should be set via the file of --config, as registerNode",
  );
});

test("a switch takes no word after it as its value", () => {
  assert.throws(() => parseArguments(["--register-node", "false"], {}), /picolet takes no "false"/);
});

for (const [args, message] of [
  [["--config"], /--config needs a value/],
  [["--nope"], /unknown flag --nope/],
  [["--confg=/c"], /unknown flag --confg; did you mean "--config"\?/],
  [["--config="], /--config needs a value/],
  [["--pod-manifest-pth=/x"], /unknown flag --pod-manifest-pth; did you mean "--pod-manifest-path"\?$/],
  [["--kubeconfig=/etc/kubernetes/kubelet.conf"], /^picolet does not take the kubelet's --kubeconfig: .*edgectl join/],
  [["--exit-on-lock-contention"], /^picolet does not take the kubelet's --exit-on-lock-contention: /],
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
