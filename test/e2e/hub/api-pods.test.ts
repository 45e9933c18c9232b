/**
 * Pods of the API server on a real node, the hub away: what it said last is in the store, where this test puts it while
 * no agent runs. Real containerd, real components.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ApiSource } from "@picolet/agent/sources/api-source.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type AgentNode, restartsOf } from "../../support/agent/agent-process.ts";
import {
  allReady,
  componentPod,
  containerIdOf,
  containerPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  identitiesOf,
  nodeWith,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { LOADED_PARSER } from "../../support/unit/pods/pod-parser.ts";
import { RecordedLog } from "../../support/unit/ports/recorders.ts";
import { type PodObject, RemoteHub } from "../../support/unit/tunnel/remote-hub.ts";

const skip = containerdMissing() ?? false;

let containerd: Containerd;

before(async () => {
  if (skip === false) containerd = await Containerd.start();
});

after(async () => {
  if (skip === false) await containerd[Symbol.asyncDispose]();
});

/** As the API server has it: under a UID, with a volume of a name drawn at random. */
function apiPod(manifest: unknown, uid: string, suffix: string): PodObject {
  const { metadata, spec, ...rest } = manifest as { metadata: { name: string }; spec: Pod["spec"] };
  const name = `kube-api-access-${suffix}`;
  const containers = spec.containers.map((each) => ({ ...each, volumeMounts: [{ name, mountPath: "/access" }] }));
  return {
    ...rest,
    metadata: { ...metadata, namespace: "default", uid },
    spec: { ...spec, volumes: [{ name, emptyDir: {} }], containers },
  };
}

/**
 * Changes the store while no agent uses it.
 * @returns the reports it has to send
 */
async function offline(node: AgentNode, hub: RemoteHub): Promise<string[]> {
  const log = new RecordedLog();
  await using store = new Store({ clock: systemClock, log }, { path: join(node.directory, "root", "picolet.db") });
  const { desired, statuses, objects, events } = store;
  const source = new ApiSource(
    { clock: systemClock, log, parser: LOADED_PARSER, objects, store: desired, statuses, events },
    { nodeName: "node" },
  );
  const told = statuses.pending(99).map(({ value: { name, uid, status, gone } }) => {
    return `${name} ${uid} ${String(status.phase)}${gone ? " gone" : ""}`;
  });
  hub.bringTo(source);
  return told.toSorted();
}

const uidsOf = (pods: ReadonlyMap<string, Pod>): unknown[] =>
  [...pods].map(([name, pod]) => [name, pod.metadata.uid]).toSorted();

test("a container pod and a component pod run from the store, are taken over under other UIDs, and are deleted", {
  skip,
}, async () => {
  await using node = nodeWith(containerd);
  const hub = new RemoteHub();
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  await node.stop();
  hub.put(apiPod(containerPod("container"), "uid-c1", "aaaaa"));
  hub.put(apiPod(componentPod("component"), "uid-w1", "bbbbb"));
  await offline(node, hub);

  await node.start();
  const first = await node.waitForPods("two ready pods, though the hub has not spoken", allReady(2));
  assert.deepEqual(uidsOf(first), [
    ["component", "uid-w1"],
    ["container", "uid-c1"],
  ]);
  await node.kill();

  hub.restart();
  hub.put(apiPod(containerPod("container"), "uid-c2", "ccccc"));
  hub.put(apiPod(componentPod("component"), "uid-w2", "ddddd"));
  await offline(node, hub);
  await node.start();
  const second = await node.waitForPods("the same containers under other UIDs", allReady(2));
  assert.deepEqual(identitiesOf(second), identitiesOf(first));
  assert.deepEqual(uidsOf(second), [
    ["component", "uid-w2"],
    ["container", "uid-c2"],
  ]);
  process.kill(containerd.pidOf(containerIdOf(second.get("container"))), "SIGKILL");
  const restarted = await node.waitForPods(
    "a restart in the sandbox of the pod before",
    (pods) => restartsOf(pods.get("container")) === 1 && allReady(2)(pods),
  );
  assert.equal(restarted.get("container")?.status?.podIP, second.get("container")?.status?.podIP);
  await node.stop();

  for (const name of ["container", "component"]) hub.deletePod(name, 1);
  const told = await offline(node, hub);
  assert.deepEqual(told, ["component uid-w2 Running", "container uid-c2 Running"]);
  await node.start();
  await node.waitForPods("no pod", (pods) => pods.size === 0);
  await node.stop();
  const ends = await offline(node, hub);
  assert.match(ends.join(), /^component uid-w2 (Failed|Succeeded) gone,container uid-c2 (Failed|Succeeded) gone$/);
  await node.start();
  await node.drain();
});

test("edgectl apply runs pods, over a kill of the agent too, changes them, and removes them", { skip }, async () => {
  await using node = nodeWith(containerd);
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  const file = join(node.directory, "pods.json");
  const apply = (...items: readonly unknown[]): string => {
    writeFileSync(file, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    return edgectl(node, "apply", "-f", file);
  };
  const one = { apiVersion: "v1", kind: "Pod" };
  const container = { ...one, ...(containerPod("container") as object) };
  assert.equal(apply(container, componentPod("component")), "pod/container-node created\npod/component-node created\n");
  const first = await node.waitForPods("two ready pods", allReady(2));
  assert.equal(first.get("container-node")?.metadata.annotations?.["kubernetes.io/config.source"], "push");
  await node.kill();
  await node.start();
  const again = await node.waitForPods("the same pods", allReady(2));
  assert.deepEqual(identitiesOf(again), identitiesOf(first));
  assert.equal(apply(container), `pod/container-node unchanged\npod "component-node" deleted (no longer in ${file})\n`);
  const left = await node.waitForPods("one pod", allReady(1));
  assert.equal(containerIdOf(left.get("container-node")), containerIdOf(first.get("container-node")));
  assert.throws(() => apply(container, { ...one, metadata: { name: "bad" }, spec: { containers: [] } }), /containers/);
  assert.equal(apply(), `pod "container-node" deleted (no longer in ${file})\n`);
  await node.waitForPods("no pod", (pods) => pods.size === 0);
  await node.drain();
});
