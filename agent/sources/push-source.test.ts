import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { MemoryDesiredStore } from "@picolet/test/support/unit/store/memory-desired-store.ts";
import { samplePod } from "@picolet/test/support/unit/store/store-samples.ts";
import fc from "fast-check";
import type { PushOutcome } from "../core/pods/pushed-pods.ts";
import { PushSource } from "./push-source.ts";

const pod = (name: string, image = "busybox:1"): string =>
  `apiVersion: v1\nkind: Pod\nmetadata:\n  name: ${name}\nspec:\n  containers:\n  - name: app\n    image: ${image}\n`;
const NONE = '{"apiVersion":"v1","kind":"List","items":[]}';

function bench() {
  const store = new MemoryDesiredStore();
  const source = new PushSource({ clock: new VirtualClock(), log: new RecordedLog(), store }, { nodeName: "n" });
  const push = (text: string, dryRun = false): string[] => told(source.replace(text, { dryRun }));
  const wanted = (): string[] =>
    [...store.desired.current.pods.values()].map(({ source: from, pod: { metadata } }) => `${metadata.name} ${from}`);
  return { store, source, push, wanted };
}

const told = (outcome: PushOutcome): string[] =>
  outcome.ok
    ? outcome.answer.items.map(({ namespace, name, change }) => `${namespace}/${name} ${change}`)
    : outcome.problems.map(({ line, message }) => `${line ?? "-"} ${message}`);

test("what is pushed replaces what was, and the answer says what that means", () => {
  const { store, push, wanted } = bench();
  assert.deepEqual(push(`${pod("a")}---\n${pod("b")}`), ["default/a-n created", "default/b-n created"]);
  assert.deepEqual(wanted(), ["a-n push", "b-n push"]);
  const before = store.desired.current.pods;
  assert.deepEqual(push(`${pod("a")}---\n${pod("c")}---\n${pod("b", "busybox:2")}`), [
    "default/a-n unchanged",
    "default/c-n created",
    "default/b-n configured",
  ]);
  const [unchanged] = [...store.desired.current.pods.values()].filter((each) => before.has(each.uid));
  assert.equal(unchanged?.pod.metadata.name, "a-n");
  assert.deepEqual(push(NONE), ["default/a-n removed", "default/c-n removed", "default/b-n removed"]);
  assert.deepEqual(wanted(), []);
  assert.equal(store.desired.current.synced.has("push"), true);
});

test("a JSON list is taken too, and a pod says where it is from", () => {
  const { store, push } = bench();
  const item = { metadata: { name: "a" }, spec: { containers: [{ name: "app", image: "busybox:1" }] } };
  assert.deepEqual(push(JSON.stringify({ apiVersion: "v1", kind: "PodList", items: [item] })), ["default/a-n created"]);
  const [only] = store.desired.current.pods.values();
  assert.equal(only?.pod.metadata.annotations?.["kubernetes.io/config.source"], "push");
  assert.equal(only?.pod.spec.nodeName, "n");
});

test("a pod of a session stays beside pods that are applied, and is removed alone", async () => {
  const { source, push, wanted, store } = bench();
  push(pod("a"));
  assert.deepEqual(told(source.add(pod("session"))), ["default/session-n created"]);
  assert.deepEqual(wanted(), ["session-n push", "a-n push"]);
  assert.deepEqual(push(pod("b")), ["default/b-n created", "default/a-n removed"]);
  assert.deepEqual(push(NONE), ["default/b-n removed"]);
  assert.deepEqual(wanted(), ["session-n push"]);
  push(pod("a"));
  const session = [...store.desired.current.pods.values()].find(({ pod: each }) => each.metadata.name === "session-n");
  assert.ok(session);
  await source.remove(session.uid);
  assert.deepEqual(wanted(), ["a-n push"]);
  const { writes } = store;
  await source.remove(session.uid);
  assert.equal(store.writes, writes);
});

test("a session has one pod, with a name that no other pod has", () => {
  const { source, push, wanted } = bench();
  push(pod("a"));
  assert.deepEqual(told(source.add(`${pod("x")}---\n${pod("y")}`)), ["- Too many: a session has one pod"]);
  assert.deepEqual(told(source.add(pod("a", "busybox:2"))), [
    "- metadata.name: Duplicate value: pod default/a-n is that of edgectl apply",
  ]);
  source.add(pod("session"));
  assert.deepEqual(push(pod("session", "busybox:2")), [
    "- metadata.name: Duplicate value: pod default/session-n is that of edgectl debug node",
  ]);
  assert.deepEqual(wanted(), ["session-n push", "a-n push"]);
});

test("a dry run changes nothing", () => {
  const { store, push } = bench();
  assert.deepEqual(push(pod("a"), true), ["default/a-n created"]);
  assert.equal(store.writes, 0);
});

const REFUSED: readonly (readonly [why: string, text: string, problems: readonly string[]])[] = [
  ["nothing at all", "", ["- holds no pod; to remove all pods that were applied, apply a List without items"]],
  ["what is no YAML", "kind: [", ["1 "]],
  ["one bad pod among good ones", `${pod("a")}---\n${pod("b", '""')}`, ["17 spec.containers[0].image: Required value"]],
  ["two pods of one name", `${pod("a")}---\n${pod("a", "busybox:2")}`, ["10 metadata.name: Duplicate value"]],
  [
    "a pod that a manifest has",
    pod("taken"),
    ["- metadata.name: Duplicate value: pod default/taken-n is that of /m.yaml"],
  ],
];

for (const [why, text, problems] of REFUSED) {
  test(`${why} is refused whole, with the place`, () => {
    const { store, push, wanted } = bench();
    const own = samplePod("taken-n", { origin: "/m.yaml" });
    store.replace("file", 1, [own]);
    push(pod("old"));
    const found = push(text);
    assert.deepEqual(
      found.map((each, index) => each.slice(0, problems[index]?.length)),
      problems,
    );
    assert.deepEqual(wanted(), ["taken-n file", "old-n push"]);
  });
}

test("a disk that is full is said, and nothing has changed", () => {
  const { store, source } = bench();
  store.failure = new PicoletError("resource_exhausted", "cannot store the pods");
  assert.throws(() => source.replace(pod("a"), { dryRun: false }), /cannot store/);
});

test("whatever is sent, it is taken or refused", () => {
  const { source } = bench();
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.json(),
        fc.string().map((text) => pod("a") + text),
      ),
      (text) => {
        const outcome = source.replace(text, { dryRun: true });
        assert.ok(outcome.ok || outcome.problems.length > 0);
        const added = source.add(text);
        assert.ok(added.ok || added.problems.length > 0);
      },
    ),
  );
});
