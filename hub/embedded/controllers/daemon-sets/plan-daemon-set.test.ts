import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import type { NodeObject, Taint } from "../../api/typed-objects.ts";
import { type DaemonSet, daemonPod } from "./daemon-set.ts";
import { type DaemonSetPlan, planDaemonSet } from "./plan-daemon-set.ts";

const NOW_MS = Date.parse("2026-01-01T01:00:00Z");
const ended = (pods: readonly Pod[]): string[] => pods.map(({ metadata }) => metadata.name).sort();

interface SetSketch {
  readonly strategy?: DaemonSet["spec"]["updateStrategy"];
  readonly minReadySeconds?: number;
  readonly nodeSelector?: Readonly<Record<string, string>>;
}

const rolling = (maxUnavailable: number | string, maxSurge: number | string): DaemonSet["spec"]["updateStrategy"] => ({
  type: "RollingUpdate",
  rollingUpdate: { maxUnavailable, maxSurge },
});

function daemonSet({ strategy = rolling(1, 0), minReadySeconds = 0, nodeSelector }: SetSketch = {}): DaemonSet {
  const containers = [{ name: "app", image: "app:1" }];
  const template = {
    metadata: { labels: { app: "x" } },
    spec: { containers, ...(nodeSelector ? { nodeSelector } : {}) },
  };
  return {
    apiVersion: "apps/v1",
    kind: "DaemonSet",
    metadata: { name: "set", namespace: "default", uid: "set-uid", generation: 2 },
    spec: { selector: { matchLabels: { app: "x" } }, template, minReadySeconds, updateStrategy: strategy },
  } as unknown as DaemonSet;
}

const node = (
  name: string,
  taints: readonly Taint[] = [],
  labels: Readonly<Record<string, string>> = {},
): NodeObject => ({
  apiVersion: "v1",
  kind: "Node",
  metadata: { name, labels },
  spec: { taints },
});

interface PodSketch {
  readonly hash?: string;
  readonly ready?: boolean;
  readonly readySince?: string;
  readonly phase?: string;
  readonly deleted?: boolean;
  readonly age?: number;
  readonly assigned?: boolean;
}

function podOn(nodeName: string, name: string, sketch: PodSketch = {}): Pod {
  const { hash = "new", ready = true, readySince = "2026-01-01T00:00:00Z", phase = "Running", age = 0 } = sketch;
  const parsed = parsePod(daemonPod(daemonSet(), nodeName, hash, name));
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
  const { metadata, spec } = parsed.pod;
  return {
    ...parsed.pod,
    metadata: {
      ...metadata,
      uid: name,
      creationTimestamp: `2026-01-01T00:00:${String(50 - age).padStart(2, "0")}Z`,
      ...(sketch.deleted ? { deletionTimestamp: "2026-01-01T00:59:00Z" } : {}),
    },
    spec: sketch.assigned === false ? spec : { ...spec, nodeName },
    status: {
      phase: phase as "Running",
      conditions: ready ? [{ type: "Ready", status: "True", lastTransitionTime: readySince }] : [],
    },
  };
}

const plan = (set: DaemonSet, nodes: readonly NodeObject[], pods: readonly Pod[]): DaemonSetPlan =>
  planDaemonSet({ set, nodes, pods, hash: "new", nowMs: NOW_MS });

describe("one pod on each node that fits", () => {
  const unreachable: Taint = { key: "node.kubernetes.io/unreachable", effect: "NoExecute" };

  test("nodes without one get one, in any condition", () => {
    const cordoned: Taint = { key: "node.kubernetes.io/unschedulable", effect: "NoSchedule" };
    const { create } = plan(daemonSet(), [node("a"), node("b", [unreachable]), node("c", [cordoned])], []);
    assert.deepEqual(create, ["a", "b", "c"]);
  });

  test("a taint of the user's keeps new pods away, and only NoExecute ends those that are there", () => {
    const soft: Taint = { key: "only", value: "db", effect: "NoSchedule" };
    const hard: Taint = { ...soft, effect: "NoExecute" };
    const nodes = [node("a", [soft]), node("b", [soft]), node("c", [hard])];
    const made = plan(daemonSet(), nodes, [podOn("b", "b1"), podOn("c", "c1")]);
    assert.deepEqual(made.create, []);
    assert.deepEqual(ended(made.delete), ["c1"]);
    assert.equal(made.status.numberMisscheduled, 2);
    assert.equal(made.status.desiredNumberScheduled, 0);
  });

  test("a node that no longer has the label loses its pod", () => {
    const set = daemonSet({ nodeSelector: { gpu: "yes" } });
    const made = plan(set, [node("a", [], { gpu: "yes" }), node("b")], [podOn("a", "a1"), podOn("b", "b1")]);
    assert.deepEqual([ended(made.delete), made.create], [["b1"], []]);
  });

  test("while one is being deleted, no other is made", () => {
    const made = plan(daemonSet(), [node("a")], [podOn("a", "a1", { deleted: true })]);
    assert.deepEqual([made.create, ended(made.delete)], [[], []]);
  });

  test("of two the younger goes; the one that never got a node goes before", () => {
    const made = plan(daemonSet(), [node("a")], [podOn("a", "young", { age: 1 }), podOn("a", "old", { age: 9 })]);
    assert.deepEqual(ended(made.delete), ["young"]);
    const other = plan(
      daemonSet(),
      [node("a")],
      [podOn("a", "waiting", { age: 9, assigned: false }), podOn("a", "placed")],
    );
    assert.deepEqual(ended(other.delete), ["waiting"]);
  });

  test("a failed pod is replaced, a succeeded one deleted", () => {
    const pods = [
      podOn("a", "failed", { phase: "Failed", ready: false }),
      podOn("b", "done", { phase: "Succeeded", ready: false }),
    ];
    const made = plan(daemonSet(), [node("a"), node("b")], pods);
    assert.deepEqual([ended(made.replace), ended(made.delete)], [["failed"], ["done"]]);
  });

  test("a pod for a node that is gone goes if it never got there", () => {
    const pods = [podOn("gone", "waiting", { assigned: false }), podOn("gone", "there")];
    assert.deepEqual(ended(plan(daemonSet(), [], pods).delete), ["waiting"]);
  });
});

describe("a rolling update", () => {
  const nodes = ["a", "b", "c", "d"].map((name) => node(name));
  const old = (name: string, more: PodSketch = {}): Pod => podOn(name, `${name}-old`, { hash: "old", ...more });
  const fresh = (name: string, more: PodSketch = {}): Pod => podOn(name, `${name}-new`, more);
  const cases: readonly (readonly [
    string,
    DaemonSet["spec"]["updateStrategy"],
    readonly Pod[],
    readonly string[],
    readonly string[],
  ])[] = [
    ["ends one at a time", rolling(1, 0), ["a", "b", "c", "d"].map((name) => old(name)), ["a-old"], []],
    ["ends half of them", rolling("50%", 0), ["a", "b", "c", "d"].map((name) => old(name)), ["a-old", "b-old"], []],
    [
      "waits for the new pod to be ready",
      rolling(1, 0),
      [fresh("a", { ready: false }), old("b"), old("c"), old("d")],
      [],
      [],
    ],
    ["goes on when it is", rolling(1, 0), [fresh("a"), old("b"), old("c"), old("d")], ["b-old"], []],
    [
      "replaces what does not work anyway at once",
      rolling(1, 0),
      [old("a", { ready: false }), old("b", { ready: false }), old("c"), fresh("d", { ready: false })],
      ["a-old", "b-old"],
      [],
    ],
    ["counts a node without a pod as unavailable", rolling(1, 0), [old("a"), old("b"), old("c")], [], ["d"]],
    [
      "does nothing by itself with OnDelete",
      { type: "OnDelete" },
      ["a", "b", "c", "d"].map((name) => old(name)),
      [],
      [],
    ],
    ["surges", rolling(0, 2), ["a", "b", "c", "d"].map((name) => old(name)), [], ["a", "b"]],
    [
      "ends the old when the surged one is ready",
      rolling(0, 1),
      [old("a"), fresh("a"), old("b"), old("c"), old("d")],
      ["a-old"],
      ["b"],
    ],
    [
      "waits for the surged one",
      rolling(0, 1),
      [old("a"), fresh("a", { ready: false }), old("b"), old("c"), old("d")],
      [],
      [],
    ],
    [
      "of two that are not ready keeps the new",
      rolling(0, 1),
      [old("a", { ready: false }), fresh("a", { ready: false }), fresh("b"), fresh("c"), fresh("d")],
      ["a-old"],
      [],
    ],
  ];
  for (const [name, strategy, pods, expectedEnded, expectedMade] of cases) {
    test(name, () => {
      const made = plan(daemonSet({ strategy }), nodes, pods);
      assert.deepEqual([ended(made.delete), made.create], [expectedEnded, expectedMade]);
    });
  }

  test("boards that come back together are updated within the limit", () => {
    const away = ["a", "b"].map((name) => ({
      ...node(name),
      status: { conditions: [{ type: "Ready", status: "Unknown" }] },
    }));
    const lost = { ready: false };
    const apart = plan(daemonSet(), [...away, node("c")], [old("a", lost), old("b", lost), old("c")]);
    assert.deepEqual([ended(apart.delete), apart.deferred, apart.status.numberUnavailable], [["c-old"], 2, 2]);
    const back = plan(daemonSet(), [node("a"), node("b"), node("c")], [old("a"), old("b"), fresh("c")]);
    assert.deepEqual([ended(back.delete), back.deferred], [["a-old"], 0]);
  });

  test("minReadySeconds holds it up, and says when to look again", () => {
    const readySince = new Date(NOW_MS - 10_000).toISOString();
    const made = plan(daemonSet({ minReadySeconds: 30 }), nodes, [
      fresh("a", { readySince }),
      old("b"),
      old("c"),
      old("d"),
    ]);
    assert.deepEqual([ended(made.delete), made.wakeInMs], [[], 20_000]);
    assert.deepEqual([made.status.numberReady, made.status.numberAvailable, made.status.numberUnavailable], [4, 3, 1]);
  });

  test("the status counts as kubectl's columns show it", () => {
    const { status } = plan(daemonSet(), nodes, [fresh("a"), old("b"), fresh("c", { ready: false })]);
    assert.deepEqual(status, {
      currentNumberScheduled: 3,
      numberMisscheduled: 0,
      desiredNumberScheduled: 4,
      numberReady: 2,
      updatedNumberScheduled: 2,
      numberAvailable: 2,
      numberUnavailable: 2,
    });
  });
});

test("a daemon pod names its node, bears with its node's troubles and belongs to its set", () => {
  const parsed = parsePod(daemonPod(daemonSet(), "a", "hash", "set-x"));
  assert.ok(parsed.ok);
  const { metadata, spec } = parsed.pod;
  assert.deepEqual(metadata.labels, { app: "x", "controller-revision-hash": "hash", "pod-template-generation": "2" });
  assert.deepEqual(metadata.ownerReferences, [
    {
      apiVersion: "apps/v1",
      kind: "DaemonSet",
      name: "set",
      uid: "set-uid",
      controller: true,
      blockOwnerDeletion: true,
    },
  ]);
  assert.deepEqual(spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution, {
    nodeSelectorTerms: [{ matchFields: [{ key: "metadata.name", operator: "In", values: ["a"] }] }],
  });
  assert.deepEqual(
    spec.tolerations?.map(({ key, effect }) => `${key}:${effect}`),
    [
      "node.kubernetes.io/not-ready:NoExecute",
      "node.kubernetes.io/unreachable:NoExecute",
      "node.kubernetes.io/disk-pressure:NoSchedule",
      "node.kubernetes.io/memory-pressure:NoSchedule",
      "node.kubernetes.io/pid-pressure:NoSchedule",
      "node.kubernetes.io/unschedulable:NoSchedule",
    ],
  );
});
