import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import fc from "fast-check";
import type { ContainerBatch } from "./batch-builder.ts";
import {
  closedOf,
  initialState,
  problemOf,
  type TelemetryEvent,
  type TelemetryState,
  timeLeft,
  transition,
} from "./telemetry-state.ts";

type Kind = TelemetryState["kind"];
type EventKind = TelemetryEvent["kind"];

const FIRST_ID = 7;
const at = (ms: number) => ms as MonotonicMs;
const DELAYS = { interval: millis(60_000), urgentForward: millis(2000), urgentGather: millis(50) };

const batch = (id: number, records = 1): ContainerBatch => ({
  ...{ id, sequence: id - FIRST_ID + 1, pod: "default/web", baseUs: 0, wallUs: undefined, records },
  ...{ body: new Uint8Array(), runs: new Map(), size: 10 },
});

/** At least one event of each kind; several where its fields matter. */
const EVENTS: readonly TelemetryEvent[] = [
  { kind: "taken", now: at(1000), isUrgent: false },
  { kind: "taken", now: at(2000), isUrgent: true },
  { kind: "refused", records: 3 },
  { kind: "batchClosed", batch: batch(FIRST_ID) },
  { kind: "written", openRecords: 0, now: at(3000) },
  { kind: "written", openRecords: 2, now: at(3000) },
  { kind: "diskFailed", problem: "the disk is full" },
  { kind: "acknowledged", id: FIRST_ID, records: 1, openRecords: 0, now: at(4000), wall: new Date(0) },
  { kind: "acknowledged", id: FIRST_ID - 1, records: 0, openRecords: 1, now: at(4000), wall: new Date(0) },
  { kind: "refusalReported" },
  { kind: "forwardingChanged", isForwarding: true },
  { kind: "forwardingChanged", isForwarding: false },
  { kind: "stretched", factor: 4 },
  { kind: "stretched", factor: 1000 },
  { kind: "stretched", factor: 0 },
  { kind: "ended" },
];

const after = (state: TelemetryState, ...events: readonly TelemetryEvent[]): TelemetryState =>
  events.reduce(transition, state);

const EMPTY = initialState(FIRST_ID);
const HOLDING = after(EMPTY, { kind: "taken", now: at(0), isUrgent: false });
const STATES: Readonly<Record<Kind, TelemetryState>> = {
  empty: EMPTY,
  holding: HOLDING,
  ended: after(EMPTY, { kind: "ended" }),
};

/** Phases that the events of a kind lead to; every other keeps the phase. */
const LEADS: Readonly<Record<Kind, Partial<Record<EventKind, readonly Kind[]>>>> = {
  empty: { taken: ["holding", "holding"], ended: ["ended"] },
  holding: { written: ["empty", "holding"], acknowledged: ["empty", "holding"], ended: ["ended"] },
  ended: {},
};

describe("the state of telemetry", () => {
  for (const [from, state] of Object.entries(STATES) as [Kind, TelemetryState][]) {
    for (const kind of new Set(EVENTS.map((each) => each.kind))) {
      const events = EVENTS.filter((each) => each.kind === kind);
      const to = LEADS[from][kind] ?? events.map(() => from);
      test(`${from}, ${kind}: ${to.join(", ")}`, () =>
        assert.deepEqual(
          events.map((event) => transition(state, event).kind),
          to,
        ));
    }
  }

  test("whatever happens, batches are closed only while something is held, and leave it in order", () => {
    everyWay((before, event, next) => {
      const [left, kept] = [closedOf(before), closedOf(next)];
      const added = event.kind === "batchClosed" && before.kind === "holding" ? 1 : 0;
      assert.ok(kept.length <= left.length + added);
      assert.deepEqual(kept.slice(0, kept.length - added), left.slice(left.length + added - kept.length));
      if (next.kind === "holding" && before.kind !== "holding") assert.deepEqual(kept, []);
    });
  });

  test("whatever happens, figures and ids only grow, the stretch stays within its limits, and ended is the end", () => {
    everyWay((before, _event, next) => {
      assert.ok(next.refused >= before.refused && next.forwarded >= before.forwarded);
      assert.ok(next.next.id >= before.next.id && next.next.sequence - before.next.sequence >= 0);
      assert.ok(next.stretch >= 1 && next.stretch <= 10);
      if (before.kind === "ended") assert.equal(next.kind, "ended");
    });
  });

  test("whatever happens, a time is left exactly while something is held, and what is urgent waits no longer", () => {
    everyWay((_before, _event, next) => {
      const left = timeLeft(next, at(5000), DELAYS);
      assert.equal(left === undefined, next.kind !== "holding");
      if (next.kind !== "holding" || left === undefined) return;
      assert.ok(left <= timeLeftWithout(next));
    });
  });

  test("holds what is urgent until the hub may have it, and shortly without a hub", () => {
    const urgent = after(HOLDING, { kind: "taken", now: at(1000), isUrgent: true });
    assert.equal(timeLeft(HOLDING, at(0), DELAYS), 60_000);
    assert.equal(timeLeft(urgent, at(1000), DELAYS), 50);
    const forwarding = after(urgent, { kind: "forwardingChanged", isForwarding: true });
    assert.equal(timeLeft(forwarding, at(1000), DELAYS), 2000);
    assert.equal(timeLeft(after(HOLDING, { kind: "stretched", factor: 4 }), at(0), DELAYS), 240_000);
  });

  test("starts the time of the rest again when some of it has left", () => {
    const two = after(HOLDING, { kind: "batchClosed", batch: batch(7) }, { kind: "batchClosed", batch: batch(8) });
    const rest = { kind: "acknowledged", id: 7, records: 1, openRecords: 0, now: at(9000), wall: new Date(5) } as const;
    const acknowledged = after(two, rest);
    assert.deepEqual(
      closedOf(acknowledged).map(({ id }) => id),
      [8],
    );
    assert.ok(acknowledged.kind === "holding" && acknowledged.since === 9000);
    assert.deepEqual([acknowledged.forwarded, acknowledged.lastForwardedAt?.getTime()], [1, 5]);
    assert.deepEqual(acknowledged.next, { id: 9, sequence: 3 });
  });

  test("reports a failing disk until a write succeeds, and a hub that refuses until it takes some", () => {
    const failing = after(HOLDING, { kind: "diskFailed", problem: "no space" }, { kind: "refusalReported" });
    assert.deepEqual([problemOf(failing), failing.hub.isRefusalReported], ["no space", true]);
    const again = after(failing, { kind: "forwardingChanged", isForwarding: true });
    assert.equal(again.hub.isRefusalReported, true);
    const written = after(again, { kind: "written", openRecords: 0, now: at(1) });
    assert.deepEqual([problemOf(written), written.hub.isRefusalReported], ["", true]);
    const ack = { kind: "acknowledged", id: 1, records: 0, openRecords: 0, now: at(1), wall: new Date(0) } as const;
    assert.equal(after(written, ack).hub.isRefusalReported, false);
  });
});

const timeLeftWithout = (state: Extract<TelemetryState, { kind: "holding" }>): number =>
  timeLeft({ ...state, urgentAt: undefined }, at(5000), DELAYS) ?? Number.NaN;

/** Checks each transition of many random histories, in which batches are numbered as telemetry numbers them. */
function everyWay(check: (before: TelemetryState, event: TelemetryEvent, next: TelemetryState) => void): void {
  const property = fc.property(fc.array(fc.constantFrom(...EVENTS), { minLength: 1, maxLength: 60 }), (events) => {
    let state: TelemetryState = EMPTY;
    for (const drawn of events) {
      const { next: place } = state;
      const event = drawn.kind === "batchClosed" ? { ...drawn, batch: { ...batch(place.id), ...place } } : drawn;
      const next = transition(state, event);
      check(state, event, next);
      state = next;
    }
  });
  fc.assert(property, { numRuns: 1000 });
}
