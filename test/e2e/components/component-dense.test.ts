/**
 * Component pods of the mode `dense`: the real agent, the real process that they share, and what both come back from.
 */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady, type PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { testComponent } from "../../support/wasm/components.ts";

const IMAGE = "picolet.example/script:1";
const NAMES = ["one", "two", "three"];

let node: AgentNode;

before(async () => {
  node = nodeWith(undefined, {});
  await node.start();
  edgectl(node, "image", "import", await testComponent("script.c"), "--name", IMAGE);
});

after(async () => await node?.[Symbol.asyncDispose]());

function run(name: string, ...args: readonly string[]): void {
  node.writeManifest(`${name}.json`, {
    ...{ apiVersion: "v1", kind: "Pod" },
    metadata: { name, annotations: { "wasm.picolet.io/mode": "dense" } },
    spec: {
      runtimeClassName: "wasm",
      containers: [{ name: "main", image: IMAGE, imagePullPolicy: "IfNotPresent", args }],
    },
  });
}

const named = (pods: PodsByName, name: string): Pod | undefined => pods.get(`${name}-node`);
const restarts = (pod: Pod | undefined): number => pod?.status?.containerStatuses?.[0]?.restartCount ?? 0;
const hosts = (): string[] => readdirSync(join(node.directory, "run", "wasm", "dense"));

test("pods share a process; they outlive the agent, and all come back when the process is killed", async () => {
  for (const name of NAMES) run(name, "say", "hello", "hold");
  await node.waitForPods("all of them", (pods) => NAMES.every((name) => isReady(named(pods, name))));
  const [host, ...others] = hosts();
  assert.ok(host);
  assert.deepEqual(others, []);
  const pids = node.runnerPids();
  assert.equal(pids.length, 1, "one process");
  await node.waitForEvent(
    "what is said of it",
    ({ reason, message }) => reason === "LessIsolated" && /share/.test(message),
  );

  await node.kill();
  await node.start();
  const kept = await node.waitForPods("all of them again", (pods) => NAMES.every((name) => isReady(named(pods, name))));
  assert.deepEqual(
    NAMES.map((name) => restarts(named(kept, name))),
    [0, 0, 0],
  );
  assert.deepEqual(node.runnerPids(), pids);

  process.kill(pids[0] ?? 0, "SIGKILL");
  const back = await node.waitForPods("all of them in another process", (pods) =>
    NAMES.every((name) => isReady(named(pods, name)) && restarts(named(pods, name)) === 1),
  );
  const last = named(back, "one")?.status?.containerStatuses?.[0]?.lastState?.terminated;
  assert.deepEqual([last?.exitCode, last?.reason], [137, "Error"]);
  assert.equal(node.runnerPids().length, 1);
  assert.notDeepEqual(node.runnerPids(), pids);
  await node.drain();
});
