/** Private images and prefetching as a user of Kubernetes sees them: kubectl, the embedded hub, a board, a registry. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { ImageList } from "@picolet/protocol/local-api/status.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerPod, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { REGISTRY_PASSWORD, REGISTRY_USER, Registry, registryMissing } from "../../support/containerd/real-registry.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { endProcess, Fleet, kubectlMissing, untilPrinted } from "../../support/hub/test-fleet.ts";

const skip = containerdMissing() ?? registryMissing() ?? (kubectlMissing("1.32") || false);

let containerd: Containerd;
let registry: Registry;
let fleet: Fleet;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  registry = await Registry.start();
  fleet = await Fleet.start();
  node = nodeWith(containerd, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
  await node.start();
  const nodes = fleet.spawnKubectl(["get", "nodes", "--watch"]);
  await untilPrinted(nodes, (text) => / Ready /.test(text));
  await endProcess(nodes);
});

after(async () => {
  if (skip !== false) return;
  await fleet?.tryKubectl(["delete", "pods", "--all", "--all-namespaces", "--wait=true", "--timeout=60s"]);
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, registry, fleet, node]) if (each !== undefined) all.use(each);
});

const imagePod = (name: string, image: string, namespace = "default"): unknown => {
  const containers = [{ name: "app", image, imagePullPolicy: "IfNotPresent", command: ["/bin/sleep", "3600"] }];
  const pod = containerPod(name, undefined, { containers }) as { readonly metadata: object };
  return { ...pod, metadata: { ...pod.metadata, namespace } };
};

/** Until events of one object say all of it. */
async function untilEvents(kind: string, name: string, ...texts: readonly RegExp[]): Promise<void> {
  const selector = `--field-selector=involvedObject.kind=${kind},involvedObject.name=${name}`;
  const watching = fleet.spawnKubectl(["get", "events", "-A", "--watch", selector]);
  try {
    await untilPrinted(watching, (printed) => texts.every((text) => text.test(printed)));
  } finally {
    await endProcess(watching);
  }
}

test("a service account's pull secret opens a private image for its pods, and for no others", { skip }, async () => {
  registry.push(containerd, BUSYBOX_IMAGE, "app:1");
  const image = `${registry.privateAddress}/app:1`;
  const credentials = [`--docker-server=${registry.privateAddress}`, `--docker-username=${REGISTRY_USER}`];
  await fleet.kubectl([
    "create",
    "secret",
    "docker-registry",
    "pull",
    ...credentials,
    `--docker-password=${REGISTRY_PASSWORD}`,
  ]);
  await fleet.kubectl(["patch", "serviceaccount", "default", "-p", '{"imagePullSecrets":[{"name":"pull"}]}']);
  await fleet.apply(imagePod("with", image));
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/with", "--timeout=90s"]);
  await untilEvents(
    "Pod",
    "with",
    /Pulling +\S+ +Pulling image/,
    /Successfully pulled image .* including waiting\). Image size: \d+ bytes\./,
  );
  await fleet.kubectl(["create", "namespace", "other"]);
  await fleet.apply(imagePod("without", image, "other"));
  await untilEvents(
    "Pod",
    "without",
    /Failed +\S+ +Failed to pull image/,
    /Failed +\S+ +Error: ErrImagePull/,
    /BackOff +\S+ +Back-off pulling image/,
  );
  const reason = 'jsonpath={.status.containerStatuses[0].state.waiting.reason}{"\\n"}';
  await fleet.seen(["get", "pod", "without", "-n", "other", "--watch", "-o", reason], (printed) =>
    /^(ErrImagePull|ImagePullBackOff)$/m.test(printed),
  );
});

test("what an annotation of the node names is there before a pod needs it", { skip }, async () => {
  registry.push(containerd, BUSYBOX_IMAGE, "next:1");
  const image = `${registry.address}/next:1`;
  await fleet.kubectl(["annotate", "nodes", "-l", "kubernetes.io/hostname=node-a", `picolet.io/prefetch=${image}`]);
  await untilEvents("Node", "node-a", new RegExp(`Pulled +\\S+ +Successfully pulled image "${image}"`));
  const { prefetches, items } = JSON.parse(edgectl(node, "images", "-o", "json")) as ImageList;
  assert.deepEqual(prefetches, [{ image, runtime: "cri", wantedBy: ["node/node-a"], state: "present", message: "" }]);
  assert.ok(items.some(({ tags }) => tags.includes(image)));
});
