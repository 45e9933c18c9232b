/**
 * The choice of the pods that end when memory runs short: components, static and critical pods, an agent killed in the
 * middle.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { containerIdOf, edgectl } from "../../support/agent/node-fixtures.ts";
import { containerdMissing } from "../../support/containerd/containerd.ts";
import { kubectlMissing } from "../../support/hub/test-fleet.ts";
import { hold, PressedNode } from "../../support/pressure/pressed-node.ts";
import { testComponent } from "../../support/wasm/components.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
const SCRIPT_IMAGE = "localhost/script:1";
const LOW_ON_MEMORY = /^The node was low on resource: memory\. Threshold quantity: 200Mi, available: \d+\S*\. /;

let pressed: PressedNode;

before(async () => {
  if (skip !== false) return;
  pressed = await PressedNode.start(400 * MEBIBYTE, {
    evictionHard: { "memory.available": "200Mi" },
    evictionPressureTransitionPeriod: "1s",
  });
  for (const [name, value] of [
    ["low", -10],
    ["high", 1000],
  ] as const)
    await pressed.fleet.apply({ apiVersion: "scheduling.k8s.io/v1", kind: "PriorityClass", metadata: { name }, value });
  edgectl(pressed.node, "image", "import", await testComponent("script.c"), "--name", SCRIPT_IMAGE);
});

after(async () => {
  if (skip === false) await pressed?.[Symbol.asyncDispose]();
});

test("a component that leaks goes with the figures, other components and containers run on", { skip }, async () => {
  const component = (name: string, args: readonly string[], memory: string) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    spec: {
      ...{ nodeName: "node-a", runtimeClassName: "wasm", terminationGracePeriodSeconds: 1 },
      containers: [{ name: "app", image: SCRIPT_IMAGE, args, resources: { requests: { memory } } }],
    },
  });
  const others = [
    await pressed.run(component("still", ["hold"], "64Mi")),
    await pressed.run(pressed.pod("good", hold(20), { requests: { memory: "32Mi" } })),
  ];
  const steps = Array.from({ length: 12 }, () => ["grow", "16", "pause", "200"]).flat();
  await pressed.make(component("leaky", [...steps, "hold"], "16Mi"));
  const { status } = await pressed.evicted("leaky");
  const message = status?.message ?? "";
  assert.match(message, LOW_ON_MEMORY);
  assert.match(message, /Container app was using \d+\S*, request is 16Mi, has larger consumption of memory\. $/);
  // By SIGKILL of its cgroup, unless the SIGTERM that comes with an eviction was there first.
  const exitCode = status?.containerStatuses?.[0]?.state.terminated?.exitCode;
  assert.ok(exitCode === 137 || exitCode === 143, String(exitCode));
  await pressed.runOn(...others);
  await pressed.clear();
});

test("static and critical pods stay, however much they hold; the next in the order goes", { skip }, async () => {
  const { node } = pressed;
  const critical = await pressed.run(
    pressed.pod("critical", hold(60), { spec: { priorityClassName: "system-node-critical" } }),
  );
  const { spec } = pressed.pod("static", hold(90)) as { readonly spec: { readonly nodeName: string } };
  const { nodeName: _, ...own } = spec;
  node.writeManifest("static.json", { apiVersion: "v1", kind: "Pod", metadata: { name: "static" }, spec: own });
  const isUp = (pods: ReadonlyMap<string, Pod>) => pods.get("static-node-a")?.status?.phase === "Running";
  const before = (await node.waitForPods("the static pod runs", isUp)).get("static-node-a");
  const modest = await pressed.run(pressed.pod("modest", hold(10), { requests: { memory: "24Mi" } }));
  await pressed.make(pressed.pod("plain", hold(60)));
  assert.match((await pressed.evicted("plain")).status?.message ?? "", LOW_ON_MEMORY);
  await pressed.condition("MemoryPressure", "False");
  await pressed.runOn(critical, modest);
  const now = (await node.waitForPods("the static pod runs", isUp)).get("static-node-a");
  assert.equal(containerIdOf(now), containerIdOf(before));
  assert.match(node.log, /cannot evict a critical pod/);
  node.removeManifest("static.json");
  await node.waitForPods("the static pod has gone", (pods) => !pods.has("static-node-a"));
  await pressed.clear();
});

test("killed when it has chosen a pod, the agent ends that one after its restart, and the next in the order", {
  skip,
}, async () => {
  const { node } = pressed;
  const made = (name: string, priorityClassName: string | undefined): Promise<Pod> =>
    pressed.run(pressed.pod(name, hold(90), { spec: { priorityClassName } }, "leak"));
  const [third, good] = await Promise.all([
    made("third", "high"),
    // More than any of them, within what it asks for.
    pressed.run(pressed.pod("good", hold(100), { requests: { memory: "128Mi" } })),
    made("first", "low"),
    made("second", undefined),
  ]);
  await node.stop();
  const agent = node.spawn();
  const ended = once(agent, "exit");
  let said = "";
  agent.stderr?.on("data", (text: string) => {
    said += text;
    if (said.includes("a pod is evicted")) agent.kill("SIGKILL");
  });
  pressed.open("leak");
  await ended;
  assert.match(said, /a pod is evicted .*name=default\/first /);
  await node.start();
  // 100 and 90 of the 200 MiB that may be held.
  const [first, second] = [await pressed.evicted("first"), await pressed.evicted("second")];
  await pressed.condition("MemoryPressure", "False");
  await pressed.runOn(third, good);
  for (const { status } of [first, second]) {
    assert.match(status?.message ?? "", LOW_ON_MEMORY);
    assert.equal(status?.containerStatuses?.[0]?.restartCount, 0);
  }
});
