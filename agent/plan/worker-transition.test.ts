import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type MonotonicMs, millis, podUid } from "@picolet/protocol/ports.ts";
import {
  exited,
  failure,
  NOW,
  NOW_MS,
  run,
  running,
  sandbox,
  viewOf,
} from "@picolet/test/support/unit/pods/pod-views.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import fc from "fast-check";
import { DEFAULT_CRASH_BACKOFF } from "./crash-backoff.ts";
import { NO_EFFECT } from "./worker-memory.ts";
import { INITIAL_STATE, initialState, type WorkerEvent, type WorkerState } from "./worker-state.ts";
import { transition } from "./worker-transition.ts";

type Kind = WorkerState["kind"];
type EventKind = WorkerEvent["kind"];

const pod = podOf();
const { observed, desired } = viewOf({ pod, sandboxes: [sandbox(0)], containers: [run(pod, "app", 0, running)] });
const { observed: over } = viewOf({ pod, sandboxes: [sandbox(0)], containers: [run(pod, "app", 0, exited(0))] });
assert.ok(observed && over);
const outcome = { phase: "Failed", reason: "", message: "" } as const;
const disruption = { reason: "TerminationByKubelet", message: "" };
const pending = { reason: "Deferred", message: "no room", generation: 2 } as const;

/** At least one event of each kind; several where its fields matter. */
const EVENTS: readonly WorkerEvent[] = [
  { kind: "blocked", by: podUid("other") },
  { kind: "unblocked", since: NOW },
  { kind: "observed", observed, monotonic: NOW, wallMs: NOW_MS, limits: DEFAULT_CRASH_BACKOFF },
  { kind: "observed", observed: over, monotonic: NOW, wallMs: NOW_MS, limits: DEFAULT_CRASH_BACKOFF },
  { kind: "sandboxCreated", attempt: 0, monotonic: NOW },
  { kind: "started", name: "app", attempt: 0, monotonic: NOW },
  { kind: "replacing", name: "app", attempt: 0, why: "changed", monotonic: NOW },
  { kind: "resized", name: "app", attempt: 0, resources: { requests: { cpu: "1" } }, monotonic: NOW },
  { kind: "prepared", pod: desired },
  { kind: "backOffReported", name: "app", attempt: 1 },
  { kind: "finished", outcome },
  { kind: "finished", outcome: { ...outcome, rejected: true } },
  { kind: "ended", outcome: { ...outcome, disruption }, gracePeriod: undefined },
  { kind: "ended", outcome: { ...outcome, disruption }, gracePeriod: millis(5000) },
  { kind: "ended", outcome, gracePeriod: millis(0) },
  { kind: "revived" },
  { kind: "removed", monotonic: NOW, wallMs: NOW_MS },
  { kind: "forgotten" },
  { kind: "respecified", from: desired, to: { ...desired }, isPreparationKept: true },
  { kind: "respecified", from: desired, to: { ...desired }, isPreparationKept: false },
  { kind: "granted", generation: 2 },
  { kind: "judged", pending },
  { kind: "judged", pending: undefined },
  { kind: "cgroupSized" },
  { kind: "resizeObserved", isResizing: true, wasReported: false },
  { kind: "resizeObserved", isResizing: false, wasReported: true },
  { kind: "leaveRequested", gracePeriod: millis(7000), comesBack: false },
  { kind: "published", observed, isLeaving: false },
  { kind: "published", observed, isLeaving: true },
  { kind: "published", observed: over, isLeaving: true },
  { kind: "stepsTaken", done: new Set(["prepare"]) },
  { kind: "stepsTaken", done: new Set() },
  { kind: "stopBegan", containerId: "app-0", gracePeriod: millis(9000), monotonic: NOW },
  { kind: "stopBegan", containerId: "app-0", gracePeriod: millis(1000), monotonic: (NOW + 2000) as MonotonicMs },
  { kind: "stopsObserved", alive: new Set(["app-0"]) },
  { kind: "stopsObserved", alive: new Set() },
  { kind: "stepFailed", step: "prepare", failure: { ...failure("FailedMount", "no", 1000), awaitsObject: true } },
  { kind: "stepFailed", step: "start app", failure: failure(NO_EFFECT, "no", 1000) },
  { kind: "stepSucceeded", step: "prepare" },
  { kind: "stepSucceeded", step: "start app" },
  { kind: "failureCleared", step: "start app" },
  { kind: "planned", steps: new Set(["prepare"]) },
  { kind: "objectsChanged", monotonic: NOW },
  { kind: "hinted" },
  { kind: "touched" },
  { kind: "inspected", fingerprint: "app-0 running" },
  { kind: "rechecked" },
  { kind: "messagesRead", messages: new Map([["app-0", "bye"]]) },
  { kind: "messagesRead", messages: new Map() },
  { kind: "reclaimRequested" },
  { kind: "roundBegan" },
  { kind: "roundEnded", result: "done", isPhaseChanged: false },
  { kind: "roundEnded", result: "brokenOff", isPhaseChanged: true },
  { kind: "roundEnded", result: "faulted", isPhaseChanged: false },
];

const after = (state: WorkerState, ...events: readonly WorkerEvent[]): WorkerState => events.reduce(transition, state);
const only = (kind: EventKind): WorkerEvent => {
  const event = EVENTS.find((each) => each.kind === kind);
  assert.ok(event);
  return event;
};

const ACTIVE = after(INITIAL_STATE, only("unblocked"));
const STATES: Readonly<Record<Kind, WorkerState>> = {
  waiting: INITIAL_STATE,
  active: ACTIVE,
  finished: after(ACTIVE, { kind: "finished", outcome }),
  terminating: after(ACTIVE, only("removed")),
  gone: { kind: "gone" },
};

/** Events that lead to another phase; every other event keeps it. */
const LEADS: Readonly<Partial<Record<Kind, Partial<Record<EventKind, Kind>>>>> = {
  waiting: { unblocked: "active", finished: "finished", ended: "finished", removed: "terminating" },
  active: { finished: "finished", ended: "finished", removed: "terminating" },
  finished: { removed: "terminating" },
  terminating: { forgotten: "gone" },
};

/** Events that change a state without another phase, by the first state in which they do. */
const CHANGES: Readonly<Partial<Record<Kind, readonly EventKind[]>>> = {
  waiting: ["blocked", "granted", "judged", "leaveRequested"],
  active: [
    ...(["observed", "sandboxCreated", "started", "replacing", "resized", "prepared", "backOffReported"] as const),
    ...(["granted", "judged", "resizeObserved", "leaveRequested", "published", "stepsTaken"] as const),
  ],
  finished: ["ended", "leaveRequested", "published", "stepsTaken"],
  terminating: ["ended", "leaveRequested", "published", "stepsTaken"],
};
/** They change the memory, in every state but `gone`. */
const MEMORY: readonly EventKind[] = [
  ...(["stopBegan", "stepFailed", "hinted", "touched", "inspected", "messagesRead", "reclaimRequested"] as const),
  "roundEnded",
];

describe("a worker's state", () => {
  for (const [from, state] of Object.entries(STATES) as [Kind, WorkerState][]) {
    for (const kind of new Set(EVENTS.map((each) => each.kind))) {
      const to = LEADS[from]?.[kind] ?? from;
      const isChange = to !== from || CHANGES[from]?.includes(kind) || (MEMORY.includes(kind) && from !== "gone");
      test(`${from}, ${kind}: ${to}${isChange ? "" : ", the same object"}`, () => {
        const results = EVENTS.filter((each) => each.kind === kind).map((event) => transition(state, event));
        assert.ok(results.every((each) => each.kind === to));
        assert.equal(
          results.some((each) => each !== state),
          isChange,
        );
      });
    }
  }

  test("whatever happens, the phase only goes forward, except for a revival, and gone is the end", () => {
    const rank: Readonly<Record<Kind, number>> = { waiting: 0, active: 1, finished: 2, terminating: 3, gone: 4 };
    everyWay((before, event, next) => {
      if (next === before) return;
      assert.notEqual(before.kind, "gone");
      if (event.kind === "revived") assert.deepEqual([before.kind, next.kind], ["finished", "waiting"]);
      else assert.ok(rank[next.kind] >= rank[before.kind], `${before.kind} to ${next.kind} by ${event.kind}`);
    });
  });

  test("whatever happens, a pod that is ending never gets more time, and its outcome stays", () => {
    everyWay((before, _event, next) => {
      if (before.kind !== "finished" && before.kind !== "terminating") return;
      if (next.kind !== "finished" && next.kind !== "terminating") return;
      assert.ok((next.gracePeriod ?? Infinity) <= (before.gracePeriod ?? Infinity));
      assert.deepEqual(next.outcome, before.outcome);
    });
  });

  test("whatever happens, a stop that has begun never gets more time, nor begins again while the container lives", () => {
    everyWay((before, event, next) => {
      if (before.kind === "gone" || next.kind === "gone" || event.kind === "stopsObserved") return;
      for (const [id, { until, gracePeriod }] of before.stops) {
        const stop = next.stops.get(id);
        assert.ok(stop !== undefined && stop.until <= until && stop.gracePeriod <= gracePeriod);
      }
    });
  });

  test("whatever happens, a reclaim is over only after a whole round without another phase", () => {
    everyWay((before, event, next) => {
      if (before.kind === "gone" || next.kind === "gone" || before.reclaim === "none") return;
      if (next.reclaim !== "none") return;
      assert.equal(before.reclaim, "underWay");
      assert.ok(event.kind === "roundEnded" && !event.isPhaseChanged);
    });
  });

  test("whatever happens, what was begun to prepare counts for no other pod than the one it was made for", () => {
    everyWay((before, event, next) => {
      if (next.kind !== "active" || next.preparedFor === undefined) return;
      if (before.kind === "active" && before.preparedFor === next.preparedFor) return;
      assert.ok(event.kind === "prepared" || (event.kind === "respecified" && event.isPreparationKept));
    });
  });

  test("whatever happens, failures of steps that are planned no more are dropped, and no other", () => {
    everyWay((before, event, next) => {
      if (event.kind !== "planned" || before.kind === "gone" || next.kind === "gone") return;
      const kept = [...before.failures.keys()].filter((step) => event.steps.has(step));
      assert.deepEqual([...next.failures.keys()], kept);
    });
  });

  test("runs again when it was ended for the node's sake, and its sake alone", () => {
    const ended = after(ACTIVE, { kind: "ended", outcome: { ...outcome, disruption }, gracePeriod: undefined });
    assert.equal(transition(ended, { kind: "revived" }).kind, "waiting");
    assert.equal(transition(STATES.finished, { kind: "revived" }), STATES.finished);
  });

  test("keeps failures and stops when it runs again, and prepares again", () => {
    const ended = { kind: "ended", outcome: { ...outcome, disruption }, gracePeriod: undefined } as const;
    const busy = after(ACTIVE, only("prepared"), only("stopBegan"), only("stepFailed"), ended, { kind: "revived" });
    assert.ok(busy.kind === "waiting" && busy.stops.size === 1 && busy.failures.size === 1);
    const again = after(busy, only("unblocked"));
    assert.ok(again.kind === "active" && again.preparedFor === undefined);
  });

  test("has reclaimed after a round that began later and changed no phase", () => {
    const reclaim = (...events: readonly WorkerEvent[]) => {
      const state = after(ACTIVE, { kind: "reclaimRequested" }, ...events);
      return state.kind === "gone" ? undefined : state.reclaim;
    };
    const ended = (isPhaseChanged: boolean) => ({ kind: "roundEnded", result: "done", isPhaseChanged }) as const;
    assert.equal(reclaim(ended(false)), "requested");
    assert.equal(reclaim({ kind: "roundBegan" }), "underWay");
    assert.equal(reclaim({ kind: "roundBegan" }, ended(true)), "requested");
    assert.equal(reclaim({ kind: "roundBegan" }, ended(false)), "none");
  });

  test("of a pod whose resources an earlier agent may have changed checks the cgroup", () => {
    const metadata = { ...desired.pod.metadata, generation: 2 };
    const changed = { ...desired, source: "api", pod: { ...desired.pod, metadata } } as const;
    assert.deepEqual(
      [initialState(desired), initialState(changed)].map(({ resize }) => resize.sized),
      [true, false],
    );
  });

  test("reports the end of a resize once, also of one that an earlier agent began", () => {
    const seen = (state: WorkerState, isResizing: boolean, wasReported = false): WorkerState =>
      transition(state, { kind: "resizeObserved", isResizing, wasReported });
    const progress = (state: WorkerState) => (state.kind === "active" ? state.resize.progress : undefined);
    const granted = after(ACTIVE, { kind: "granted", generation: 2 });
    assert.deepEqual([progress(granted), progress(seen(granted, false))], ["underWay", "underWay"]);
    assert.equal(progress(seen(after(granted, { kind: "cgroupSized" }), false)), "idle");
    assert.equal(progress(seen(ACTIVE, false, true)), "idle");
    assert.equal(progress(seen(seen(ACTIVE, false), true)), "underWay");
  });

  test("leaves its runtime when nothing runs there, and stays when it must not leave after all", () => {
    const leaving = after(ACTIVE, only("leaveRequested"));
    const leave = (state: WorkerState) => (state.kind === "active" ? state.leave : undefined);
    const runs = after(leaving, { kind: "published", observed, isLeaving: true });
    assert.equal(leave(runs)?.hasLeft, false);
    assert.equal(leave(after(runs, { kind: "published", observed: over, isLeaving: true }))?.hasLeft, true);
    assert.equal(leave(after(runs, { kind: "published", observed, isLeaving: false })), undefined);
    const ended = after(runs, { kind: "finished", outcome });
    assert.ok(ended.kind === "finished" && ended.gracePeriod === 7000);
  });

  test("makes steps that wait for an object due, and no others", () => {
    const [waiting, other] = EVENTS.filter(({ kind }) => kind === "stepFailed");
    assert.ok(waiting && other);
    const state = after(ACTIVE, waiting, other, { kind: "objectsChanged", monotonic: NOW });
    assert.ok(state.kind === "active");
    assert.deepEqual(
      [...state.failures].map(([step, { retryAt }]) => [step, retryAt - NOW]),
      [
        ["prepare", 0],
        ["start app", 1000],
      ],
    );
    const kept = after(state, { kind: "stepSucceeded", step: "start app" });
    assert.equal(kept, state, "a success does not take back that a step had no effect");
  });

  test("stays the same object when an inspection shows nothing new", () => {
    const event = only("observed");
    const seen = transition(STATES.active, event);
    assert.equal(transition(seen, event), seen);
  });

  test("lets sandboxes that die one after the other wait longer each time", () => {
    let state = STATES.active;
    const waits: number[] = [];
    for (let attempt = 0; attempt < 9; attempt += 1) {
      const monotonic = (NOW + attempt * 1000) as MonotonicMs;
      state = transition(state, { kind: "sandboxCreated", attempt, monotonic });
      waits.push(state.kind === "active" ? (state.sandbox?.backoff ?? -1) : -1);
    }
    assert.deepEqual(waits, [0, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
  });
});

/** Checks each transition of many random histories. */
function everyWay(check: (before: WorkerState, event: WorkerEvent, next: WorkerState) => void): void {
  const property = fc.property(fc.array(fc.constantFrom(...EVENTS), { minLength: 1, maxLength: 60 }), (events) => {
    let state: WorkerState = INITIAL_STATE;
    for (const event of events) {
      const next = transition(state, event);
      check(state, event, next);
      state = next;
    }
  });
  fc.assert(property, { numRuns: 1000 });
}
