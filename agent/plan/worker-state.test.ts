import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type MonotonicMs, podUid } from "@picolet/protocol/ports.ts";
import { NOW, NOW_MS, run, running, sandbox, viewOf } from "@picolet/test/support/unit/pods/pod-views.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { DEFAULT_CRASH_BACKOFF } from "./crash-backoff.ts";
import { INITIAL_STATE, transition, type WorkerEvent, type WorkerState } from "./worker-state.ts";

const pod = podOf();
const { observed } = viewOf({ pod, sandboxes: [sandbox(0)], containers: [run(pod, "app", 0, running)] });
assert.ok(observed);
const outcome = { phase: "Failed", reason: "", message: "" } as const;

const STATES: Readonly<Record<WorkerState["kind"], WorkerState>> = {
  waiting: INITIAL_STATE,
  active: { kind: "active", since: NOW, runs: new Map(), sandbox: undefined },
  finished: { kind: "finished", outcome },
  terminating: { kind: "terminating", since: NOW, sinceMs: NOW_MS },
  gone: { kind: "gone" },
};

const EVENTS: Readonly<Record<string, WorkerEvent>> = {
  blocked: { kind: "blocked", by: podUid("other") },
  unblocked: { kind: "unblocked", since: NOW },
  observed: { kind: "observed", observed, monotonic: NOW, wallMs: NOW_MS, limits: DEFAULT_CRASH_BACKOFF },
  sandboxCreated: { kind: "sandboxCreated", attempt: 0, monotonic: NOW },
  started: { kind: "started", name: "app", attempt: 0, monotonic: NOW },
  replacing: { kind: "replacing", name: "app", attempt: 0, why: "changed", monotonic: NOW },
  finished: { kind: "finished", outcome },
  revived: { kind: "revived" },
  removed: { kind: "removed", monotonic: NOW, wallMs: NOW_MS },
  forgotten: { kind: "forgotten" },
};

/** What leads anywhere else; every other event leaves a state as it is. */
const LEADS: Readonly<Record<string, WorkerState["kind"]>> = {
  "waiting unblocked": "active",
  "waiting finished": "finished",
  "waiting removed": "terminating",
  "active finished": "finished",
  "active removed": "terminating",
  "finished removed": "terminating",
  "terminating forgotten": "gone",
};

describe("a worker's state", () => {
  for (const [from, state] of Object.entries(STATES)) {
    for (const [name, event] of Object.entries(EVENTS)) {
      const to = LEADS[`${from} ${name}`] ?? from;
      test(`${from}, ${name}: ${to}`, () => assert.equal(transition(state, event).kind, to));
    }
  }

  test("runs again when it was ended for the node's sake, and its sake alone", () => {
    const disruption = { reason: "TerminationByKubelet", message: "" };
    const ended = { kind: "finished", outcome: { ...outcome, disruption } } as const;
    assert.equal(transition(ended, { kind: "revived" }).kind, "waiting");
  });

  test("stays the same object when a look shows nothing new", () => {
    const event = EVENTS.observed;
    assert.ok(event);
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
