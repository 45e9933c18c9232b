/**
 * Pods whose images are both, a component and an image for containers: which of both they are run as, and that it
 * stays.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type AgentNode, restartsOf } from "../../support/agent/agent-process.ts";
import { containerIdOf, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { type Half, importSays, pushDual } from "../../support/containerd/dual-image.ts";
import { Registry, registryMissing } from "../../support/containerd/real-registry.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";

const skip = containerdMissing() ?? registryMissing() ?? false;

let containerd: Containerd;
let registry: Registry;
let node: AgentNode;
const images = new Map<string, string>();

const HALVES: Readonly<Record<string, readonly Half[]>> = {
  both: ["container", "component"],
  wasm: ["component"],
  linux: ["container", "foreign"],
  neither: ["foreign"],
};

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  registry = await Registry.start();
  importSays(containerd);
  for (const [name, halves] of Object.entries(HALVES))
    images.set(name, await pushDual(registry, containerd, name, halves));
  node = nodeWith(containerd);
  await node.start();
});

after(async () => {
  if (skip !== false) return;
  await node?.drain();
  // Its spare runner goes with it, and out of its cgroup.
  await node?.stop();
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, registry, node]) if (each !== undefined) all.use(each);
});

interface Wanted {
  readonly image: string;
  readonly prefer?: string;
  readonly policy?: string;
  readonly container?: object;
  readonly annotations?: object;
}

const podOf = (name: string, { image, prefer, policy = "IfNotPresent", container, annotations }: Wanted): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: {
    name,
    annotations: { ...(prefer === undefined ? {} : { "wasm.picolet.io/prefer": prefer }), ...annotations },
  },
  spec: {
    terminationGracePeriodSeconds: 1,
    containers: [
      {
        name: "app",
        image: images.get(image) ?? image,
        imagePullPolicy: policy,
        args: ["say", name, "hold"],
        ...container,
      },
    ],
  },
});

const runs = (pod: Pod | undefined): boolean => pod?.status?.conditions?.some(isTrue("Ready")) === true;
const isTrue = (type: string) => (each: { readonly type: string; readonly status: string }) =>
  each.type === type && each.status === "True";

async function run(name: string, wanted: Wanted): Promise<Pod> {
  node.writeManifest(`${name}.json`, podOf(name, wanted));
  return await running(name);
}

async function running(name: string): Promise<Pod> {
  const pods = await node.waitForPods(`${name} runs`, (each) => runs(each.get(`${name}-node`)));
  const pod = pods.get(`${name}-node`);
  assert.ok(pod !== undefined);
  return pod;
}

/** `wasm`, `containerd`: of the container's id. */
const runtimeOf = (pod: Pod): string =>
  /^[^:]+/.exec(pod.status?.containerStatuses?.[0]?.containerID ?? "")?.[0] ?? "none";

function conditionOf(pod: Pod): string {
  const found = pod.status?.conditions?.find(({ type }) => type === "picolet.io/Runtime");
  return found === undefined ? "none" : `${found.status} ${found.reason}: ${found.message}`;
}

const logOf = (name: string): string => edgectl(node, "logs", `${name}-node`);
const told = (name: string, reason: string, text: RegExp) =>
  node.waitForEvent(
    `${reason} of ${name}`,
    (event) => event.involvedObject.name === `${name}-node` && event.reason === reason && text.test(event.message),
  );

test("a pull by hand takes an image to the runtime that it is for", { skip }, () => {
  const pulled = (name: string): string => edgectl(node, "image", "pull", images.get(name) ?? "", "-o", "json");
  const runtimeIn = (text: string): unknown => (JSON.parse(text) as { readonly runtime?: unknown }).runtime;
  assert.equal(runtimeIn(pulled("wasm")), "wasm");
  assert.equal(runtimeIn(pulled("both")), "cri");
});

test("of images that have both the preferred form runs, and status, event and edgectl say which", {
  skip,
}, async () => {
  const component = await run("small", { image: "both", prefer: "component" });
  const container = await run("large", { image: "both", prefer: "container" });
  assert.deepEqual([runtimeOf(component), runtimeOf(container)], ["picolet-wasm", "containerd"]);
  assert.equal(conditionOf(component), "True Component: the pod prefers component, and its images have it");
  assert.match(conditionOf(container), /^True Container: the pod prefers container/);
  await told("small", "RuntimeChosen", /^Running as component: /);
  const shown = (await node.status()).pods.map(({ name, runtime }) => `${name} ${runtime}`).sort();
  assert.deepEqual(shown, ["large-node cri", "small-node wasm"]);
  assert.match(edgectl(node, "get", "pods", "-o", "wide"), /small-node .*picolet-wasm/);
  assert.equal(logOf("small"), "small\n");
  assert.equal(logOf("large"), "large in a container\n");
  await node.drain();
});

test("a pod without the annotations is run as ever, and its registry is asked nothing but its image", {
  skip,
}, async () => {
  const pod = await run("plain", { image: "both" });
  assert.equal(runtimeOf(pod), "containerd");
  assert.equal(conditionOf(pod), "none");
  await node.drain();
});

test("where a form is missing the other runs, and where both are the pod waits and says what there is", {
  skip,
}, async () => {
  const container = await run("c", { image: "linux", prefer: "component" });
  const component = await run("w", { image: "wasm", prefer: "container" });
  assert.deepEqual([runtimeOf(container), runtimeOf(component)], ["containerd", "picolet-wasm"]);
  assert.match(conditionOf(container), /^True Container: \S+linux:1 has no component$/);
  assert.match(conditionOf(component), /^True Component: \S+wasm:1 has no container$/);
  node.writeManifest("n.json", podOf("n", { image: "neither", prefer: "component" }));
  await told(
    "n",
    "ErrImagePull",
    /neither:1 is neither a component nor an image for this node's containers \(linux\/riscv64\)/,
  );
  const pods = await node.waitForPods("n waits", (each) => waiting(each.get("n-node")) === "ErrImagePull");
  assert.equal(pods.get("n-node")?.status?.phase, "Pending");
  await node.drain();
});

const waiting = (pod: Pod | undefined): string | undefined =>
  pod?.status?.containerStatuses?.[0]?.state.waiting?.reason;

test("what a component could never do is run in a container, and the event says what that is", { skip }, async () => {
  const container = { readinessProbe: { exec: { command: ["/bin/true"] }, periodSeconds: 1 } };
  const pod = await run("probed", { image: "both", prefer: "component", container });
  assert.equal(runtimeOf(pod), "containerd");
  await told(
    "probed",
    "RuntimeChosen",
    /^Running as container: cannot run WebAssembly components so: .*readinessProbe/,
  );
  await node.drain();
});

test("annotations that mean nothing start nothing, and are named", { skip }, async () => {
  const annotations = { "wasm.picolet.io/under-pressure": "yes" };
  node.writeManifest("wrong.json", podOf("wrong", { image: "both", prefer: "wasm", annotations }));
  const both = /prefer has to be component or container, not "wasm"; .*under-pressure has to be component, not "yes"/;
  await told("wrong", "CreateContainerConfigError", both);
  await node.waitForPods("it waits", (pods) => waiting(pods.get("wrong-node")) === "CreateContainerConfigError");
  await node.drain();
});

test("without its registry a pod waits as for any image; with one form on the node it runs as that", {
  skip,
}, async () => {
  const nowhere = "127.0.0.1:9/app:1";
  node.writeManifest("away.json", podOf("away", { image: nowhere, prefer: "component" }));
  await told("away", "ErrImagePull", /cannot tell what 127\.0\.0\.1:9\/app:1 holds/);
  await node.waitForPods("it waits", (pods) => waiting(pods.get("away-node")) === "ErrImagePull");
  assert.equal((await node.status()).pods[0]?.phase, "Pending");
  containerd.ctr("images", "tag", BUSYBOX_IMAGE, "127.0.0.1:9/here:1");
  const container = { command: ["/bin/sleep", "3600"], args: [] };
  const pod = await run("here", { image: "127.0.0.1:9/here:1", prefer: "component", container });
  assert.equal(runtimeOf(pod), "containerd");
  assert.match(
    conditionOf(pod),
    /the registry of \S+ cannot be asked, and this node has an image for containers of it only/,
  );
  await node.drain();
});

test("what was chosen stays: through a killed agent, a cut of power and a registry that is gone", {
  skip,
}, async () => {
  const firstSmall = await run("small", { image: "both", prefer: "component" });
  const before = [firstSmall, await run("large", { image: "both", prefer: "container" })];
  await node.kill();
  await registry[Symbol.asyncDispose]();
  await node.start();
  for (const pod of before) {
    const now = await running(pod.metadata.name.replace("-node", ""));
    assert.equal(containerIdOf(now), containerIdOf(pod), "it runs on");
    assert.equal(conditionOf(now), conditionOf(pod));
  }
  await node.kill();
  node.cutPower();
  await node.start();
  const pods = await node.waitForPods("both run again", (each) => {
    const [small, large] = [each.get("small-node"), each.get("large-node")];
    // Its restart counts only if the agent had written its status down before the cut.
    const isAnother = small !== undefined && containerIdOf(small) !== containerIdOf(firstSmall);
    return isAnother && runs(small) && runs(large);
  });
  const [small, large] = [pods.get("small-node"), pods.get("large-node")];
  assert.ok(small !== undefined && large !== undefined);
  assert.deepEqual([runtimeOf(small), runtimeOf(large)], ["picolet-wasm", "containerd"]);
  assert.equal(restartsOf(large), 0);
  await node.drain();
});
