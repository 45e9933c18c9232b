/** The hub's Kubernetes side against an API server over HTTPS. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { EVENTS } from "@picolet/hub/bridge/event-writer.ts";
import { LEASES } from "@picolet/hub/bridge/node-lease.ts";
import { conditionsOf, fieldsAt } from "@picolet/hub/bridge/remote-object.ts";
import type { NodeBackend } from "@picolet/hub-core/fleet.ts";
import {
  CONFIG_MAPS,
  type KubeObject,
  NODES,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
  PODS,
  type ResourceType,
  RUNTIME_CLASSES,
  SECRETS,
  SERVICES,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import {
  SERVICE_ACCOUNTS as ACCOUNTS,
  NAMESPACES,
  RESOURCE_SLICES,
} from "@picolet/hub-core/kube-client/resource-types.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { subjectAltName } from "@picolet/protocol/pki/extensions.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";
import { mirrorsDigest } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { EventItem, MirrorItem } from "@picolet/protocol/tunnel/messages.ts";
import type { ServingReply, TokenReply } from "@picolet/protocol/tunnel/stream.ts";
import { requestWithExtensions } from "../support/unit/identity/sample-certificate-requests.ts";
import { TlsAuthority } from "../support/unit/identity/tls-authority.ts";
import {
  API_SERVICE,
  BridgedCluster,
  condition,
  ENDPOINT,
  HUB_ADDRESS,
  type Replica,
  reportOf,
  untilDesired,
} from "../support/unit/kubernetes/bridged-cluster.ts";
import { CallLog } from "../support/unit/kubernetes/recording-kube-client.ts";

let cluster: BridgedCluster;
let replica: Replica;
const calls = new CallLog();
const { signal } = new AbortController();

before(async () => {
  cluster = await BridgedCluster.start();
  replica = await cluster.replica(calls);
});

after(async () => {
  await replica[Symbol.asyncDispose]();
  await cluster[Symbol.asyncDispose]();
});

async function joined(node: string): Promise<NodeBackend> {
  const backend = replica.fleet.connect(node);
  await backend.putNode(reportOf(node), signal);
  await untilDesired(backend, (keys) => keys.has(`Node//${node}`));
  return backend;
}

const running = (more: Record<string, unknown> = {}): Record<string, unknown> => ({
  phase: "Running",
  observedGeneration: 1,
  conditions: [condition("Ready", "True", ""), condition("ContainersReady", "True", "")].map(
    ({ type, status, lastTransitionTime }) => ({ type, status, lastTransitionTime }),
  ),
  hostIP: "192.168.1.7",
  podIP: "10.0.0.2",
  podIPs: [{ ip: "10.0.0.2" }],
  startTime: "2026-01-01T00:00:00Z",
  containerStatuses: [
    {
      name: "main",
      state: { running: { startedAt: "2026-01-01T00:00:01Z" } },
      lastState: {},
      ready: true,
      restartCount: 0,
      image: "registry.example/app:1",
      imageID: "sha256:1",
      containerID: "containerd://1",
      started: true,
    },
  ],
  qosClass: "BestEffort",
  ...more,
});

test("a node registers itself, and the hub stands in it as its kubelet", async () => {
  const backend = replica.fleet.connect("board-1");
  const labels = { ...reportOf("board-1").labels, "picolet.io/hub": "mine", "node-restriction.kubernetes.io/a": "b" };
  const report = { ...reportOf("board-1"), labels, taints: [{ key: "edge", value: "x", effect: "NoSchedule" }] };
  await backend.putNode(report, signal);
  const node = await cluster.client.get(NODES, { namespace: "", name: "board-1" }, signal);
  assert.equal(node.metadata.labels?.["picolet.io/hub"], "test");
  assert.equal(node.metadata.labels?.site, "mast-7");
  assert.equal(node.metadata.labels?.["node-restriction.kubernetes.io/a"], undefined);
  const status = fieldsAt(node, "status");
  assert.deepEqual(fieldsAt(status, "daemonEndpoints"), { kubeletEndpoint: { Port: ENDPOINT.port } });
  assert.deepEqual(status.addresses, [
    { type: "InternalIP", address: ENDPOINT.address },
    { type: "Hostname", address: ENDPOINT.address },
  ]);
  const ready = conditionsOf(status).find(({ type }) => type === "Ready");
  assert.equal(ready?.status, "True");
  assert.ok(Date.parse(String(ready?.lastHeartbeatTime)) > Date.now() - 60_000);
  const taints = fieldsAt(node, "spec").taints as readonly { key: string }[];
  assert.ok(taints.some(({ key }) => key === "edge"));
  const lease = await cluster.until(LEASES, "kube-node-lease", "board-1", (found) => found !== undefined);
  assert.equal(lease?.metadata.ownerReferences?.[0]?.uid, node.metadata.uid);
  assert.equal(fieldsAt(lease ?? {}, "spec").holderIdentity, "board-1");
  await untilDesired(backend, () => backend.nodeReport() !== undefined);
  assert.deepEqual(backend.nodeReport(), report);
  await backend[Symbol.asyncDispose]();
});

test("addresses that a cloud controller manager gives a Node stay, but for those that lead to its kubelet", async () => {
  await using backend = replica.fleet.connect("in-a-cloud");
  await backend.putNode(reportOf("in-a-cloud"), signal);
  const outside = [
    { type: "ExternalIP", address: "203.0.113.7" },
    { type: "ExternalDNS", address: "board.cloud.example" },
  ];
  const addresses = [{ $patch: "replace" }, { type: "InternalIP", address: "10.1.2.3" }, ...outside];
  const ref = { namespace: "", name: "in-a-cloud" };
  await cluster.client.patch(NODES, ref, "strategic", { status: { addresses } }, { subresource: "status" }, signal);
  const { conditions: _, ...unlike } = reportOf("in-a-cloud").status;
  await backend.putNode({ ...reportOf("in-a-cloud"), status: { ...unlike, conditions: [] } }, signal);
  const node = await cluster.client.get(NODES, ref, signal);
  assert.deepEqual(fieldsAt(node, "status").addresses, [
    { type: "InternalIP", address: ENDPOINT.address },
    { type: "Hostname", address: ENDPOINT.address },
    ...outside,
  ]);
});

test("a Node that a kubelet runs is not taken, one made by hand is", async () => {
  for (const [name, kubeletVersion] of [
    ["real", "v1.34.0"],
    ["by-hand", ""],
  ] as const) {
    await cluster.create(NODES, { apiVersion: "v1", kind: "Node", metadata: { name }, spec: {} });
    const nodeInfo = { ...(reportOf(name).status.nodeInfo as object), kubeletVersion };
    const ref = { namespace: "", name };
    await cluster.client.patch(NODES, ref, "merge", { status: { nodeInfo } }, { subresource: "status" }, signal);
    await using backend = replica.fleet.connect(name);
    const put = backend.putNode(reportOf(name, { register: false }), signal);
    if (kubeletVersion === "") await put;
    else await assert.rejects(put, (error) => isPicoletError(error, "permission_denied"));
  }
});

test("the annotation that asks why reaches the hub's followers, and changes neither the pod nor what its node has", async () => {
  await using backend = await joined("asked");
  const made = await cluster.createPod("asks", "asked");
  const ref = { namespace: "default", name: "asks" };
  await untilDesired(backend, (keys) => keys.has("Pod/default/asks"));
  const { digest } = backend.desired.current;
  const heard: unknown[] = [];
  const changed = new WatchSource(0);
  using _following = replica.fleet.questions.follow((path, asking) => {
    heard.push([path, asking]);
    changed.set(heard.length);
  });
  for (const [index, value] of ["?", "an answer"].entries()) {
    const patch = { metadata: { annotations: { "picolet.io/why": value } } };
    const patched = await cluster.client.patch(PODS, ref, "merge", patch, {}, signal);
    assert.equal(patched.metadata.generation, made.metadata.generation);
    for await (const count of changed.changes(signal)) if (count > index) break;
  }
  const asking = { node: "asked", namespace: "default", name: "asks", uid: made.metadata.uid };
  assert.deepEqual(heard, [
    ["default/asks", asking],
    ["default/asks", undefined],
  ]);
  assert.deepEqual(backend.desired.current.digest, digest);
});

test("a node that may not register itself waits until somebody makes its Node", async () => {
  await using backend = replica.fleet.connect("later");
  const put = backend.putNode(reportOf("later", { register: false }), signal);
  await assert.rejects(put, (error) => isPicoletError(error, "unavailable") && error.retryable);
});

test("a node has its pods and what they name, and nothing else", async () => {
  const metadata = (name: string): { namespace: string; name: string } => ({ namespace: "default", name });
  const data = { password: Buffer.from("one").toString("base64") };
  for (const name of ["named", "other"]) {
    await cluster.create(SECRETS, { apiVersion: "v1", kind: "Secret", metadata: metadata(name), data });
    await cluster.create(CONFIG_MAPS, {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: metadata(name),
      data: { a: "b" },
    });
  }
  await using backend = await joined("board-2");
  const empty = backend.desired.current.digest;
  await cluster.createPod("web", "board-2", {
    containers: [
      {
        name: "main",
        image: "registry.example/app:1",
        env: [{ name: "P", valueFrom: { secretKeyRef: { name: "named", key: "password" } } }],
        envFrom: [{ configMapRef: { name: "missing", optional: true } }],
      },
    ],
    volumes: [{ name: "v", projected: { sources: [{ configMap: { name: "named" } }] } }],
  });
  await cluster.createPod("elsewhere", "board-1");
  const keys = await untilDesired(backend, (found) => found.has("Pod/default/web"));
  assert.deepEqual(keys, ["ConfigMap/default/named", "Node//board-2", "Pod/default/web", "Secret/default/named"]);
  assert.ok(!equalBytes(empty, backend.desired.current.digest));
  assert.deepEqual(backend.object("Secret/default/named")?.object.data, data);
  assert.equal(backend.object("Secret/default/other"), undefined);
  assert.equal(backend.object("Pod/default/elsewhere"), undefined);
  const pod = backend.object("Pod/default/web")?.object ?? {};
  const { resourceVersion, managedFields } = fieldsAt(pod, "metadata");
  assert.deepEqual([resourceVersion, managedFields], [undefined, undefined]);

  const old = backend.desired.current.hashes.get("Secret/default/named");
  const next = { data: { password: Buffer.from("two").toString("base64") } };
  await cluster.client.patch(SECRETS, metadata("named"), "merge", next, {}, signal);
  for await (const { hashes } of backend.desired.changes(signal)) {
    if (hashes.get("Secret/default/named") !== old) break;
  }
  assert.deepEqual(backend.object("Secret/default/named")?.object.data, next.data);

  await using other = await cluster.replica();
  await using again = other.fleet.connect("board-2");
  await untilDesired(again, () => true);
  assert.deepEqual(again.desired.current.digest, backend.desired.current.digest);
});

test("a Secret that comes after the pod that names it is sent then", async () => {
  await using backend = await joined("board-3");
  await cluster.createPod("early", "board-3", { volumes: [{ name: "v", secret: { secretName: "late" } }] });
  await untilDesired(backend, (keys) => keys.has("Pod/default/early"));
  const metadata = { namespace: "default", name: "late" };
  await cluster.create(SECRETS, { apiVersion: "v1", kind: "Secret", metadata, data: {} });
  await untilDesired(backend, (keys) => keys.has("Secret/default/late"));
  await cluster.client.delete(SECRETS, metadata, {}, signal);
  await untilDesired(backend, (keys) => !keys.has("Secret/default/late"));
});

test("a node has the claims that its pods name, the volumes they are bound to, and the runtime classes", async () => {
  await using backend = await joined("board-18");
  const name = "data-18";
  const claimRef = { namespace: "default", name };
  await cluster.create(RUNTIME_CLASSES, {
    apiVersion: "node.k8s.io/v1",
    kind: "RuntimeClass",
    metadata: { name },
    handler: "crun",
  });
  const volumeClaimTemplate = { spec: claimSpec("none") };
  await cluster.createPod("store", "board-18", {
    runtimeClassName: name,
    volumes: [
      { name: "v", persistentVolumeClaim: { claimName: name } },
      { name: "own", ephemeral: { volumeClaimTemplate } },
    ],
  });
  await untilDesired(backend, (keys) => keys.has(`RuntimeClass//${name}`));
  assert.equal(backend.object(`RuntimeClass//${name}`)?.object.handler, "crun");
  await cluster.create(PERSISTENT_VOLUME_CLAIMS, claimNamed(name, "manual-18"));
  const key = `PersistentVolumeClaim/default/${name}`;
  await untilDesired(backend, (keys) => keys.has(key));
  assert.equal(backend.desired.current.hashes.has(`PersistentVolume//${name}`), false);
  const uid = backend.object(key)?.object.metadata as { uid: string };
  const volume = {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name, annotations: { "pv.beta.kubernetes.io/gid": "1234", other: "x" } },
    spec: { ...volumeSpec("manual-18"), claimRef: { ...claimRef, uid: uid.uid } },
  };
  await cluster.create(PERSISTENT_VOLUMES, volume);
  await bind(name);
  await untilDesired(backend, (keys) => keys.has(`PersistentVolume//${name}`));
  const sent = backend.object(`PersistentVolume//${name}`)?.object ?? {};
  assert.deepEqual(fieldsAt(sent, "metadata").annotations, { "pv.beta.kubernetes.io/gid": "1234" });
  assert.deepEqual(fieldsAt(fieldsAt(sent, "spec"), "hostPath").path, "/srv/data");
  assert.equal(fieldsAt(fieldsAt(sent, "spec"), "claimRef").resourceVersion, undefined);
  assert.equal(fieldsAt(backend.object(key)?.object, "status").phase, "Bound");
  // The claim of a generic ephemeral volume, which a cluster makes itself.
  const own = "PersistentVolumeClaim/default/store-own";
  if (!backend.desired.current.hashes.has(own)) {
    await cluster.create(PERSISTENT_VOLUME_CLAIMS, claimNamed("store-own", "none")).catch(unlessThere);
  }
  await untilDesired(backend, (keys) => keys.has(own));

  await using other = await cluster.replica();
  await using again = other.fleet.connect("board-18");
  await untilDesired(again, () => true);
  assert.deepEqual(again.desired.current.digest, backend.desired.current.digest);

  await cluster.client.delete(PODS, { namespace: "default", name: "store" }, { gracePeriodSeconds: 0 }, signal);
  await untilDesired(backend, (keys) => [...keys].every((each) => each.startsWith("Node/") || each === API_SERVICE));
});

test("a claim whose volume the node has expanded shows it, and a claim of other pods does not", async () => {
  await using backend = await joined("board-21");
  const names = ["grown-21", "foreign-21"];
  const claims = await Promise.all(
    names.map((name) => cluster.create(PERSISTENT_VOLUME_CLAIMS, claimNamed(name, "manual-21"))),
  );
  await cluster.createPod("grower", "board-21", {
    volumes: [{ name: "v", persistentVolumeClaim: { claimName: names[0] } }],
  });
  await untilDesired(backend, (keys) => keys.has(`PersistentVolumeClaim/default/${names[0]}`));
  const pending = { type: "FileSystemResizePending", status: "True" };
  const other = { type: "ModifyingVolume", status: "True" };
  for (const name of names) {
    await bind(name);
    const status = { conditions: [pending, other], allocatedResourceStatuses: { storage: "NodeResizePending" } };
    const ref = { namespace: "default", name };
    await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, ref, "merge", { status }, { subresource: "status" }, signal);
  }
  const expandedClaims = JSON.stringify(
    claims.map(({ metadata: { namespace, name, uid } }) => ({ namespace, name, uid, capacity: "3Mi" })),
  );
  await backend.putNode({ ...reportOf("board-21"), expandedClaims }, signal);
  const statusOf = async (name: string) =>
    fieldsAt(await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, { namespace: "default", name }, signal), "status");
  const grown = await statusOf("grown-21");
  assert.deepEqual(grown.capacity, { storage: "3Mi" });
  assert.deepEqual(
    (grown.conditions as readonly { type: string }[]).map(({ type }) => type),
    ["ModifyingVolume"],
  );
  assert.equal(fieldsAt(grown, "allocatedResourceStatuses").storage, undefined);
  assert.deepEqual((await statusOf("foreign-21")).capacity, { storage: "1Mi" });
});

test("the slices of drivers that a node no longer has are removed, and its devices are in an annotation", async () => {
  const slice = (name: string, nodeName: string, driver: string) => ({
    apiVersion: "resource.k8s.io/v1",
    kind: "ResourceSlice",
    metadata: { name },
    spec: { driver, nodeName, pool: { name: nodeName, generation: 1, resourceSliceCount: 1 } },
  });
  for (const [name, node, driver] of [
    ["s-kept", "drivers", "kept.example.com"],
    ["s-gone", "drivers", "gone.example.com"],
    ["s-other", "other-node", "gone.example.com"],
  ] as const)
    await cluster.create(RESOURCE_SLICES, slice(name, node, driver));
  const left = async (): Promise<readonly string[]> => {
    const { items } = await cluster.client.list(RESOURCE_SLICES, {}, signal);
    return items.map(({ metadata }) => metadata.name).sort();
  };
  const put = async (more: object): Promise<string | undefined> => {
    await using backend = replica.fleet.connect("drivers");
    await backend.putNode({ ...reportOf("drivers"), ...more }, signal);
    const node = await cluster.client.get(NODES, { namespace: "", name: "drivers" }, signal);
    return node.metadata.annotations?.["picolet.io/devices"];
  };
  assert.equal(await put({}), undefined);
  assert.equal(await put({ draDrivers: "no JSON", devices: "" }), undefined);
  assert.deepEqual(await left(), ["s-gone", "s-kept", "s-other"]);
  const devices = "example.com/camera video0\nexample.com/camera video1 !";
  assert.equal(await put({ draDrivers: '["kept.example.com"]', devices }), devices);
  assert.deepEqual(await left(), ["s-kept", "s-other"]);
  assert.equal(await put({ draDrivers: "[]", devices: "" }), undefined);
  assert.deepEqual(await left(), ["s-other"]);
});

test("a node has the services of its pods' namespaces that have an address, and of no others", async () => {
  await using backend = await joined("board-17");
  const namespaces = ["links-17", "none-17"];
  for (const name of namespaces) {
    await cluster.create(NAMESPACES, { apiVersion: "v1", kind: "Namespace", metadata: { name } });
    await cluster.create(SERVICES, serviceNamed(name, "web", { ports: [{ name: "http", port: 80 }] }));
    await cluster.create(SERVICES, serviceNamed(name, "headless", { clusterIP: "None" }));
    await cluster.until(ACCOUNTS, name, "default", (found) => found !== undefined);
  }
  for (const namespace of namespaces) {
    const metadata = { namespace, name: "app" };
    const spec = {
      nodeName: "board-17",
      containers: [{ name: "main", image: "registry.example/app:1" }],
      automountServiceAccountToken: false,
      enableServiceLinks: namespace === "links-17",
    };
    await cluster.create(PODS, { apiVersion: "v1", kind: "Pod", metadata, spec });
  }
  const isService = (key: string): boolean => key.startsWith("Service/");
  const keys = await untilDesired(backend, (found) =>
    ["Pod/links-17/app", "Pod/none-17/app"].every((p) => found.has(p)),
  );
  assert.deepEqual(keys.filter(isService), ["Service/links-17/web"]);
  const sent = fieldsAt(backend.object("Service/links-17/web")?.object, "spec");
  assert.deepEqual(sent.ports, [{ name: "http", protocol: "TCP", port: 80 }]);
  assert.match(String(sent.clusterIP), /^[0-9a-f.:]+$/);
  await cluster.create(SERVICES, serviceNamed("links-17", "later", { ports: [{ port: 81 }] }));
  await untilDesired(backend, (found) => found.has("Service/links-17/later"));
  await cluster.client.delete(SERVICES, { namespace: "links-17", name: "web" }, {}, signal);
  await untilDesired(backend, (found) => !found.has("Service/links-17/web"));
  // A change of a service that does not concern its address changes nothing for a node.
  const { revision } = backend.desired.current;
  const label = { metadata: { labels: { a: "b" } } };
  await cluster.client.patch(SERVICES, { namespace: "links-17", name: "later" }, "merge", label, {}, signal);
  await cluster.create(SERVICES, serviceNamed("links-17", "last", { ports: [{ port: 82 }] }));
  await untilDesired(backend, (found) => found.has("Service/links-17/last"));
  assert.equal(backend.desired.current.revision, revision + 1);
});

const claimSpec = (storageClassName: string): Record<string, unknown> => ({
  storageClassName,
  accessModes: ["ReadWriteOnce"],
  resources: { requests: { storage: "1Mi" } },
});
const claimNamed = (name: string, storageClassName: string): KubeObject => ({
  apiVersion: "v1",
  kind: "PersistentVolumeClaim",
  metadata: { namespace: "default", name },
  spec: claimSpec(storageClassName),
});
const volumeSpec = (storageClassName: string): Record<string, unknown> => ({
  storageClassName,
  accessModes: ["ReadWriteOnce"],
  capacity: { storage: "1Mi" },
  hostPath: { path: "/srv/data" },
});
const serviceNamed = (namespace: string, name: string, spec: object): KubeObject => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { namespace, name },
  spec: { selector: { app: name }, ...spec },
});

function unlessThere(error: unknown): void {
  if (!isPicoletError(error, "already_exists")) throw error;
}

/** Binds a claim as the controller of volumes does, which is absent here. */
async function bind(name: string): Promise<void> {
  const ref = { namespace: "default", name };
  await cluster.client
    .patch(PERSISTENT_VOLUME_CLAIMS, ref, "merge", { spec: { volumeName: name } }, {}, signal)
    .catch(() => undefined);
  const status = { phase: "Bound", accessModes: ["ReadWriteOnce"], capacity: { storage: "1Mi" } };
  await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, ref, "merge", { status }, { subresource: "status" }, signal);
}

const SAFE = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map((key) => ({
  key,
  operator: "Exists",
  effect: "NoExecute",
}));
const tolerationsOf = (pod: KubeObject | undefined): readonly unknown[] => {
  const { tolerations } = fieldsAt(pod ?? {}, "spec");
  return Array.isArray(tolerations) ? tolerations : [];
};
const isSafe = (pod: KubeObject | undefined): boolean => isDeepStrictEqual(tolerationsOf(pod), SAFE);

test("a pod gets what keeps it from eviction when it is a minute old, its node from the beginning", async () => {
  await using backend = await joined("board-4");
  const metadata = { namespace: "default", name: "movable", annotations: { "picolet.io/evict-when-away": "true" } };
  const spec = { nodeName: "board-4", containers: [{ name: "main", image: "registry.example/app:1" }] };
  const movable = await cluster.create(PODS, { apiVersion: "v1", kind: "Pod", metadata, spec });
  const made = await cluster.createPod("safe", "board-4");
  await untilDesired(backend, (keys) => keys.has("Pod/default/safe") && keys.has("Pod/default/movable"));
  const sent = fieldsAt(backend.object("Pod/default/safe")?.object, "spec").tolerations;
  assert.deepEqual(sent, SAFE);
  const young = await cluster.client.get(PODS, { namespace: "default", name: "safe" }, signal);
  assert.equal(young.metadata.resourceVersion, made.metadata.resourceVersion);

  const later: Clock = { ...systemClock, wall: () => new Date(systemClock.wall().getTime() + 61_000) };
  await using other = await cluster.replica(calls, {}, later);
  await using again = other.fleet.connect("board-4");
  await cluster.until(PODS, "default", "safe", isSafe);
  await untilDesired(again, () => true);
  const untouched = await cluster.client.get(PODS, metadata, signal);
  assert.equal(untouched.metadata.resourceVersion, movable.metadata.resourceVersion);
});

test("a status is the node's, with the conditions that others have set left alone", async () => {
  await using backend = await joined("board-5");
  const made = await cluster.createPod("app", "board-5", { readinessGates: [{ conditionType: "example.com/gate" }] });
  const ref = { namespace: "default", name: "app" };
  const uid = made.metadata.uid ?? "";
  const gate = { type: "example.com/gate", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" };
  const gated = { status: { conditions: [gate] } };
  await cluster.client.patch(PODS, ref, "strategic", gated, { subresource: "status" }, signal);
  await untilDesired(backend, () => backend.object("Pod/default/app")?.object.status !== undefined);
  const put = (status: Record<string, unknown>): Promise<void> =>
    backend.putStatuses([{ ...ref, uid, status, gone: false }], signal);

  await put(running({ message: "first", podIPs: [{ ip: "10.0.0.2" }, { ip: "fd00::2" }] }));
  await put(running());
  const pod = await cluster.client.get(PODS, ref, signal);
  const status = fieldsAt(pod, "status");
  assert.equal(status.phase, "Running");
  assert.equal(status.message, undefined, "what the node no longer says is gone");
  assert.deepEqual(status.podIPs, [{ ip: "10.0.0.2" }]);
  const found = conditionsOf(status).find(({ type }) => type === gate.type);
  assert.deepEqual([found?.type, found?.status], [gate.type, "True"]);
  assert.equal(conditionsOf(status).find(({ type }) => type === "Ready")?.status, "True");
  const { resourceVersion } = pod.metadata;
  await calls.untilTaken(PODS, "default", "app", (found) => found?.metadata.resourceVersion === resourceVersion);
  assert.deepEqual(backend.statusOf("default", "app", uid), running());
});

test("PodScheduled follows the generation that the node has observed, and keeps the time of the binding", async () => {
  await using backend = await joined("board-19");
  const made = await cluster.createPod("counted", "board-19");
  const ref = { namespace: "default", name: "counted" };
  const lastTransitionTime = "2026-01-02T00:00:00Z";
  const bound = { status: { conditions: [{ type: "PodScheduled", status: "True", lastTransitionTime }] } };
  const options = { subresource: "status" };
  const { metadata } = await cluster.client.patch(PODS, ref, "strategic", bound, options, signal);
  const { resourceVersion } = metadata;
  await calls.untilTaken(PODS, "default", "counted", (found) => found?.metadata.resourceVersion === resourceVersion);
  // The second one before the watch has brought the first.
  for (const observedGeneration of [1, 2]) {
    const status = running({ observedGeneration });
    await backend.putStatuses([{ ...ref, uid: made.metadata.uid ?? "", status, gone: false }], signal);
    const pod = await cluster.client.get(PODS, ref, signal);
    const scheduled = conditionsOf(pod.status).find(({ type }) => type === "PodScheduled");
    assert.deepEqual(
      [scheduled?.status, scheduled?.observedGeneration, scheduled?.lastTransitionTime],
      ["True", observedGeneration, lastTransitionTime],
    );
  }
});

test("a status of another incarnation, of a pod that is gone or of another node reaches nothing", async () => {
  await using backend = await joined("board-6");
  const mine = await cluster.createPod("mine", "board-6");
  const foreign = await cluster.createPod("foreign", "board-1");
  await untilDesired(backend, (keys) => keys.has("Pod/default/mine"));
  const item = (name: string, uid = ""): Parameters<NodeBackend["putStatuses"]>[0][number] => ({
    namespace: "default",
    name,
    uid,
    status: running(),
    gone: true,
  });
  await backend.putStatuses(
    [item("mine", "another"), item("nobody", "x"), item("foreign", foreign.metadata.uid)],
    signal,
  );
  for (const { metadata } of [mine, foreign]) {
    const pod = await cluster.client.get(PODS, { namespace: "default", name: metadata.name }, signal);
    assert.equal(fieldsAt(pod, "status").phase, "Pending");
  }
});

test("a pod whose deletion was asked for goes when nothing of it is left, and no other does", async () => {
  await using backend = await joined("board-7");
  const names = ["stays", "goes"];
  const uids = new Map<string, string>();
  for (const name of names) uids.set(name, (await cluster.createPod(name, "board-7")).metadata.uid ?? "");
  await untilDesired(backend, (keys) => names.every((name) => keys.has(`Pod/default/${name}`)));
  const items = names.map((name) => ({
    namespace: "default",
    name,
    uid: uids.get(name) ?? "",
    status: running(),
    gone: false,
  }));
  await backend.putStatuses(items, signal);
  await cluster.client.delete(PODS, { namespace: "default", name: "goes" }, {}, signal);
  await untilDesired(
    backend,
    () => fieldsAt(backend.object("Pod/default/goes")?.object, "metadata").deletionTimestamp !== undefined,
  );
  const last = { phase: "Failed", reason: "Evicted" };
  await backend.putStatuses(
    items.map((item) => ({ ...item, status: running(last), gone: true })),
    signal,
  );
  await untilDesired(backend, (keys) => !keys.has("Pod/default/goes"));
  const stays = await cluster.client.get(PODS, { namespace: "default", name: "stays" }, signal);
  assert.equal(fieldsAt(stays, "status").phase, "Failed");
});

test("pods of a node that becomes ours only now are found", async () => {
  await cluster.create(NODES, { apiVersion: "v1", kind: "Node", metadata: { name: "board-8" }, spec: {} });
  await cluster.createPod("waiting", "board-8");
  await using backend = replica.fleet.connect("board-8");
  await untilDesired(backend, (keys) => keys.has("Pod/default/waiting") && keys.has("Node//board-8"));
});

const staticPod = (name: string, uid: string): MirrorItem => ({
  namespace: "default",
  name,
  uid,
  source: "file",
  pod: {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace: "default", name, labels: { app: name }, annotations: { note: "x" } },
    spec: { containers: [{ name: "main", image: "registry.example/app:1" }], hostNetwork: true },
  },
});

const hashOf = (pod: KubeObject | undefined): string | undefined =>
  pod?.metadata.annotations?.["kubernetes.io/config.mirror"];

test("static pods have mirror pods, with the status that their node gives them", async () => {
  await using backend = await joined("board-9");
  assert.deepEqual(backend.mirrorsDigest(), mirrorsDigest(sha256, []));
  const item = staticPod("proxy-board-9", "0123456789abcdef");
  const ref = { namespace: "default", name: "proxy-board-9" };
  // A status may come before its mirror pod.
  await backend.putStatuses([{ ...ref, uid: item.uid, status: running(), gone: false }], signal);
  await backend.putMirrors([item], signal);
  const mirror = await cluster.client.get(PODS, ref, signal);
  const node = await cluster.client.get(NODES, { namespace: "", name: "board-9" }, signal);
  assert.equal(hashOf(mirror), item.uid);
  assert.equal(mirror.metadata.annotations?.["kubernetes.io/config.source"], "file");
  assert.equal(mirror.metadata.ownerReferences?.[0]?.uid, node.metadata.uid);
  assert.equal(fieldsAt(mirror, "spec").nodeName, "board-9");
  assert.equal(fieldsAt(mirror, "status").phase, "Running");
  await untilMirrors(backend, [item]);
  assert.deepEqual(
    [...backend.desired.current.hashes.keys()].sort(),
    ["Node//board-9", API_SERVICE],
    "a node is not sent its own static pods",
  );
  assert.equal(backend.statusOf("default", "proxy-board-9", item.uid)?.phase, "Running");
  await backend.putMirrors([item], signal);
  const same = await cluster.client.get(PODS, ref, signal);
  assert.equal(same.metadata.uid, mirror.metadata.uid);

  await backend.putStatuses([{ ...ref, uid: item.uid, status: running({ message: "second" }), gone: false }], signal);
  await cluster.client.delete(PODS, ref, {}, signal);
  const isAnother = (pod: KubeObject | undefined): boolean =>
    pod !== undefined && pod.metadata.uid !== mirror.metadata.uid && fieldsAt(pod, "status").message === "second";
  const again = await cluster.until(PODS, "default", "proxy-board-9", isAnother);
  assert.equal(hashOf(again), item.uid, "a deletion of the mirror deletes nothing real");

  const changed = { ...item, uid: "fedcba9876543210" };
  await backend.putMirrors([changed], signal);
  await cluster.until(PODS, "default", "proxy-board-9", (pod) => hashOf(pod) === changed.uid);
  await untilMirrors(backend, [changed]);
  await backend.putMirrors([], signal);
  await cluster.until(PODS, "default", "proxy-board-9", (pod) => pod === undefined);
});

test("a mirror pod that is deleted comes again even at a replica that was never told of the static pod", async () => {
  await using backend = await joined("board-10");
  const item = staticPod("dns-board-10", "00000000000000aa");
  await backend.putMirrors([item], signal);
  await untilMirrors(backend, [item]);
  await using other = await cluster.replica();
  await using again = other.fleet.connect("board-10");
  await untilDesired(again, () => true);
  await backend[Symbol.asyncDispose]();
  const ref = { namespace: "default", name: "dns-board-10" };
  const before_ = await cluster.client.get(PODS, ref, signal);
  await cluster.client.delete(PODS, ref, { gracePeriodSeconds: 0 }, signal);
  const isAnother = (pod: KubeObject | undefined): boolean =>
    pod !== undefined && pod.metadata.uid !== before_.metadata.uid;
  assert.equal(hashOf(await cluster.until(PODS, "default", "dns-board-10", isAnother)), item.uid);
});

test("a namespace that refuses the mirror of a static pod gets one event, and the node's other writes go on", async () => {
  const namespace = "guarded";
  const labels = { "pod-security.kubernetes.io/enforce": "baseline" };
  await cluster.client.create(
    NAMESPACES,
    { namespace: "", name: "" },
    { metadata: { name: namespace, labels } },
    {},
    signal,
  );
  await using backend = await joined("board-21");
  const item = { ...staticPod("open-board-21", "00000000000000ba"), namespace };
  const plain = staticPod("plain-board-21", "00000000000000bb");
  for (let round = 0; round < 3; round += 1) await backend.putMirrors([item, plain], signal);
  const status = { namespace, name: item.name, uid: item.uid, status: running(), gone: false };
  await backend.putStatuses([status], signal);
  const none = cluster.client.get(PODS, { namespace, name: item.name }, signal);
  await assert.rejects(none, (error) => isPicoletError(error, "not_found"));
  const { items } = await cluster.client.list(EVENTS, { namespace }, signal);
  const [event, ...more] = items;
  assert.deepEqual(more, []);
  assert.equal(event?.reason, "FailedMirrorPod");
  assert.equal(fieldsAt(event, "involvedObject").uid, item.uid);
  assert.match(String(event?.message), /violates PodSecurity "baseline:latest": host namespaces \(hostNetwork=true\)/);
  assert.equal(hashOf(await cluster.client.get(PODS, { namespace: "default", name: plain.name }, signal)), plain.uid);
  // As soon as the namespace allows it, the mirror is there.
  const change = { metadata: { labels: { "pod-security.kubernetes.io/enforce": null } } };
  await cluster.client.patch(NAMESPACES, { namespace: "", name: namespace }, "merge", change, {}, signal);
  await backend.putMirrors([item, plain], signal);
  const mirror = await cluster.client.get(PODS, { namespace, name: item.name }, signal);
  assert.equal(fieldsAt(mirror, "status").phase, "Running");
});

async function untilMirrors(backend: NodeBackend, items: readonly MirrorItem[]): Promise<void> {
  const [item] = items;
  await calls.untilTaken(PODS, "default", item?.name ?? "", (pod) => hashOf(pod) === item?.uid);
  assert.deepEqual(backend.mirrorsDigest(), new Uint8Array(mirrorsDigest(sha256, items)));
}

test("a replica that is behind says nothing of a node until it knows what the one before has told it", async () => {
  const backend = await joined("board-16");
  await cluster.createPod("old", "board-16");
  await untilDesired(backend, (keys) => keys.has("Pod/default/old"));
  const gate = new WatchSource(false);
  await using behind = await cluster.laggingReplica(gate);
  await cluster.createPod("new", "board-16");
  await cluster.client.delete(PODS, { namespace: "default", name: "old" }, { gracePeriodSeconds: 0 }, signal);
  await untilDesired(backend, (keys) => keys.has("Pod/default/new") && !keys.has("Pod/default/old"));
  await backend[Symbol.asyncDispose]();
  await using again = behind.fleet.connect("board-16");
  const listed = cluster.client.list(PODS, { fieldSelector: "spec.nodeName=board-16" }, signal);
  await listed;
  assert.equal(again.desired.current.synced, false);
  gate.set(true);
  assert.deepEqual(await untilDesired(again, () => true), ["Node//board-16", "Pod/default/new"]);
});

test("an event that repeats is one object, and is found by what it is about", async () => {
  await using backend = await joined("board-11");
  const at = Date.parse("2026-01-01T00:00:00Z");
  const event = (count: number): EventItem => ({
    id: "BackOff/app",
    regarding: { kind: "Pod", namespace: "default", name: "app", uid: "u-1", fieldPath: "spec.containers{main}" },
    type: "Warning",
    reason: "BackOff",
    message: `attempt ${count}`,
    count,
    firstAtMs: at,
    lastAtMs: at + count * 1000,
  });
  await backend.putEvents([event(1)], signal);
  await backend.putEvents([event(1)], signal);
  await backend.putEvents([event(7)], signal);
  const about = { fieldSelector: "involvedObject.uid=u-1", namespace: "default" };
  const { items } = await cluster.client.list(EVENTS, about, signal);
  assert.equal(items.length, 1);
  const [found] = items;
  assert.deepEqual([found?.count, found?.message, found?.lastTimestamp], [7, "attempt 7", "2026-01-01T00:00:07Z"]);
  await cluster.client.delete(EVENTS, { namespace: "default", name: found?.metadata.name ?? "" }, {}, signal);
  await backend.putEvents([event(8)], signal);
  assert.equal(
    (await cluster.client.list(EVENTS, about, signal)).items.length,
    1,
    "one that has outlived its hour is made anew",
  );
  const ofNode = { kind: "Node", namespace: "", name: "board-11", uid: "board-11", fieldPath: "" };
  await backend.putEvents([{ ...event(1), id: "Starting", regarding: ofNode }], signal);
  const node = { fieldSelector: "involvedObject.uid=board-11", namespace: "default" };
  assert.equal((await cluster.client.list(EVENTS, node, signal)).items.length, 1);
});

test("a token is for a pod of this node and its own service account", async () => {
  await using backend = await joined("board-12");
  // A node gets tokens for the audiences alone that its pods ask for.
  const token_ = { serviceAccountToken: { path: "token", expirationSeconds: 600 } };
  const pod = await cluster.createPod("caller", "board-12", {
    serviceAccountName: "default",
    volumes: [{ name: "token", projected: { sources: [token_] } }],
  });
  await untilDesired(backend, (keys) => keys.has("Pod/default/caller"));
  const params = {
    namespace: "default",
    serviceAccount: "default",
    audiences: [],
    expirationSeconds: 600,
    podName: "caller",
    podUid: pod.metadata.uid ?? "",
  };
  const { token, expirationTimestamp } = await backend.requestToken(params, signal);
  assert.equal(token.split(".").length, 3);
  assert.ok(Date.parse(expirationTimestamp) > Date.now());
  for (const wrong of [{ podUid: "another" }, { serviceAccount: "admin" }, { podName: "foreign" }]) {
    const asked = backend.requestToken({ ...params, ...wrong }, signal);
    await assert.rejects(asked, (error) => isPicoletError(error, "permission_denied"));
  }
});

test("a node has a client's token and rights reviewed, as itself and for itself", async () => {
  await using backend = await joined("board-21");
  const token_ = { serviceAccountToken: { path: "token", expirationSeconds: 600 } };
  const pod = await cluster.createPod("client", "board-21", {
    serviceAccountName: "default",
    volumes: [{ name: "token", projected: { sources: [token_] } }],
  });
  await untilDesired(backend, (keys) => keys.has("Pod/default/client"));
  const params = { namespace: "default", serviceAccount: "default", audiences: [], expirationSeconds: 600 };
  const of = { podName: "client", podUid: pod.metadata.uid ?? "" };
  const { token } = await backend.requestToken({ ...params, ...of }, signal);
  const { user } = (await backend.review({ review: "token", token }, signal)) as TokenReply;
  assert.equal(user?.name, "system:serviceaccount:default:default");
  assert.ok(user?.groups.includes("system:serviceaccounts"));
  assert.deepEqual(await backend.review({ review: "token", token: "guess" }, signal), { user: null });
  const access = { review: "access", verb: "get", subresource: "metrics" } as const;
  const asked = (name: string, groups: readonly string[]) => backend.review({ ...access, user: name, groups }, signal);
  assert.deepEqual(await asked(user?.name ?? "", user?.groups ?? []), { allowed: false });
  assert.deepEqual(await asked("admin", ["system:masters"]), { allowed: true });
  const deletion = (name: string, groups: readonly string[]) =>
    backend.review({ review: "podDeletion", user: name, groups, namespace: "default" }, signal);
  assert.deepEqual(await deletion(user?.name ?? "", user?.groups ?? []), { allowed: false });
  assert.deepEqual(await deletion("admin", ["system:masters"]), { allowed: true });
});

const SIGNING: ResourceType = {
  ...{ group: "certificates.k8s.io", version: "v1", plural: "certificatesigningrequests", namespaced: false },
  kind: "CertificateSigningRequest",
};

test("a node has its serving certificate requested once, and gets what was approved and signed", async () => {
  await using backend = await joined("board-22");
  const names = subjectAltName({ dns: ["board-22"], addresses: [addressBytes("192.0.2.22")] });
  const request = requestWithExtensions("system:node:board-22", [names]);
  const ask = () => backend.review({ review: "serving", request }, signal) as Promise<ServingReply>;
  assert.deepEqual(await ask(), { state: "pending" });
  assert.deepEqual(await ask(), { state: "pending" });
  const made = (await cluster.client.list(SIGNING, {}, signal)).items.filter(({ metadata }) =>
    metadata.name.startsWith("picolet-serving-board-22-"),
  );
  assert.equal(made.length, 1);
  const [{ metadata, spec } = { metadata: { name: "" }, spec: {} }] = made;
  const { signerName, username, usages } = spec as Record<string, unknown>;
  assert.deepEqual(
    [signerName, username, usages],
    ["kubernetes.io/kubelet-serving", "system:node:board-22", ["digital signature", "server auth"]],
  );
  const set = (status: object, subresource: string) =>
    cluster.client.patch(SIGNING, { namespace: "", name: metadata.name }, "merge", { status }, { subresource }, signal);
  const approval = { type: "Approved", status: "True", reason: "Checked", message: "" };
  await set({ conditions: [approval] }, "approval");
  const certificate = new TlsAuthority().issueServerFor(["board-22", "192.0.2.22"]).certificate;
  await set({ certificate: Buffer.from(certificate).toString("base64") }, "status");
  assert.deepEqual(await ask(), { state: "issued", certificate });
});

test("a denied request for a serving certificate says why", async () => {
  await using backend = await joined("board-23");
  const names = subjectAltName({ dns: ["board-23"], addresses: [] });
  const request = requestWithExtensions("system:node:board-23", [names]);
  const ask = () => backend.review({ review: "serving", request }, signal) as Promise<ServingReply>;
  await ask();
  const { items } = await cluster.client.list(SIGNING, {}, signal);
  const name = items.find(({ metadata }) => metadata.name.startsWith("picolet-serving-board-23-"))?.metadata.name ?? "";
  const denial = { type: "Denied", status: "True", reason: "No", message: "this board is not ours" };
  const patch = { status: { conditions: [denial] } };
  await cluster.client.patch(SIGNING, { namespace: "", name }, "merge", patch, { subresource: "approval" }, signal);
  assert.deepEqual(await ask(), { state: "denied", reason: "this board is not ours" });
});

test("a node gets no serving certificate for another's name or address, nor for the hub's", async () => {
  await using other = replica.fleet.connect("board-24");
  const report = reportOf("board-24");
  const addresses = [
    { type: "InternalIP", address: "192.0.2.24" },
    { type: "InternalIP", address: "2001:db8::24" },
  ];
  await other.putNode({ ...report, status: { ...report.status, addresses } }, signal);
  await untilDesired(other, (keys) => keys.has("Node//board-24"));
  await using backend = await joined("board-25");
  const ask = (node: string, dns: readonly string[], ips: readonly string[]) => {
    const names = subjectAltName({ dns, addresses: ips.map(addressBytes) });
    return backend.review(
      { review: "serving", request: requestWithExtensions(`system:node:${node}`, [names]) },
      signal,
    );
  };
  const refused = (message: RegExp) => ({ code: "permission_denied", message });
  await assert.rejects(ask("board-24", ["board-24"], []), refused(/its subject is node board-24/));
  await assert.rejects(ask("board-25", ["board-24"], []), refused(/the name board-24 is not its own/));
  await assert.rejects(ask("board-25", ["*"], []), { code: "invalid" });
  await assert.rejects(ask("board-25", [], []), refused(/neither name nor address/));
  for (const address of [
    ...["192.0.2.24", "2001:db8:0:0:0:0:0:24", "127.0.0.1", "::1", "0.0.0.0", "224.0.0.1", "ff02::1"],
    ...["::ffff:192.0.2.24", HUB_ADDRESS],
  ]) {
    const reply = (await ask("board-25", ["board-25"], ["192.0.2.25", address])) as ServingReply;
    assert.equal(reply.state, "taken", address);
    assert.ok(reply.state === "taken" && reply.addresses.length === 1, address);
    assert.deepEqual(reply.addresses.map(addressBytes), [addressBytes(address)], address);
  }
  assert.deepEqual(await ask("board-25", ["board-25"], ["192.0.2.25"]), { state: "pending" });
});

test("a node that stays away is said to be away, and is as it was when it comes back", async () => {
  await using brief = await cluster.replica(new CallLog(), { awayAfter: millis(1) });
  const backend = brief.fleet.connect("board-13");
  await backend.putNode(reportOf("board-13"), signal);
  const pod = await cluster.createPod("left", "board-13");
  const item = { namespace: "default", name: "left", uid: pod.metadata.uid ?? "", status: running(), gone: false };
  await untilDesired(backend, (keys) => keys.has("Pod/default/left"));
  await backend.putStatuses([item], signal);
  await backend[Symbol.asyncDispose]();
  const ready = (node: KubeObject | undefined): unknown =>
    conditionsOf(node?.status).find(({ type }) => type === "Ready")?.status;
  await cluster.until(PODS, "default", "left", isSafe);
  const away = await cluster.until(NODES, "", "board-13", (node) => ready(node) === "Unknown");
  const said = conditionsOf(away?.status).find(({ type }) => type === "Ready");
  assert.equal(said?.reason, "AgentNotConnected");
  await cluster.until(PODS, "default", "left", (found) => ready(found) === "False");

  await using again = brief.fleet.connect("board-13");
  await cluster.until(NODES, "", "board-13", (node) => ready(node) === "True");
  await cluster.until(PODS, "default", "left", (found) => ready(found) === "True");
  assert.ok(again.nodeReport() !== undefined);
});

test("a hub that starts anew on another port is found there as soon as its node is back", async () => {
  const node = await joined("board-16");
  await node[Symbol.asyncDispose]();
  const ref = { namespace: "", name: "board-16" };
  const stale = { status: { daemonEndpoints: { kubeletEndpoint: { Port: 1 } } } };
  const options = { subresource: "status" };
  const { metadata } = await cluster.client.patch(NODES, ref, "strategic", stale, options, signal);
  await using fresh = await cluster.replica();
  await using back = fresh.fleet.connect("board-16");
  const found = await cluster.until(
    NODES,
    "",
    "board-16",
    (each) => each !== undefined && each.metadata.resourceVersion !== metadata.resourceVersion,
  );
  assert.equal(fieldsAt(found ?? {}, "metadata").uid, metadata.uid);
  const endpoints = fieldsAt(fieldsAt(found ?? {}, "status"), "daemonEndpoints");
  assert.deepEqual(endpoints, { kubeletEndpoint: { Port: ENDPOINT.port } });
  assert.ok(back.nodeReport() !== undefined);
});

test("a node that has gone to another replica is not said to be away", async () => {
  const asked = new CallLog();
  await using first = await cluster.replica(asked, { awayAfter: millis(1) });
  const old = first.fleet.connect("board-14");
  await old.putNode(reportOf("board-14"), signal);
  const lease = await cluster.until(LEASES, "kube-node-lease", "board-14", (found) => found !== undefined);
  const { renewTime } = fieldsAt(lease ?? {}, "spec");
  await using now = replica.fleet.connect("board-14");
  await cluster.until(
    LEASES,
    "kube-node-lease",
    "board-14",
    (found) => fieldsAt(found ?? {}, "spec").renewTime !== renewTime,
  );
  const looked = asked.next(
    ({ verb, resource, name }) => verb === "get" && resource === "leases" && name === "board-14",
  );
  await old[Symbol.asyncDispose]();
  await looked;
  // A write of its own would come right after it has read the Lease: this connection comes after that.
  await using third = first.fleet.connect("board-15");
  await third.putNode(reportOf("board-15"), signal);
  const node = await cluster.client.get(NODES, { namespace: "", name: "board-14" }, signal);
  assert.equal(conditionsOf(node.status).find(({ type }) => type === "Ready")?.status, "True");
  assert.ok(now.desired.current.synced);
});

test("the hub itself changes nothing but tolerations; all else is written as the node that it is about", () => {
  const own = new Set(calls.all.filter(({ user }) => user === "").map(({ verb, resource }) => `${verb} ${resource}`));
  assert.deepEqual([...own].sort(), [
    "get nodes",
    "get pods",
    "list configmaps",
    "list csidrivers",
    "list nodes",
    "list persistentvolumeclaims",
    "list persistentvolumes",
    "list pods",
    "list resourceclaims",
    "list runtimeclasses",
    "list secrets",
    "list services",
    "list volumeattachments",
    "patch pods",
    "watch configmaps",
    "watch csidrivers",
    "watch nodes",
    "watch persistentvolumeclaims",
    "watch persistentvolumes",
    "watch pods",
    "watch resourceclaims",
    "watch runtimeclasses",
    "watch secrets",
    "watch services",
    "watch volumeattachments",
  ]);
  for (const { user, resource, name, verb } of calls.all) {
    if (user === "") continue;
    assert.match(user, /^system:node:/);
    const isNodes = resource.startsWith("nodes") || resource === "leases";
    if (isNodes) assert.equal(`system:node:${name}`, user, `${verb} ${resource}`);
  }
});
