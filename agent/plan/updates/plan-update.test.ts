import assert from "node:assert/strict";
import { test } from "node:test";
import type { UpdateKind } from "@picolet/protocol/updates/node-updates.ts";
import * as fc from "fast-check";
import { planUpdate, type UpdateFacts, type UpdateStep } from "./plan-update.ts";
import { begin, isOver, transition, type UpdateEvent, type UpdatePhase, type UpdateRecord } from "./update-state.ts";

const NOTHING = { os: "", agent: "", configuration: "" };
const FACTS: UpdateFacts = {
  asked: NOTHING,
  records: new Map(),
  obstacles: NOTHING,
  window: undefined,
  minute: 12 * 60,
  holds: [],
  shortage: "",
  backingOff: new Set(),
  nowMs: 1000,
};
const NIGHT = { fromMinute: 120, toMinute: 300 };

const record = (kind: UpdateKind, phase: UpdatePhase, more: Partial<UpdateRecord> = {}): UpdateRecord => ({
  ...{ kind, target: "r/os:2", asked: "r/os:2", phase, message: "", sinceMs: 1 },
  ...more,
});
const PREPARED: UpdatePhase = { kind: "prepared", version: "2", slot: "B" };
const TRIAL: UpdatePhase = { kind: "trial", version: "2", slot: "B", id: "t" };
const FETCHING: UpdatePhase = { kind: "fetching", isInstalling: false, failures: 0 };
const recordsOf = (...all: readonly UpdateRecord[]) => new Map(all.map((each) => [each.kind, each]));
const asked = (os: string, agent = "", configuration = "") => ({ os, agent, configuration });

/** The step in short. */
function brief(step: UpdateStep): string {
  switch (step.kind) {
    case "record":
      return `record ${step.record.kind} ${step.record.target} ${step.record.phase.kind}${step.began ? " began" : ""}`;
    case "drop":
      return `drop ${step.of}`;
    case "wait":
      return `wait ${step.record.kind} ${step.state}: ${step.message}`;
    case "nothing":
      return "nothing";
    default:
      return `${step.kind} ${step.record.kind}`;
  }
}

const CASES: readonly [name: string, facts: Partial<UpdateFacts>, step: string][] = [
  ["nothing is asked", {}, "nothing"],
  ["a wish begins an update", { asked: asked("r/os:2") }, "record os r/os:2 fetching began"],
  [
    "a wish that the board cannot carry out has failed, with the reason",
    { asked: asked("r/os:2"), obstacles: { ...NOTHING, os: "no RAUC" } },
    "record os r/os:2 failed began",
  ],
  [
    "the same wish begins nothing again after it was taken back",
    { asked: asked("r/os:2"), records: recordsOf(record("os", { kind: "rolledBack" })) },
    "nothing",
  ],
  [
    "another wish does",
    { asked: asked("r/os:3"), records: recordsOf(record("os", { kind: "rolledBack" })) },
    "record os r/os:3 fetching began",
  ],
  ["a wish that is withdrawn before its trial is dropped", { records: recordsOf(record("os", PREPARED)) }, "drop os"],
  [
    "one that is over stays shown, and may be asked for again",
    { records: recordsOf(record("os", { kind: "failed" })) },
    "record os r/os:2 failed",
  ],
  [
    "during a trial nothing else begins",
    { asked: asked("r/os:3", "r/agent:1"), records: recordsOf(record("os", TRIAL)) },
    "judge os",
  ],
  ["a fetch that is due", { asked: asked("r/os:2"), records: recordsOf(record("os", FETCHING)) }, "fetch os"],
  [
    "a fetch that failed a moment ago",
    {
      asked: asked("r/os:2"),
      records: recordsOf(record("os", { ...FETCHING, failures: 1 }, { message: "no route" })),
      backingOff: new Set<UpdateKind>(["os"]),
    },
    "wait os fetching: no route",
  ],
  [
    "no large write on a day without budget",
    { asked: asked("r/os:2"), records: recordsOf(record("os", FETCHING)), shortage: "flash" },
    "wait os fetching: flash",
  ],
  [
    "a configuration is small",
    {
      asked: asked("", "", "abc"),
      records: recordsOf(record("configuration", FETCHING, { asked: "abc" })),
      shortage: "flash",
    },
    "fetch configuration",
  ],
  [
    "all are fetched before one restarts the board",
    {
      asked: asked("r/os:2", "", "abc"),
      records: recordsOf(record("os", PREPARED), record("configuration", FETCHING, { asked: "abc" })),
    },
    "fetch configuration",
  ],
  [
    "prepared, and nothing is against it",
    { asked: asked("r/os:2"), records: recordsOf(record("os", PREPARED)) },
    "restart os",
  ],
  [
    "outside of the window",
    { asked: asked("r/os:2"), records: recordsOf(record("os", PREPARED)), window: NIGHT },
    "wait os waiting: waits for its window, 02:00-05:00",
  ],
  [
    "within the window",
    { asked: asked("r/os:2"), records: recordsOf(record("os", PREPARED)), window: NIGHT, minute: 120 },
    "restart os",
  ],
  [
    "held",
    { asked: asked("r/os:2"), records: recordsOf(record("os", PREPARED)), holds: ["a", "b", "c", "d"] },
    "wait os held: held by a, b, c and 1 more",
  ],
  [
    "annotations that cannot be read change nothing and restart nothing",
    { asked: undefined, records: recordsOf(record("os", PREPARED)) },
    "wait os waiting: the annotations of the Node cannot be read",
  ],
  [
    "a file of the board waits for no window, but for holds",
    { asked: undefined, records: recordsOf(record("os", PREPARED, { asked: "" })), window: NIGHT },
    "restart os",
  ],
  [
    "a held file",
    { records: recordsOf(record("os", PREPARED, { asked: "" })), holds: ["edgectl"] },
    "wait os held: held by edgectl",
  ],
];

for (const [name, facts, step] of CASES)
  test(`plan: ${name}`, () => assert.equal(brief(planUpdate({ ...FACTS, ...facts })), step));

test("an obstacle is the failed update's message", () => {
  const step = planUpdate({ ...FACTS, asked: asked("r/os:2"), obstacles: { ...NOTHING, os: "no RAUC" } });
  assert.ok(step.kind === "record");
  assert.equal(step.record.message, "no RAUC");
});

const EVENTS: readonly UpdateEvent[] = [
  { kind: "installing" },
  { kind: "prepared", version: "2", slot: "B" },
  { kind: "current", version: "2" },
  { kind: "attemptFailed", message: "m", isFinal: false },
  { kind: "attemptFailed", message: "m", isFinal: true },
  { kind: "trialBegan", id: "t" },
  { kind: "trialEnded", outcome: "good", reason: "" },
  { kind: "trialEnded", outcome: "rolledBack", reason: "r" },
  { kind: "trialEnded", outcome: "failed", reason: "r" },
];
const PHASES: readonly UpdatePhase[] = [
  FETCHING,
  PREPARED,
  TRIAL,
  { kind: "good", version: "2" },
  { kind: "rolledBack" },
  { kind: "failed" },
];
/** What each event makes of each phase that it means something in. */
const EXPECTED: Readonly<Record<string, readonly string[]>> = {
  fetching: ["fetching", "prepared", "good", "fetching", "failed", "", "", "", ""],
  prepared: ["", "", "", "", "", "trial", "", "", ""],
  trial: ["", "", "", "", "", "", "good", "rolledBack", "failed"],
  good: ["", "", "", "", "", "", "", "", ""],
  rolledBack: ["", "", "", "", "", "", "", "", ""],
  failed: ["", "", "", "", "", "", "", "", ""],
};

for (const phase of PHASES)
  test(`transition: ${phase.kind}`, () => {
    const before = record("os", phase);
    const results = EVENTS.map((event) => {
      const next = transition(before, event, 9);
      return next === before ? "" : next.phase.kind;
    });
    assert.deepEqual(results, EXPECTED[phase.kind]);
  });

test("nothing is on trial that was not prepared, and what is over stays so, in any order of events", () => {
  const order = fc.array(fc.constantFrom(...EVENTS), { maxLength: 30 });
  fc.assert(
    fc.property(order, (events) => {
      let current = begin("os", "r/os:2", "r/os:2", 0);
      let wasPrepared = false;
      for (const event of events) {
        const next = transition(current, event, 1);
        if (isOver(current)) assert.equal(next, current);
        wasPrepared ||= next.phase.kind === "prepared";
        if (next.phase.kind === "trial" || next.phase.kind === "rolledBack") assert.ok(wasPrepared);
        current = next;
      }
    }),
  );
});
