/** The oracle of the random mixes sees what it is there for: one thing wrong at a time. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type MixedPod, type PressureMix, pressureMix } from "./pressure-mixes.ts";
import { goesBefore, judge, type Observed, type PodAtEnd, type Told } from "./pressure-oracle.ts";

const pod = (name: string, change: Partial<MixedPod> = {}): MixedPod => ({
  ...{ name, source: "api", runtime: "container", priority: "normal", holdMiB: 8, requestMiB: 20, limitMiB: undefined },
  ...{ requestsDisk: true, usesUp: undefined, rate: 0 },
  ...change,
});
/** Beyond what it asks for and less important: it goes first. `good` does not go at all. */
const MIX: PressureMix = {
  seed: 0,
  pods: [
    pod("good"),
    pod("low", { priority: "low", requestMiB: undefined }),
    pod("bad", { usesUp: "memory", requestMiB: 8 }),
  ],
};
const MESSAGE = "The node was low on resource: memory. Threshold quantity: 46Mi, available: 43388Ki. ";
const ran: PodAtEnd = {
  ...{ phase: "Running", reason: undefined, message: undefined, restarts: 0, terminated: undefined },
  ...{ processesBefore: [10, 11], processesAfter: [10, 11] },
};
const went: PodAtEnd = {
  ...ran,
  phase: "Failed",
  reason: "Evicted",
  message: MESSAGE,
  terminated: "Error",
  processesAfter: [],
};
const told = (...all: readonly (readonly [reason: string, name: string, atMs: number])[]): readonly Told[] =>
  all.map(([reason, name, atMs]) => ({ reason, name, atMs }));
const BEGINS = ["NodeHasInsufficientMemory", "guest", 1_000] as const;
const LOW = ["Evicted", "low", 2_000] as const;
const BAD = ["Evicted", "bad", 3_000] as const;
const ENDS = ["NodeHasSufficientMemory", "guest", 9_000] as const;
const RIGHT: Observed = {
  told: told(BEGINS, LOW, BAD, ENDS),
  pods: new Map([
    ["good", ran],
    ["low", went],
    ["bad", went],
  ]),
  services: new Map([["picolet", [5, 5]]]),
  taintsSeen: new Set(["node.kubernetes.io/memory-pressure"]),
  taintsAfter: new Set(),
  transitionPeriodMs: 5_000,
};
const withPod = (name: string, end: PodAtEnd): Partial<Observed> => ({ pods: new Map([...RIGHT.pods, [name, end]]) });

test("what is as it has to be is right: evicted in order, or killed by the kernel first", () => {
  assert.deepEqual(judge(MIX, RIGHT), []);
  const killed = { ...went, reason: undefined, message: undefined, terminated: "OOMKilled" };
  const pods = new Map([
    ["good", ran],
    ["low", ran],
    ["bad", killed],
  ]);
  assert.deepEqual(judge(MIX, { ...RIGHT, told: [], pods, taintsSeen: new Set() }), []);
});

const WRONG: readonly (readonly [what: string, change: Partial<Observed>, problem: RegExp])[] = [
  ["one that behaves is evicted", withPod("good", went), /^good is Failed/],
  [
    "one that behaves is killed and comes back",
    withPod("good", { ...ran, restarts: 1 }),
    /^good was started again, 1 times/,
  ],
  [
    "it has other processes",
    withPod("good", { ...ran, processesAfter: [12] }),
    /^good had the processes 10,11, and has 12/,
  ],
  ["the agent ended", { services: new Map([["picolet", [5, 6]]]) }, /^picolet did not live on/],
  ["the agent is not there", { services: new Map([["picolet", [0, 0]]]) }, /^picolet did not live on/],
  ["the wrong order", { told: told(BEGINS, BAD, LOW, ENDS) }, /^bad was evicted while low was there/],
  [
    "one more after it was over",
    { told: told(BEGINS, LOW, BAD, ["Evicted", "good", 4_000], ENDS) },
    /^good was evicted after bad/,
  ],
  ["what misbehaves goes on", withPod("bad", ran), /^bad was to be evicted, and is Running/],
  [
    "a process of it stays",
    withPod("bad", { ...went, processesAfter: [11] }),
    /^bad has ended, but 11 are still there/,
  ],
  ["no figures", withPod("bad", { ...went, message: "Evicted" }), /^bad does not say for what/],
  [
    "another resource",
    withPod("bad", { ...went, message: MESSAGE.replace("memory", "inodes") }),
    /^bad does not say for what/,
  ],
  ["evicted twice", { told: told(BEGINS, LOW, BAD, BAD, ENDS) }, /^bad was told to be evicted 2 times/],
  ["no condition", { told: told(LOW, BAD, ENDS) }, /NodeHasInsufficientMemory was never told/],
  ["a condition that stays", { told: told(BEGINS, LOW, BAD) }, /NodeHasSufficientMemory was never told/],
  [
    "a condition that goes too soon",
    { told: told(BEGINS, LOW, BAD, ["NodeHasSufficientMemory", "guest", 4_000]) },
    /lasted 3000 ms, less than the transition period/,
  ],
  ["no taint", { taintsSeen: new Set() }, /never had the taint/],
  ["a taint that stays", { taintsAfter: RIGHT.taintsSeen }, /still has the taint/],
];

for (const [what, change, problem] of WRONG) {
  test(`it sees ${what}`, () => {
    const problems = judge(MIX, { ...RIGHT, ...change });
    assert.ok(
      problems.some((each) => problem.test(each)),
      problems.join("\n"),
    );
  });
}

test("of two that misbehave the less important may go for what the other uses up, not the other way round", () => {
  const pids = MESSAGE.replace("memory", "pids");
  const seen = (bad: string): Observed => ({
    ...RIGHT,
    told: told(
      ["NodeHasInsufficientPID", "guest", 1_000],
      ["Evicted", "files", 2_000],
      ["Evicted", "forks", 3_000],
      ["NodeHasSufficientPID", "guest", 9_000],
    ),
    pods: new Map([
      ["files", { ...went, message: bad }],
      ["forks", { ...went, message: pids }],
    ]),
    taintsSeen: new Set(["node.kubernetes.io/pid-pressure"]),
  });
  const mixOf = (priority: MixedPod["priority"]): PressureMix => ({
    seed: 0,
    pods: [pod("forks", { usesUp: "pids" }), pod("files", { usesUp: "inodes", priority })],
  });
  assert.deepEqual(judge(mixOf("low"), seen(pids)), []);
  assert.match(judge(mixOf("high"), seen(pids)).join("\n"), /^files does not say for what/);
  const own = judge(mixOf("low"), seen(MESSAGE.replace("memory", "inodes")));
  assert.match(own.join("\n"), /^a pod was evicted for inodes, but NodeHasDiskPressure was never told/);
});

test("who goes before whom is what Kubernetes documents", () => {
  const bad = pod("bad", { usesUp: "memory" });
  const before = (change: Partial<MixedPod>, resource: Parameters<typeof goesBefore>[2] = "memory"): string =>
    goesBefore(pod("other", { priority: "low", ...change }), bad, resource);
  assert.equal(before({}), "never", "within what it asks for");
  assert.equal(before({ requestMiB: 1 }), "surely");
  assert.equal(before({ requestMiB: undefined }), "surely");
  assert.equal(before({ requestMiB: undefined, priority: "normal" }), "never", "the larger consumer goes first");
  assert.equal(before({ requestMiB: undefined, source: "static" }), "never");
  assert.equal(before({}, "pids"), "surely", "processes cannot be asked for");
  assert.equal(before({}, "disk"), "never");
  assert.equal(before({ requestsDisk: false }, "disk"), "maybe");
  assert.equal(before({}, "inodes"), "maybe");
});

test("a mix is the same for the same seed, and mixes have everything in them", () => {
  assert.deepEqual(pressureMix(7), pressureMix(7));
  const pods = Array.from({ length: 50 }, (_, index) => pressureMix(index + 1)).flatMap((mix) => {
    assert.ok(mix.pods.length >= 2 && mix.pods.length <= 8, `${mix.pods.length} pods`);
    return mix.pods;
  });
  for (const resource of ["memory", "disk", "inodes", "pids"])
    assert.ok(
      pods.some(({ usesUp }) => usesUp === resource),
      resource,
    );
  assert.ok(pods.some(({ usesUp, rate }) => usesUp === "memory" && rate === 100));
  assert.ok(pods.some(({ runtime }) => runtime === "component"));
  assert.ok(pods.some(({ source }) => source === "static"));
});
