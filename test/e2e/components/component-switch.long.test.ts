/**
 * Pods that go on as components when memory runs short, on real containers, cgroups and components, from kubectl's end.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { edgectl, SLEEP_SCRIPT } from "../../support/agent/node-fixtures.ts";
import { containerdMissing } from "../../support/containerd/containerd.ts";
import { importSays, pushDual } from "../../support/containerd/dual-image.ts";
import { Registry, registryMissing } from "../../support/containerd/real-registry.ts";
import { kubectlMissing } from "../../support/hub/test-fleet.ts";
import { PressedNode } from "../../support/pressure/pressed-node.ts";

const skip = containerdMissing() ?? registryMissing() ?? (kubectlMissing("1.32") || false);
/** The limit of all pods together; a third of it must stay free, and a component that holds HOARD_MIB crosses that. */
const PODS_BYTES = 450 * MEBIBYTE;
const THRESHOLD = "150Mi";
const HOARD_MIB = 330;
const LOW =
  /The node was low on resource: memory\. Threshold quantity: 150Mi, available: \d+\S*\. Container app was using \d+\S*/;

let pressed: PressedNode;
let registry: Registry;
const images = { both: "", linux: "" };

before(async () => {
  if (skip !== false) return;
  pressed = await PressedNode.start(PODS_BYTES, {
    evictionHard: { "memory.available": THRESHOLD },
    evictionPressureTransitionPeriod: "1s",
  });
  registry = await Registry.start();
  importSays(pressed.containerd);
  images.both = await pushDual(registry, pressed.containerd, "both", ["container", "component"]);
  images.linux = await pushDual(registry, pressed.containerd, "linux", ["container"]);
});

after(async () => {
  if (skip !== false) return;
  await pressed?.[Symbol.asyncDispose]();
  await registry?.[Symbol.asyncDispose]();
});

/** Holds too much when its gate, which has its name, is opened; as components it does not. */
const hoarding = (name: string, image: string, more: object = {}) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, annotations: { "wasm.picolet.io/under-pressure": "component" } },
  spec: {
    nodeName: "node-a",
    terminationGracePeriodSeconds: 1,
    containers: [
      {
        ...{ name: "app", image, args: ["say", name, "cat", "/data/mark", "hold"], imagePullPolicy: "Always" },
        env: [
          { name: "HOARD", value: String(HOARD_MIB) },
          { name: "GATE", value: name },
        ],
        volumeMounts: [
          { name: "gate", mountPath: "/gate", readOnly: true },
          { name: "data", mountPath: "/data" },
        ],
      },
    ],
    volumes: [
      { name: "gate", hostPath: { path: pressed.gate } },
      { name: "data", emptyDir: {} },
    ],
    ...more,
  },
});

const told = (name: string, reason: string, text: RegExp) =>
  pressed.node.waitForEvent(
    `${reason} of ${name}`,
    (event) => event.involvedObject.name === name && event.reason === reason && text.test(event.message),
  );

const runtimeOf = (pod: Pod): string =>
  /^[^:]+/.exec(pod.status?.containerStatuses?.[0]?.containerID ?? "")?.[0] ?? "none";
const conditionOf = (pod: Pod) => pod.status?.conditions?.find(({ type }) => type === "picolet.io/Runtime");

/** Until it runs as components and the API server knows. */
const switched = (name: string): Promise<Pod> =>
  pressed.admin.untilPod(name, "to run as components", (pod) => runtimeOf(pod) === "picolet-wasm" && isReady(pod));

test("the pod that would be evicted goes on as components: the same pod, its volumes, one restart, and all say why", {
  skip,
}, async () => {
  const small = await pressed.run(pressed.pod("small", SLEEP_SCRIPT));
  const before = await pressed.run(hoarding("hoards", images.both));
  assert.equal(runtimeOf(before), "containerd");
  assert.equal(conditionOf(before)?.reason, "Container");
  await told("hoards", "ComponentsReady", /goes on as components/);
  pressed.open("hoards");
  const event = await told("hoards", "SwitchedToComponent", LOW);
  const now = await switched("hoards");
  assert.equal(now.metadata.uid, before.metadata.uid);
  const [status] = now.status?.containerStatuses ?? [];
  assert.deepEqual([status?.restartCount, status?.lastState.terminated !== undefined], [1, true]);
  const condition = conditionOf(now);
  assert.deepEqual([condition?.status, condition?.reason], ["True", "Component"]);
  assert.equal(condition?.message, event.message.trim());
  // It is ready when its component begins, which has still to say it.
  const words = "hoards\nleft by a container\n";
  const log = await pressed.fleet.seen(["logs", "-f", "hoards"], (printed) => printed.length >= words.length);
  assert.equal(log, words);
  assert.match(edgectl(pressed.node, "get", "pods", "-o", "wide"), /hoards .*picolet-wasm/);
  await pressed.condition("MemoryPressure", "False");
  assert.equal(await pressed.admin.eventsOf("hoards", "Evicted"), 0);
  await pressed.runOn(small);
  await pressed.clear();
});

test("one whose components are not there is evicted as ever", { skip }, async () => {
  await pressed.run(hoarding("large", images.linux));
  await told("large", "ComponentsNotReady", /Cannot be switched to components: /);
  pressed.open("large");
  assert.match((await pressed.evicted("large")).status?.message ?? "", LOW);
  await pressed.clear();
});

test("an agent that is killed in the middle of a switch goes on with it when it is back", { skip }, async () => {
  const { node, containerd } = pressed;
  await pressed.run(hoarding("torn", images.both));
  await told("torn", "ComponentsReady", /goes on as components/);
  pressed.open("torn");
  await told("torn", "SwitchedToComponent", LOW);
  await node.kill();
  await node.start();
  const now = await switched("torn");
  assert.equal(now.status?.containerStatuses?.[0]?.restartCount, 1);
  assert.equal(conditionOf(now)?.reason, "Component");
  assert.doesNotMatch(containerd.ctr("--namespace", "k8s.io", "containers", "list"), /says|both/);
  await pressed.clear();
});

test("a static pod, which is never evicted, is switched; the registry may be gone by then", { skip }, async () => {
  const { node } = pressed;
  node.writeManifest("fixed.json", hoarding("fixed", images.both));
  await told("fixed-node-a", "ComponentsReady", /goes on as components/);
  await registry[Symbol.asyncDispose]();
  pressed.open("fixed");
  await told("fixed-node-a", "SwitchedToComponent", LOW);
  assert.equal(conditionOf(await switched("fixed-node-a"))?.reason, "Component");
  node.removeManifest("fixed.json");
  await node.waitForPods("it is gone", (pods) => !pods.has("fixed-node-a"));
});
