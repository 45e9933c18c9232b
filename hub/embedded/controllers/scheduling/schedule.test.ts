import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import type { NodeObject, Taint } from "../../api/typed-objects.ts";
import { NodeInfo, podNeeds } from "./node-info.ts";
import { type ScheduleInput, schedule } from "./schedule.ts";

interface NodeSketch {
  readonly labels?: Readonly<Record<string, string>>;
  readonly taints?: readonly Taint[];
  readonly unschedulable?: boolean;
  readonly allocatable?: Readonly<Record<string, string>>;
  readonly images?: readonly string[];
  readonly pods?: readonly Pod[];
}

const ROOMY = { cpu: "4", memory: "4Gi", pods: "110" };

function nodeInfo(name: string, sketch: NodeSketch = {}): NodeInfo {
  const node: NodeObject = {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name, labels: { "kubernetes.io/hostname": name, ...sketch.labels } },
    spec: { taints: sketch.taints ?? [], unschedulable: sketch.unschedulable ?? false },
    status: {
      allocatable: sketch.allocatable ?? ROOMY,
      images: (sketch.images ?? []).map((image) => ({ names: [image] })),
    },
  };
  const info = new NodeInfo(node);
  for (const pod of sketch.pods ?? []) info.add(podNeeds(pod));
  return info;
}

let count = 0;
function podWith(spec: object = {}, labels: Readonly<Record<string, string>> = {}, container: object = {}): Pod {
  count += 1;
  const containers = [{ name: "app", image: "app:1", ...container }];
  return podOf({ containers, ...spec }, { name: `pod-${count}`, uid: `uid-${count}`, labels });
}

const requesting = (requests: Readonly<Record<string, string>>): Pod =>
  podWith({}, {}, { resources: { requests, limits: requests } });

const decide = (pod: Pod, nodes: readonly NodeInfo[], more: Partial<ScheduleInput> = {}): string => {
  const decision = schedule(
    { pod, nodes: new Map(nodes.map((info) => [info.node.metadata.name, info])), namespaceLabels: () => ({}), ...more },
    seededRandom(1),
  );
  return decision.kind === "fits" ? decision.node : decision.message;
};

const zone = (value: string): NodeSketch => ({ labels: { zone: value } });
const antiAffinity = (key: string, app: string): object => ({
  affinity: {
    podAntiAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [{ topologyKey: key, labelSelector: { matchLabels: { app } } }],
    },
  },
});
const affinityTo = (key: string, app: string): object => ({
  affinity: {
    podAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [{ topologyKey: key, labelSelector: { matchLabels: { app } } }],
    },
  },
});
const NO_EXECUTE: Taint = { key: "node.kubernetes.io/unreachable", effect: "NoExecute" };

describe("why a pod fits no node, in the scheduler's words", () => {
  const cases: readonly (readonly [name: string, pod: Pod, nodes: readonly NodeInfo[], message: string])[] = [
    ["there is none", podWith(), [], "no nodes available to schedule pods"],
    [
      "a cordoned node",
      podWith(),
      [nodeInfo("a", { unschedulable: true })],
      "0/1 nodes are available: 1 node(s) were unschedulable.",
    ],
    [
      "taints and memory",
      requesting({ memory: "5Gi" }),
      [nodeInfo("a"), nodeInfo("b", { taints: [NO_EXECUTE] }), nodeInfo("c", { taints: [NO_EXECUTE] })],
      "0/3 nodes are available: 1 Insufficient memory, 2 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.",
    ],
    [
      "a taint's value",
      podWith(),
      [nodeInfo("a", { taints: [{ key: "only", value: "gpu", effect: "NoSchedule" }] })],
      "0/1 nodes are available: 1 node(s) had untolerated taint {only: gpu}.",
    ],
    [
      "several resources of one node, and what others have taken",
      requesting({ cpu: "3", "ephemeral-storage": "1Gi", "example.com/gpu": "1" }),
      [nodeInfo("a", { pods: [requesting({ cpu: "1500m" })] })],
      "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient ephemeral-storage, 1 Insufficient example.com/gpu.",
    ],
    [
      "too many pods",
      podWith(),
      [nodeInfo("a", { allocatable: { ...ROOMY, pods: "1" }, pods: [podWith()] })],
      "0/1 nodes are available: 1 Too many pods.",
    ],
    [
      "a label that no node has",
      podWith({ nodeSelector: { arch: "arm64" } }),
      [nodeInfo("a"), nodeInfo("b")],
      "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
    ],
    [
      "a host port",
      podWith({}, {}, { ports: [{ containerPort: 80, hostPort: 8080 }] }),
      [
        nodeInfo("a", {
          pods: [podWith({}, {}, { ports: [{ containerPort: 1, hostPort: 8080, hostIP: "10.0.0.1" }] })],
        }),
      ],
      "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
    ],
    [
      "pods that it does not want beside it",
      podWith(antiAffinity("zone", "db")),
      [nodeInfo("a", { ...zone("1"), pods: [podWith({}, { app: "db" })] }), nodeInfo("b", zone("1"))],
      "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.",
    ],
    [
      "pods that do not want it",
      podWith({}, { app: "web" }),
      [nodeInfo("a", { pods: [podWith(antiAffinity("kubernetes.io/hostname", "web"))] })],
      "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.",
    ],
    [
      "pods that it needs and that are nowhere",
      podWith(affinityTo("zone", "db"), { app: "web" }),
      [nodeInfo("a", zone("1"))],
      "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.",
    ],
    [
      "spread",
      podWith(
        {
          topologySpreadConstraints: [
            {
              maxSkew: 1,
              topologyKey: "zone",
              whenUnsatisfiable: "DoNotSchedule",
              labelSelector: { matchLabels: { app: "w" } },
            },
          ],
        },
        { app: "w" },
      ),
      [
        nodeInfo("a", { ...zone("1"), pods: [podWith({}, { app: "w" })] }),
        nodeInfo("b", { ...zone("2"), unschedulable: true }),
        nodeInfo("c"),
      ],
      "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) didn't match pod topology spread constraints (missing required label), 1 node(s) were unschedulable.",
    ],
  ];
  for (const [name, pod, nodes, message] of cases) test(name, () => assert.equal(decide(pod, nodes), message));

  test("a volume that is not there", () => {
    const obstacle = 'persistentvolumeclaim "data" not found';
    assert.equal(decide(podWith(), [nodeInfo("a")], { obstacle }), `0/1 nodes are available: ${obstacle}.`);
  });
});

describe("where a pod goes", () => {
  const preferring = (key: string): object => ({
    affinity: {
      nodeAffinity: {
        preferredDuringSchedulingIgnoredDuringExecution: [
          { weight: 10, preference: { matchExpressions: [{ key, operator: "Exists" }] } },
        ],
      },
    },
  });
  const required = (...terms: readonly object[]): object => ({
    affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: terms } } },
  });
  const cases: readonly (readonly [name: string, pod: Pod, nodes: readonly NodeInfo[], node: string])[] = [
    [
      "to the emptier node",
      requesting({ cpu: "1" }),
      [nodeInfo("a", { pods: [requesting({ cpu: "2" })] }), nodeInfo("b")],
      "b",
    ],
    [
      "where there is less of what was never requested",
      podWith(),
      [nodeInfo("a", { pods: [podWith(), podWith()] }), nodeInfo("b")],
      "b",
    ],
    [
      "to the node it prefers",
      podWith(preferring("ssd")),
      [nodeInfo("a"), nodeInfo("b", { labels: { ssd: "" } })],
      "b",
    ],
    [
      "away from a taint to be avoided",
      podWith(),
      [
        nodeInfo("a", { taints: [{ key: "slow", effect: "PreferNoSchedule" }] }),
        nodeInfo("b", { pods: [requesting({ cpu: "3" })] }),
      ],
      "b",
    ],
    ["where its image is", podWith(), [nodeInfo("a", { images: ["app:1"] }), nodeInfo("b")], "a"],
    [
      "to the cordoned node that it tolerates",
      podWith({ tolerations: [{ key: "node.kubernetes.io/unschedulable", operator: "Exists", effect: "NoSchedule" }] }),
      [nodeInfo("a", { unschedulable: true })],
      "a",
    ],
    [
      "to the one node that it names, tainted others or not",
      podWith(required({ matchFields: [{ key: "metadata.name", operator: "In", values: ["b"] }] })),
      [nodeInfo("a"), nodeInfo("b")],
      "b",
    ],
    [
      "by numbers",
      podWith(required({ matchExpressions: [{ key: "cores", operator: "Gt", values: ["3"] }] })),
      [
        nodeInfo("a", { labels: { cores: "2" } }),
        nodeInfo("b", { labels: { cores: "10" } }),
        nodeInfo("c", { labels: { cores: "x" } }),
      ],
      "b",
    ],
    [
      "to the pods that it needs",
      podWith(affinityTo("zone", "db")),
      [nodeInfo("a", zone("1")), nodeInfo("b", { ...zone("2"), pods: [podWith({}, { app: "db" })] })],
      "b",
    ],
    [
      "to its group if there is one",
      podWith(affinityTo("zone", "db"), { app: "db" }),
      [nodeInfo("a", { ...zone("1"), pods: [podWith({}, { app: "db" })] }), nodeInfo("b", zone("2"))],
      "a",
    ],
    [
      "anywhere as the first of its group",
      podWith(affinityTo("zone", "db"), { app: "db" }),
      [nodeInfo("a"), nodeInfo("b", zone("2"))],
      "b",
    ],
    [
      "to another address of the same port",
      podWith({}, {}, { ports: [{ containerPort: 80, hostPort: 8080, hostIP: "10.0.0.2" }] }),
      [
        nodeInfo("a", {
          pods: [podWith({}, {}, { ports: [{ containerPort: 1, hostPort: 8080, hostIP: "10.0.0.1" }] })],
        }),
      ],
      "a",
    ],
  ];
  for (const [name, pod, nodes, node] of cases) test(name, () => assert.equal(decide(pod, nodes), node));

  test("an empty term selects no node", () => {
    assert.match(decide(podWith(required({})), [nodeInfo("a")]), /node affinity/);
  });

  test("a node has again what a pod that left had taken", () => {
    const first = requesting({ memory: "3Gi" });
    const node = nodeInfo("a", { pods: [first] });
    assert.match(decide(requesting({ memory: "2Gi" }), [node]), /Insufficient memory/);
    node.remove(first.metadata.uid ?? "");
    assert.equal(decide(requesting({ memory: "2Gi" }), [node]), "a");
    assert.equal(node.podCount, 0);
  });
});
