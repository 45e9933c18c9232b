/** The cells of kubectl's tables. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ApiObject } from "../api/resource-definition.ts";
import { embeddedResources } from "../embedded-resources.ts";

const NOW = new Date("2026-01-01T01:00:00Z");
const definitions = embeddedResources({ serviceAccountTokens: false });
const CREATED = "2026-01-01T00:00:00Z";

function row(plural: string, object: object, isWide = false): Record<string, unknown> {
  const definition = definitions.find((each) => each.plural === plural);
  assert.ok(definition?.columns, plural);
  const full = {
    apiVersion: "v1",
    kind: definition.kind,
    metadata: { name: "x", namespace: "default", creationTimestamp: CREATED },
    ...object,
  } as ApiObject;
  const shown = definition.columns.filter(({ priority = 0 }) => isWide || priority === 0);
  return Object.fromEntries(shown.map((column) => [column.name, column.value(full, NOW)]));
}

const containers = [{ name: "a" }, { name: "b" }];
const running = (name: string, more: object = {}): object => ({
  ...{ name, image: "i", imageID: "", ready: true, restartCount: 0 },
  ...{ state: { running: { startedAt: CREATED } }, lastState: {} },
  ...more,
});
const waiting = (name: string, reason: string, more: object = {}): object =>
  running(name, { ready: false, state: { waiting: { reason } }, ...more });

describe("pods", () => {
  const lastEnd = { lastState: { terminated: { exitCode: 1, finishedAt: "2026-01-01T00:55:00Z" } }, restartCount: 3 };
  const cases: readonly (readonly [string, object, readonly [string, string, string]])[] = [
    ["pending", { status: { phase: "Pending" } }, ["0/2", "Pending", "0"]],
    [
      "running",
      { status: { phase: "Running", containerStatuses: [running("a"), running("b")] } },
      ["2/2", "Running", "0"],
    ],
    [
      "crashing",
      { status: { phase: "Running", containerStatuses: [running("a"), waiting("b", "CrashLoopBackOff", lastEnd)] } },
      ["1/2", "CrashLoopBackOff", "3 (5m ago)"],
    ],
    [
      "waiting for its init containers",
      {
        spec: { containers, initContainers: [{ name: "i" }, { name: "j" }] },
        status: { phase: "Pending", initContainerStatuses: [waiting("i", "PodInitializing")] },
      },
      ["0/2", "Init:0/2", "0"],
    ],
    [
      "being deleted",
      {
        metadata: { name: "x", deletionTimestamp: CREATED },
        status: { phase: "Running", containerStatuses: [running("a"), running("b")] },
      },
      ["2/2", "Terminating", "0"],
    ],
    [
      "behind a gate",
      {
        status: {
          phase: "Pending",
          conditions: [{ type: "PodScheduled", status: "False", reason: "SchedulingGated" }],
        },
      },
      ["0/2", "SchedulingGated", "0"],
    ],
    [
      "a status by hand without states",
      { status: { phase: "Running", containerStatuses: [{ name: "a", ready: true }] } },
      ["0/2", "Running", "0"],
    ],
    ["no status at all", {}, ["0/2", "Pending", "0"]],
  ];
  for (const [name, object, [ready, status, restarts]] of cases) {
    test(name, () => {
      const cells = row("pods", { spec: { containers }, ...object });
      assert.deepEqual([cells.Ready, cells.Status, cells.Restarts], [ready, status, restarts]);
    });
  }

  test("wide", () => {
    const spec = { containers, nodeName: "n", readinessGates: [{ conditionType: "a/b" }, { conditionType: "c/d" }] };
    const status = { phase: "Running", podIP: "10.0.0.1", conditions: [{ type: "c/d", status: "True" }] };
    const {
      IP,
      Node: node,
      "Nominated Node": nominated,
      "Readiness Gates": gates,
    } = row("pods", { spec, status }, true);
    assert.deepEqual([IP, node, nominated, gates], ["10.0.0.1", "n", "<none>", "1/2"]);
  });
});

const cases: readonly (readonly [plural: string, object: object, cells: Record<string, unknown>])[] = [
  [
    "nodes",
    {
      metadata: { name: "x", labels: { "node-role.kubernetes.io/edge": "", "kubernetes.io/role": "worker" } },
      spec: { unschedulable: true },
      status: { conditions: [{ type: "Ready", status: "Unknown" }], nodeInfo: { kubeletVersion: "v1" } },
    },
    { Name: "x", Status: "NotReady,SchedulingDisabled", Roles: "edge,worker", Age: "<unknown>", Version: "v1" },
  ],
  ["nodes", {}, { Name: "x", Status: "Unknown", Roles: "<none>", Age: "60m", Version: "" }],
  ["namespaces", { status: { phase: "Active" } }, { Name: "x", Status: "Active", Age: "60m" }],
  ["configmaps", { data: { a: "1" }, binaryData: { b: "" } }, { Name: "x", Data: 2, Age: "60m" }],
  ["secrets", { type: "Opaque", data: { a: "" } }, { Name: "x", Type: "Opaque", Data: 1, Age: "60m" }],
  ["serviceaccounts", {}, { Name: "x", Secrets: 0, Age: "60m" }],
  [
    "daemonsets",
    {
      spec: { template: { spec: { nodeSelector: { b: "2", a: "1" } } } },
      status: { desiredNumberScheduled: 3, currentNumberScheduled: 2, numberReady: 1, updatedNumberScheduled: 2 },
    },
    {
      Name: "x",
      Desired: 3,
      Current: 2,
      Ready: 1,
      "Up-to-date": 2,
      Available: 0,
      "Node Selector": "a=1,b=2",
      Age: "60m",
    },
  ],
  [
    "controllerrevisions",
    {
      metadata: {
        name: "x",
        creationTimestamp: CREATED,
        ownerReferences: [{ apiVersion: "apps/v1", kind: "DaemonSet", name: "d", uid: "u", controller: true }],
      },
      revision: 4,
    },
    { Name: "x", Controller: "daemonset.apps/d", Revision: 4, Age: "60m" },
  ],
  ["leases", { spec: { holderIdentity: "me" } }, { Name: "x", Holder: "me", Age: "60m" }],
  [
    "certificatesigningrequests",
    {
      spec: { signerName: "s.io/x", username: "u", expirationSeconds: 3600 },
      status: { certificate: "AA==", conditions: [{ type: "Approved" }] },
    },
    {
      Name: "x",
      Age: "60m",
      SignerName: "s.io/x",
      Requestor: "u",
      RequestedDuration: "60m",
      Condition: "Approved,Issued",
    },
  ],
  [
    "poddisruptionbudgets",
    { spec: { maxUnavailable: "50%" }, status: { disruptionsAllowed: 2 } },
    { Name: "x", "Min Available": "N/A", "Max Unavailable": "50%", "Allowed Disruptions": 2, Age: "60m" },
  ],
  ["runtimeclasses", { handler: "wasm" }, { Name: "x", Handler: "wasm", Age: "60m" }],
  [
    "priorityclasses",
    { value: 7, preemptionPolicy: "Never" },
    { Name: "x", Value: 7, "Global-Default": false, Age: "60m", PreemptionPolicy: "Never" },
  ],
  [
    "services",
    {
      spec: {
        type: "LoadBalancer",
        ports: [
          { port: 80, nodePort: 30080, protocol: "TCP" },
          { port: 53, protocol: "UDP" },
        ],
      },
    },
    {
      Name: "x",
      Type: "LoadBalancer",
      "Cluster-IP": "<none>",
      "External-IP": "<pending>",
      "Port(s)": "80:30080/TCP,53/UDP",
      Age: "60m",
    },
  ],
  [
    "endpoints",
    { subsets: [{ addresses: [{ ip: "10.0.0.1" }, { ip: "fd00::1" }], ports: [{ port: 80 }, { port: 81 }] }] },
    { Name: "x", Endpoints: "10.0.0.1:80,10.0.0.1:81,[fd00::1]:80 + 1 more...", Age: "60m" },
  ],
  [
    "persistentvolumes",
    {
      spec: {
        ...{ capacity: { storage: "1Gi" }, accessModes: ["ReadWriteMany", "ReadWriteOnce"], storageClassName: "local" },
        ...{ persistentVolumeReclaimPolicy: "Retain", claimRef: { namespace: "n", name: "c" } },
      },
      status: { phase: "Bound" },
    },
    {
      ...{
        Name: "x",
        Capacity: "1Gi",
        "Access Modes": "RWO,RWX",
        "Reclaim Policy": "Retain",
        Status: "Bound",
        Claim: "n/c",
      },
      ...{ StorageClass: "local", VolumeAttributesClass: "<unset>", Reason: "", Age: "60m" },
    },
  ],
  [
    "rolebindings",
    { roleRef: { kind: "ClusterRole", name: "view" } },
    { Name: "x", Role: "ClusterRole/view", Age: "60m" },
  ],
  ["clusterroles", {}, { Name: "x", "Created At": CREATED }],
  [
    "events",
    {
      ...{
        type: "Warning",
        reason: "BackOff",
        message: " text\n",
        firstTimestamp: CREATED,
        lastTimestamp: "2026-01-01T00:59:30Z",
      },
      involvedObject: { kind: "Pod", name: "web" },
    },
    { "Last Seen": "30s", Type: "Warning", Reason: "BackOff", Object: "pod/web", Message: "text" },
  ],
];

for (const [plural, object, cells] of cases) {
  test(`${plural}: ${Object.values(cells).slice(0, 3).join(" ")}`, () => assert.deepEqual(row(plural, object), cells));
}

test("a daemon set's wide columns", () => {
  const selector = { matchLabels: { app: "x" }, matchExpressions: [{ key: "a", operator: "In", values: ["2", "1"] }] };
  const template = {
    spec: {
      containers: [
        { name: "one", image: "i:1" },
        { name: "two", image: "i:2" },
      ],
    },
  };
  const { Containers, Images, Selector } = row("daemonsets", { spec: { selector, template } }, true);
  assert.deepEqual([Containers, Images, Selector], ["one,two", "i:1,i:2", "a in (1,2),app=x"]);
});
