/**
 * The output of edgectl for people, word for word: test/golden/cli. After an intended change run this file with
 * UPDATE_GOLDEN=1 and read the difference.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import type { SecretsAtRestReport } from "@picolet/protocol/local-api/status.ts";
import { fillDegraded, fillHealthy } from "../support/unit/agent/cli-scenario.ts";
import { CapturedTerminal, EdgectlBench, type Outcome } from "../support/unit/agent/edgectl-bench.ts";

const FOLDER = new URL("../golden/cli/", import.meta.url);
const WIDTH = 80;

interface Golden {
  readonly node: "empty" | "healthy" | "degraded" | "pressed";
  readonly words: string;
  /** The table has all its columns. */
  readonly wide?: true;
}

const SECRETS: SecretsAtRestReport = {
  provider: "tpm2",
  protectsAgainst: "a stolen disk and copies of it; not against root on this board",
  keyGeneration: 3,
  keyCreatedAt: "2026-11-08T00:00:00.000Z",
  rotatesAt: "2027-02-06T00:00:00.000Z",
  unreadable: 0,
  problem: "",
};

const LOST_SECRETS: SecretsAtRestReport = {
  ...{ ...SECRETS, keyGeneration: 1, keyCreatedAt: "2026-11-20T08:00:00.000Z", unreadable: 4 },
  problem: "the TPM was cleared, or is another one",
};

const GOLDENS: Readonly<Record<string, Golden>> = {
  "status-empty": { node: "empty", words: "status" },
  "status-healthy": { node: "healthy", words: "status" },
  "status-degraded": { node: "degraded", words: "status" },
  "status-pressed": { node: "pressed", words: "status" },
  "status-wide": { node: "degraded", words: "status -o wide", wide: true },
  "status-json": { node: "healthy", words: "status -o json" },
  "get-pods": { node: "degraded", words: "get pods" },
  "get-pods-all": { node: "degraded", words: "get pods -A" },
  "get-pods-no-headers": { node: "degraded", words: "get pods -n plant --no-headers" },
  "get-pods-wide": { node: "degraded", words: "get pods -o wide", wide: true },
  "get-pods-name": { node: "degraded", words: "get pods -A -o name" },
  "get-pods-none": { node: "degraded", words: "get pods -n elsewhere" },
  "get-pod-yaml": { node: "healthy", words: "get pod web -o yaml" },
  "get-pod-json": { node: "healthy", words: "get pod web -o json" },
  "describe-running": { node: "healthy", words: "describe pod web" },
  "describe-crashing": { node: "degraded", words: "describe pod logger" },
  "describe-init": { node: "degraded", words: "describe plant/pump-controller-of-the-north-western-water-tower" },
  "describe-terminating": { node: "degraded", words: "describe plant/old" },
  events: { node: "healthy", words: "events" },
  "events-pod": { node: "healthy", words: "events --pod web" },
  "events-wide": { node: "healthy", words: "events -o wide", wide: true },
  "image-list": { node: "healthy", words: "image list" },
  "image-import": { node: "healthy", words: "image import hello.wasm --name example/hello:2" },
  config: { node: "healthy", words: "config" },
  "config-no-defaults": { node: "healthy", words: "config --no-defaults" },
  version: { node: "healthy", words: "version" },
  help: { node: "empty", words: "help" },
};

const PRESSURES = [
  {
    type: "MemoryPressure",
    status: "True",
    reason: "KubeletHasInsufficientMemory",
    message: "kubelet has insufficient memory available",
    lastTransitionTime: "2026-11-20T11:59:00Z",
  },
  {
    type: "DiskPressure",
    status: "False",
    reason: "KubeletHasNoDiskPressure",
    message: "kubelet has no disk pressure",
    lastTransitionTime: "2026-11-17T08:00:01Z",
  },
] as const;

const render = ({ code, out, error }: Outcome): string =>
  `exit code ${code}\n--- standard output\n${out}--- standard error\n${error}`;

for (const [name, { node, words, wide }] of Object.entries(GOLDENS)) {
  test(`${name}: edgectl ${words}`, async (t) => {
    const bench = await EdgectlBench.start(t);
    if (node === "healthy" || node === "pressed") fillHealthy(bench.view, bench.directory);
    if (node === "pressed") bench.view.conditions = PRESSURES;
    if (node === "pressed") bench.view.secrets = LOST_SECRETS;
    if (node === "healthy") bench.view.secrets = SECRETS;
    if (node === "degraded") fillDegraded(bench.view, bench.directory);
    const shown = render(await bench.run(words.split(" "), new CapturedTerminal({ columns: WIDTH })));
    const file = new URL(`${name}.txt`, FOLDER);
    if (process.env.UPDATE_GOLDEN === "1") writeFileSync(file, shown);
    assert.equal(shown, readFileSync(file, "utf8"));
    const forPeople = !/ -o (json|yaml)/.test(words);
    for (const line of shown.split("\n")) {
      if (forPeople) assert.match(line, /^[\x20-\x7e]*$/, "ASCII only");
      if (forPeople && wide === undefined) assert.ok(line.length <= WIDTH, `${line.length} columns: ${line}`);
    }
  });
}

test("no golden is left over", () => {
  const known = Object.keys(GOLDENS).map((name) => `${name}.txt`);
  assert.deepEqual(readdirSync(FOLDER).sort(), known.sort());
});

test("a narrow terminal is filled no wider than it is", async (t) => {
  const bench = await EdgectlBench.start(t);
  fillDegraded(bench.view, bench.directory);
  const { out } = await bench.run(["describe", "logger"], new CapturedTerminal({ columns: 40 }));
  for (const line of out.split("\n")) assert.ok(line.length <= 40, line);
});
