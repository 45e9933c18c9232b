import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { nodePodStatus } from "@picolet/protocol/pod/node-pod-status.ts";
import { parseCsiReport, parseExpandedClaims } from "@picolet/protocol/tunnel/csi-report.ts";
import fc from "fast-check";
import { awayTolerations } from "./away-tolerations.ts";
import { nodePatch } from "./node-object.ts";
import { podStatusPatch } from "./pod-status-patch.ts";
import { attachmentKey, DATA_TYPES, remoteService } from "./remote-data.ts";
import { fieldsAt, hasLostReadiness, remoteNode, remotePod } from "./remote-object.ts";
import { PackedObject, sentReferences, storedNode, wholePod } from "./stored-objects.ts";

const pod = (spec: object = {}, status: object = {}, metadata: object = {}): KubeObject => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { namespace: "ns", name: "p", uid: "u", resourceVersion: "7", ...metadata },
  spec,
  status,
});

test("references are found wherever a pod may name something that its node is to have", () => {
  const spec = {
    runtimeClassName: "crun",
    imagePullSecrets: [{ name: "pull" }, {}],
    containers: [
      {
        env: [
          { name: "A", valueFrom: { secretKeyRef: { name: "env-s", key: "k" } } },
          { name: "B", valueFrom: { configMapKeyRef: { name: "env-c", key: "k" } } },
          { name: "C", value: "plain" },
        ],
        envFrom: [{ secretRef: { name: "from-s" } }, { configMapRef: { name: "from-c" } }],
      },
    ],
    initContainers: [{ envFrom: [{ secretRef: { name: "init-s" } }] }],
    ephemeralContainers: [{ envFrom: [{ secretRef: { name: "eph-s" } }] }],
    resourceClaims: [
      { name: "j", resourceClaimName: "named" },
      { name: "k", resourceClaimTemplateName: "template" },
      { name: "l", resourceClaimTemplateName: "not made yet" },
    ],
    volumes: [
      { name: "a", secret: { secretName: "vol-s" } },
      { name: "b", configMap: { name: "vol-c" } },
      { name: "c", projected: { sources: [{ secret: { name: "pro-s" } }, { configMap: { name: "pro-c" } }, {}] } },
      { name: "d", secret: { secretName: "vol-s" } },
      { name: "e", emptyDir: {} },
      { name: "f", persistentVolumeClaim: { claimName: "claim" } },
      { name: "g", ephemeral: { volumeClaimTemplate: {} } },
      { name: "h", csi: { driver: "x", nodePublishSecretRef: { name: "csi-s" } } },
      { name: "i", flexVolume: { driver: "x", secretRef: { name: "flex-s" } } },
    ],
  };
  const status = { resourceClaimStatuses: [{ name: "k", resourceClaimName: "p-templated-x" }] };
  const names = (kind: string, list: readonly string[]): string[] => list.map((name) => `${kind}/ns/${name}`);
  assert.deepEqual(sentReferences(pod(spec, status)), [
    "CSIDriver//x",
    ...names("ConfigMap", ["env-c", "from-c", "pro-c", "vol-c"]),
    ...names("PersistentVolumeClaim", ["claim", "p-g"]),
    ...names("ResourceClaim", ["named", "p-templated-x"]),
    "RuntimeClass//crun",
    ...names("Secret", ["csi-s", "env-s", "eph-s", "flex-s", "from-s", "init-s", "pro-s", "pull", "vol-s"]),
  ]);
  const mirror = pod(spec, {}, { annotations: { "kubernetes.io/config.mirror": "x" } });
  assert.deepEqual(sentReferences(mirror), [], "a mirror pod, which the board itself has made, grants nothing");
});

const NOT_READY = "node.kubernetes.io/not-ready";
const UNREACHABLE = "node.kubernetes.io/unreachable";
const forEver = (key: string): object => ({ key, operator: "Exists", effect: "NoExecute" });

for (const [what, before, after] of [
  ["a pod without any gets both", undefined, [forEver(NOT_READY), forEver(UNREACHABLE)]],
  [
    "what admission put in loses its five minutes, in its place",
    [
      { key: "x" },
      { ...forEver(NOT_READY), tolerationSeconds: 300 },
      { ...forEver(UNREACHABLE), tolerationSeconds: 300 },
    ],
    [{ key: "x" }, forEver(NOT_READY), forEver(UNREACHABLE)],
  ],
  ["a daemon's pod has them", [forEver(NOT_READY), forEver(UNREACHABLE)], undefined],
  ["one that tolerates everything needs no more", [{ operator: "Exists" }], undefined],
  [
    "one that tolerates everything for a time tolerates it for ever",
    [{ operator: "Exists", tolerationSeconds: 5 }],
    [{ operator: "Exists" }],
  ],
  [
    "a time for something else stays",
    [{ operator: "Exists", key: "y", tolerationSeconds: 5 }, ...[NOT_READY, UNREACHABLE].map(forEver)],
    undefined,
  ],
  [
    "another effect does not count",
    [{ key: NOT_READY, operator: "Exists", effect: "NoSchedule" }, forEver(UNREACHABLE)],
    [{ key: NOT_READY, operator: "Exists", effect: "NoSchedule" }, forEver(UNREACHABLE), forEver(NOT_READY)],
  ],
] as const) {
  test(`tolerations: ${what}`, () => {
    const found = awayTolerations(pod(before === undefined ? {} : { tolerations: before }));
    assert.deepEqual(found, after);
    if (found !== undefined) assert.equal(awayTolerations(pod({ tolerations: found })), undefined, "once is enough");
  });
}

test("a pod is sent without what changes with its status", () => {
  const one = remotePod(
    pod({ a: 1 }, { phase: "Pending" }, { managedFields: [{}], resourceVersion: "7", generation: 2 }),
  );
  const two = remotePod(
    pod(
      { a: 1 },
      { phase: "Running", conditions: [{ type: "Ready", status: "True" }] },
      { resourceVersion: "8", generation: 2 },
    ),
  );
  assert.deepEqual(one, two);
  assert.deepEqual(Object.keys(one.metadata as object).sort(), ["generation", "name", "namespace", "uid"]);
  const gated = remotePod(pod({}, { conditions: [{ type: "example.com/gate", status: "True", lastProbeTime: null }] }));
  assert.deepEqual(gated.status, { conditions: [{ type: "example.com/gate", status: "True" }] });
});

test("a Node is sent without the hub's own annotations and without its heartbeat", () => {
  const node = (report: string, at: string): KubeObject => ({
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name: "n",
      annotations: { "picolet.io/node-report": report, "picolet.io/update-status": report, kept: "x" },
      labels: { l: "1" },
    },
    spec: { podCIDR: "10.0.0.0/24" },
    status: { conditions: [{ type: "Ready", status: "True", lastHeartbeatTime: at }] },
  });
  assert.deepEqual(remoteNode(node("a", "1")), remoteNode(node("b", "2")));
  assert.deepEqual((remoteNode(node("a", "1")).metadata as { annotations: unknown }).annotations, { kept: "x" });
});

test("what a board reports of its updates is an annotation of its Node, and changes with the report alone", () => {
  const report = { register: true, labels: {}, taints: [], providerID: "", status: {} };
  const metadata = { name: "n", uid: "u", labels: { "picolet.io/hub": "h" }, annotations: {} };
  const node: KubeObject = { apiVersion: "v1", kind: "Node", metadata };
  const annotationsOf = (updates: string | undefined): unknown => {
    const patch = nodePatch(node, { ...report, updates }, { node: "n", hub: "h" });
    return fieldsAt(fieldsAt(patch, "metadata"), "annotations")["picolet.io/update-status"];
  };
  assert.equal(annotationsOf('{"updates":[]}'), '{"updates":[]}');
  assert.equal(annotationsOf(undefined), undefined);
});

test("the status of the node is what is left without nulls and the conditions of others", () => {
  const conditions = [
    { type: "PodScheduled", status: "True" },
    { type: "Ready", status: "True", lastProbeTime: null },
    { type: "example.com/gate", status: "True" },
  ];
  const status = {
    phase: "Running",
    conditions,
    nominatedNodeName: "x",
    containerStatuses: [{ name: "a", started: null }],
  };
  assert.deepEqual(nodePodStatus(status), {
    phase: "Running",
    conditions: [{ type: "Ready", status: "True" }],
    containerStatuses: [{ name: "a" }],
  });
});

const READY = { type: "Ready", status: "False" };
const CONTAINERS = { type: "ContainersReady", status: "True" };
for (const [what, conditions, expected] of [
  ["False with its containers ready", [READY, CONTAINERS], true],
  ["True", [{ ...READY, status: "True" }, CONTAINERS], false],
  ["False for a reason of the pod's", [{ ...READY, reason: "ReadinessGatesNotReady" }, CONTAINERS], false],
  ["False with its containers not ready", [READY, { ...CONTAINERS, status: "False" }], false],
] as const) {
  test(`Ready ${what} is${expected ? "" : " not"} the doing of others`, () => {
    assert.equal(hasLostReadiness(pod({}, { phase: "Running", conditions })), expected);
    assert.equal(hasLostReadiness(pod({}, { phase: "Pending", conditions })), false);
    const gates = { readinessGates: [{ conditionType: "g" }] };
    assert.equal(hasLostReadiness(pod(gates, { phase: "Running", conditions })), false);
  });
}

test("a status patch takes away what the node no longer says, and nothing of others", () => {
  const current = {
    phase: "Running",
    message: "old",
    nominatedNodeName: "x",
    podIPs: [{ ip: "10.0.0.1" }],
    conditions: [
      { type: "Ready", status: "True", reason: "R" },
      { type: "PodResizePending", status: "True" },
      { type: "PodScheduled", status: "True" },
      { type: "example.com/gate", status: "True" },
    ],
  };
  const next = {
    phase: "Running",
    podIPs: [{ ip: "10.0.0.2" }],
    conditions: [
      { type: "Ready", status: "False" },
      { type: "PodScheduled", status: "True" },
      { type: "example.com/gate", status: "False" },
    ],
  };
  assert.deepEqual(podStatusPatch({ uid: "u", current, next, isMirror: false }), {
    metadata: { uid: "u" },
    status: {
      message: null,
      phase: "Running",
      podIPs: [{ $patch: "replace" }, { ip: "10.0.0.2" }],
      conditions: [
        { reason: null, type: "Ready", status: "False" },
        { $patch: "delete", type: "PodResizePending" },
      ],
    },
  });
  const mirror = podStatusPatch({ uid: "u", current: {}, next, isMirror: true }) as {
    status: { conditions: readonly object[] };
  };
  assert.ok(mirror.status.conditions.some((each) => (each as { type: string }).type === "PodScheduled"));
});

test("a mirror pod counts as scheduled from its start on, once", () => {
  const next = { startTime: "2026-01-01T00:00:00Z", conditions: [{ type: "Ready", status: "True" }] };
  const conditions = (current: object): unknown =>
    (podStatusPatch({ uid: "u", current: { ...current }, next, isMirror: true }).status as { conditions: unknown })
      .conditions;
  assert.deepEqual(conditions({}), [
    { type: "Ready", status: "True" },
    { type: "PodScheduled", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" },
  ]);
  assert.deepEqual(conditions({ conditions: [{ type: "PodScheduled", status: "True" }] }), [
    { type: "Ready", status: "True" },
  ]);
});

test("a volume is named by a claim that is bound to it, and by no other", () => {
  const [claim] = DATA_TYPES.filter(({ type }) => type.kind === "PersistentVolumeClaim");
  const bound = { ...pod({ volumeName: "disk" }), kind: "PersistentVolumeClaim", status: { phase: "Bound" } };
  assert.deepEqual(claim?.names(bound), ["PersistentVolume//disk"]);
  assert.deepEqual(claim?.names({ ...bound, status: { phase: "Pending" } }), []);
  assert.deepEqual(claim?.names({ ...bound, spec: {} }), []);
});

test("a volume of a CSI driver names the driver's object and the Secrets of the node's part alone", () => {
  const [volume] = DATA_TYPES.filter(({ type }) => type.kind === "PersistentVolume");
  const secret = (name: string) => ({ name, namespace: "storage" });
  const csi = {
    driver: "disk.example",
    volumeHandle: "v1",
    controllerPublishSecretRef: secret("controller"),
    nodeStageSecretRef: secret("stage"),
    nodePublishSecretRef: secret("publish"),
  };
  assert.deepEqual(volume?.names(pod({ csi })), [
    "CSIDriver//disk.example",
    "Secret/storage/stage",
    "Secret/storage/publish",
  ]);
  assert.deepEqual(volume?.names(pod({ hostPath: { path: "/x" } })), []);
  const digest = createHash("sha256").update("v1disk.examplenode-a").digest("hex");
  assert.equal(attachmentKey({ spec: { csi } }, "node-a"), `VolumeAttachment//csi-${digest}`);
  assert.equal(attachmentKey({ spec: {} }, "node-a"), undefined);
});

test("what a board reports of its CSI drivers becomes labels of its Node, as far as a node may set them", () => {
  const driver = {
    name: "disk.example",
    nodeID: "n1",
    count: 0,
    topology: {
      "disk.example/zone": "a",
      "node-restriction.kubernetes.io/x": "b",
      "kubernetes.io/hostname": "another",
    },
  };
  const labels = { "kubernetes.io/hostname": "n" };
  const report = { register: true, labels, taints: [], providerID: "", status: {}, csi: JSON.stringify([driver]) };
  const metadata = { name: "n", uid: "u", labels: { ...labels, "picolet.io/hub": "h" }, annotations: {} };
  const patch = nodePatch({ apiVersion: "v1", kind: "Node", metadata }, report, { node: "n", hub: "h" });
  assert.deepEqual(fieldsAt(fieldsAt(patch, "metadata"), "labels"), { "disk.example/zone": "a" });
  const annotations = fieldsAt(fieldsAt(patch, "metadata"), "annotations");
  assert.equal(annotations["csi.volume.kubernetes.io/nodeid"], '{"disk.example":"n1"}');
  for (const bad of ["{}", "[{}]", "[1]", "x", JSON.stringify([{ ...driver, count: -1 }])])
    assert.equal(parseCsiReport(bad), undefined, bad);
});

test("a report of expanded claims is read whole or not at all", () => {
  const claim = { namespace: "default", name: "a", uid: "u", capacity: "2Gi" };
  assert.deepEqual(parseExpandedClaims(JSON.stringify([claim])), [claim]);
  const bad = [{ ...claim, capacity: "much" }, { ...claim, name: "" }, { ...claim, uid: 7 }, null];
  for (const each of bad) assert.equal(parseExpandedClaims(JSON.stringify([claim, each])), undefined);
  assert.equal(parseExpandedClaims(JSON.stringify(Array(33).fill(claim))), undefined);
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
      for (const each of parseExpandedClaims(text) ?? []) assert.equal(typeof each.capacity, "string");
    }),
  );
});

test("a service is sent with its address and ports alone, and not without an address", () => {
  const ports = [{ name: "http", port: 80, protocol: "TCP", targetPort: 8080, nodePort: 30_000 }, "odd"];
  const service = (clusterIP: unknown): KubeObject =>
    pod({ type: "ClusterIP", clusterIP, ports, selector: { a: "b" } });
  assert.deepEqual(remoteService(service("10.96.0.9")), {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "p", namespace: "ns" },
    spec: { type: "ClusterIP", clusterIP: "10.96.0.9", ports: [{ name: "http", protocol: "TCP", port: 80 }, {}] },
  });
  for (const none of ["None", "", undefined, 7]) assert.equal(remoteService(service(none)), undefined);
});

test("no object of an API server, however odd, makes the hub fail", () => {
  const odd = fc.object({
    maxDepth: 4,
    key: fc.constantFrom(
      "containers",
      "env",
      "volumes",
      "name",
      "conditions",
      "type",
      "status",
      "tolerations",
      "ports",
      "a",
    ),
  });
  fc.assert(
    fc.property(odd, odd, (spec, status) => {
      const object = pod(spec, status);
      const stored = wholePod(object);
      assert.equal(stored.packed.hash.length, 16);
      const sent = remotePod(object, awayTolerations(object));
      assert.deepEqual(stored.packed.remote().object, JSON.parse(JSON.stringify(sent)));
      podStatusPatch({
        uid: "u",
        current: status as Record<string, unknown>,
        next: spec as Record<string, unknown>,
        isMirror: false,
      });
      storedNode({ ...object, kind: "Node" }, "hub", true);
      for (const { remote, names } of DATA_TYPES) {
        assert.equal(new PackedObject("a", remote(object)).hash.length, 16);
        names(object);
      }
      remoteService(object);
    }),
    { numRuns: 500 },
  );
});

test("a resource claim is sent as its allocation, without what was asked for", () => {
  const type = DATA_TYPES.find(({ type: { kind } }) => kind === "ResourceClaim");
  const allocation = { devices: { results: [{ request: "one", driver: "gpu.example.com", pool: "p", device: "d" }] } };
  const reservedFor = [{ resource: "pods", name: "p", uid: "u" }];
  const ownerReferences = [{ apiVersion: "v1", kind: "Pod", name: "p", uid: "u", controller: true }];
  const sent = type?.remote({
    apiVersion: "resource.k8s.io/v1",
    kind: "ResourceClaim",
    metadata: {
      ...{ name: "c", namespace: "ns", uid: "u2", resourceVersion: "9", labels: { a: "b" }, ownerReferences },
      annotations: { "resource.kubernetes.io/pod-claim-name": "gpu", other: "x" },
    },
    spec: { devices: { requests: [{ name: "one" }] } },
    status: { allocation, reservedFor, devices: [{ driver: "gpu.example.com" }] },
  });
  assert.deepEqual(sent, {
    apiVersion: "resource.k8s.io/v1",
    kind: "ResourceClaim",
    metadata: {
      ...{ name: "c", namespace: "ns", uid: "u2", ownerReferences },
      annotations: { "resource.kubernetes.io/pod-claim-name": "gpu" },
    },
    status: { allocation, reservedFor },
  });
});

test("a node's report leaves the claims of a pod's status as their controllers wrote them", () => {
  const current = {
    phase: "Pending",
    resourceClaimStatuses: [{ name: "gpu", resourceClaimName: "c" }],
    extendedResourceClaimStatus: { resourceClaimName: "c", requestMappings: [] },
  };
  const { status } = podStatusPatch({ uid: "u", current, next: { phase: "Running" }, isMirror: false });
  assert.deepEqual(Object.keys(status as object).sort(), ["conditions", "phase"]);
});
