import assert from "node:assert/strict";
import { test } from "node:test";
import { type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import fc from "fast-check";
import {
  initialState,
  MAX_RETRY_AFTER,
  type ReconnectSettings,
  reconnectDelay,
  type TunnelEvent,
  type TunnelState,
  transition,
} from "./session-state.ts";
import { reportOf } from "./tunnel-report.ts";

const SETTINGS: ReconnectSettings = { hubs: 1, initial: seconds(1), max: seconds(60) };
const at = (seconds: number): MonotonicMs => (seconds * 1000) as MonotonicMs;

const welcomed = (now = 0): TunnelEvent => ({ kind: "welcomed", now: at(now), rttMs: 12 });
const failed = (
  now = 0,
  init: { retryAfter?: number; lot?: number; problem?: string; isRefused?: boolean } = {},
): TunnelEvent => ({
  kind: "failed",
  now: at(now),
  problem: init.problem ?? "no way",
  isRefused: init.isRefused ?? false,
  retryAfter: seconds(init.retryAfter ?? 0),
  lot: init.lot ?? 1,
});
const drained = (now: number, after: number): TunnelEvent => ({
  ...{ kind: "moveAsked", now: at(now), after: seconds(after), elsewhere: true },
});
const READY: TunnelEvent = { kind: "identityReady" };
const CONNECTED: TunnelEvent = { kind: "connected" };
const HURRIED: TunnelEvent = { kind: "hurried" };
const WAITED: TunnelEvent = { kind: "waited" };

function after(events: readonly TunnelEvent[], settings = SETTINGS): TunnelState {
  return events.reduce((state, event) => transition(state, event, settings), initialState(at(0)));
}

/** `backingOff 4s`, `dialing hub 1`. */
function shown(state: TunnelState): string {
  switch (state.kind) {
    case "backingOff":
      return `backingOff until ${state.until / 1000}`;
    case "dialing":
      return `dialing hub ${state.attempt.hub}`;
    case "moving":
      return `moving to hub ${state.attempt.hub} at ${state.until / 1000}`;
    default:
      return state.kind;
  }
}

const LIVE = [READY, CONNECTED, welcomed()];

for (const [name, events, expected] of [
  ["begins by waiting for an identity", [], "waitingForIdentity"],
  ["dials when there is one", [READY], "dialing hub 0"],
  [
    "waits again when it is gone before the dial",
    [READY, { kind: "identityMissing", problem: "", isRefused: false }],
    "waitingForIdentity",
  ],
  ["greets when connected", [READY, CONNECTED], "greeting"],
  ["is live when welcomed", LIVE, "live"],
  [
    "a lost identity does not end a session",
    [...LIVE, { kind: "identityMissing", problem: "x", isRefused: false }],
    "live",
  ],
  ["backs off after a failed dial", [READY, failed(5)], "backingOff until 6"],
  ["backs off after a failed greeting", [READY, CONNECTED, failed(5)], "backingOff until 6"],
  ["doubles", [READY, failed(), WAITED, failed(10), WAITED, failed(20)], "backingOff until 24"],
  ["a session that lived for a minute is dialled anew soon", [...LIVE, failed(60)], "backingOff until 61"],
  [
    "sessions that end at once are dialled slower and slower",
    [...LIVE, failed(1), WAITED, CONNECTED, welcomed(3), failed(4), WAITED, CONNECTED, welcomed(6), failed(7)],
    "backingOff until 11",
  ],
  ["stays away as long as it is told", [READY, failed(5, { retryAfter: 300, lot: 0 })], "backingOff until 305"],
  ["not all come back at once", [READY, failed(5, { retryAfter: 300, lot: 0.5 })], "backingOff until 305.5"],
  ["hurries when the network changes", [READY, failed(5), HURRIED], "dialing hub 0"],
  [
    "does not when it was told to stay away",
    [READY, failed(5, { retryAfter: 9, lot: 0 }), HURRIED],
    "backingOff until 14",
  ],
  ["a network that changes does no harm to a session", [...LIVE, HURRIED], "live"],
  ["moves when the hub drains", [...LIVE, drained(10, 3)], "moving to hub 0 at 13"],
  ["a hub may not put it off for ever", [...LIVE, drained(0, 1e9)], "moving to hub 0 at 600"],
  ["is live again when moved", [...LIVE, drained(10, 3), welcomed(14)], "live"],
  [
    "tries again to move while the old session lives",
    [...LIVE, drained(10, 3), { kind: "moveFailed", now: at(20), lot: 1 }, { kind: "moveFailed", now: at(30), lot: 1 }],
    "moving to hub 0 at 32",
  ],
  ["a move ends with the session", [...LIVE, drained(10, 3), failed(70)], "backingOff until 71"],
  [
    "what was overtaken changes nothing",
    [READY, welcomed(), drained(0, 0), WAITED, { kind: "measured", rttMs: 1 }],
    "dialing hub 0",
  ],
] as const satisfies readonly (readonly [string, readonly TunnelEvent[], string])[]) {
  test(name, () => assert.equal(shown(after(events)), expected));
}

test("several hubs are tried in turn at once, then comes the back-off, and a drain leads to the next", () => {
  const settings = { ...SETTINGS, hubs: 3 };
  const steps = [READY, failed(1), failed(2), failed(3), WAITED, failed(4), CONNECTED, welcomed(5), drained(6, 0)];
  const seen = steps.map((_, index) => shown(after(steps.slice(0, index + 1), settings)));
  assert.deepEqual(seen, [
    ...["dialing hub 0", "dialing hub 1", "dialing hub 2", "backingOff until 4", "dialing hub 0", "dialing hub 1"],
    ...["greeting", "live", "moving to hub 2 at 6"],
  ]);
});

test("full jitter: delays are spread evenly between nothing and the nominal delay, up to the maximum", () => {
  const nominal = [1, 2, 3, 4, 5, 6, 7, 8, 1000].map((rounds) => reconnectDelay(rounds, 1, SETTINGS) / 1000);
  assert.deepEqual(nominal, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
  for (const lot of [0, 0.25, 0.999]) assert.equal(reconnectDelay(3, lot, SETTINGS), 4000 * lot);
});

test("the time away and the problem are those of the outage, whatever is tried meanwhile", () => {
  const events = [...LIVE, failed(100, { problem: "cut" }), WAITED, failed(130, { problem: "no way" }), WAITED];
  const hubs = [{ host: "hub", port: 443, url: "https://hub" }];
  const identity = { kind: "joining", problem: "", isRefused: false } as const;
  const init = { hubs, pendingStatuses: 2, counters: { bytesSent: 1, bytesReceived: 2, sessions: 3 }, identity };
  // The board began in 1970 and knows the time by now.
  const report = reportOf(after(events), { ...init, now: at(160), wall: new Date("2026-01-01T00:01:00Z") });
  assert.deepEqual(report, {
    state: "disconnected",
    since: "2026-01-01T00:00:00.000Z",
    rttMs: null,
    hub: "https://hub",
    problem: "no way",
    refused: false,
    nextTry: null,
    pendingStatuses: 2,
    bytesSent: 1,
    bytesReceived: 2,
    sessions: 3,
  });
});

test("a refusal is told apart from an outage, and is the last attempt's", () => {
  const refusedAfter = (...events: readonly TunnelEvent[]): unknown => {
    const state = after(events);
    return "outage" in state && state.outage.isRefused;
  };
  const refusal = failed(1, { problem: "the token is not accepted", isRefused: true });
  assert.equal(refusedAfter(READY, failed(1)), false);
  assert.equal(refusedAfter(READY, refusal), true);
  assert.equal(refusedAfter(READY, refusal, WAITED), true, "while it is tried again");
  assert.equal(refusedAfter(READY, refusal, WAITED, failed(5)), false, "the link went meanwhile");
  assert.equal(refusedAfter(...LIVE, refusal), true, "a session that the hub ended");
  assert.equal(refusedAfter({ kind: "identityMissing", problem: "needs a token", isRefused: true }), true);
});

const anyEvent: fc.Arbitrary<TunnelEvent> = fc
  .record({
    index: fc.nat(8),
    lot: fc.double({ min: 0, max: 0.999, noNaN: true }),
    retryAfter: fc.constantFrom(0, 0, 5000, 1e12),
  })
  .map(({ index, lot, retryAfter }) => {
    const now = 0 as MonotonicMs;
    const events: readonly TunnelEvent[] = [
      { kind: "identityMissing", problem: "p", isRefused: true },
      READY,
      CONNECTED,
      welcomed(),
      { kind: "measured", rttMs: 3 },
      { kind: "failed", now, problem: "f", isRefused: lot > 0.5, retryAfter: millis(retryAfter), lot },
      { kind: "moveAsked", now, after: millis(retryAfter), elsewhere: lot > 0.5 },
      { kind: "moveFailed", now, lot },
      lot > 0.5 ? HURRIED : WAITED,
    ];
    return events[index] ?? WAITED;
  });

test("no order of events makes a state that cannot be", () => {
  fc.assert(
    fc.property(fc.array(anyEvent, { maxLength: 60 }), fc.integer({ min: 1, max: 4 }), (events, hubs) => {
      const state = after(events, { ...SETTINGS, hubs });
      assert.ok(state.attempt.hub < hubs && state.attempt.tried < hubs);
      if ("until" in state) assert.ok(state.until <= MAX_RETRY_AFTER + 1000);
      if ("outage" in state) assert.ok(state.outage.since <= 0);
    }),
  );
});
