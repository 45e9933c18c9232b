import assert from "node:assert/strict";
import { test } from "node:test";
import { millis } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { CorrectedClock } from "./corrected-clock.ts";

const FLOOR = Date.UTC(2026, 0, 1);
const NOW = Date.UTC(2026, 10, 20);
const HOUR = 3_600_000;

const clockAt = (wallMs: number): { machine: VirtualClock; clock: CorrectedClock } => {
  const machine = new VirtualClock(wallMs);
  return { machine, clock: new CorrectedClock(machine, { floorMs: FLOOR }) };
};

test("it is never before the floor, which only grows", () => {
  const { machine, clock } = clockAt(0);
  assert.equal(clock.wall().getTime(), FLOOR);
  clock.raiseFloor(FLOOR + HOUR);
  clock.raiseFloor(FLOOR);
  assert.equal(clock.wall().getTime(), FLOOR + HOUR);
  machine.setWall(NOW);
  assert.equal(clock.wall().getTime(), NOW);
  assert.equal(clock.isConfirmed, false);
  assert.equal(clock.isMachineRight, false);
});

for (const [what, wallMs] of [
  ["behind", 0],
  ["ahead", NOW + 5000 * HOUR],
] as const) {
  test(`a machine's clock that is ${what} is corrected by the hub's, and time goes on from there`, async () => {
    const { machine, clock } = clockAt(wallMs);
    clock.observe(NOW, 100);
    assert.equal(clock.wall().getTime(), NOW + 50);
    await machine.advance(millis(HOUR));
    assert.equal(clock.wall().getTime(), NOW + 50 + HOUR);
    assert.ok(clock.isConfirmed && !clock.isMachineRight);
    // NTP, at last: then the machine's own clock is as good, and finer.
    machine.setWall(NOW + HOUR + 30_000);
    assert.equal(clock.wall().getTime(), NOW + HOUR + 30_000);
    assert.ok(clock.isMachineRight);
    machine.setWall(NOW + 10 * HOUR);
    assert.equal(clock.wall().getTime(), NOW + 50 + HOUR);
  });
}

test("an answer that took too long, or says nothing, changes nothing", () => {
  const { clock } = clockAt(0);
  for (const [timeMs, roundTripMs] of [
    [NOW, 30_001],
    [NOW, -1],
    [Number.NaN, 1],
    [Number.POSITIVE_INFINITY, 1],
  ] as const) {
    clock.observe(timeMs, roundTripMs);
  }
  assert.equal(clock.isConfirmed, false);
  assert.equal(clock.wall().getTime(), FLOOR);
});

test("with any jumps of the machine's clock it is not before the floor, and near the hub's time once that is known", async () => {
  const event = fc.oneof(
    fc.record({ kind: fc.constant("machine" as const), ms: fc.integer({ min: -1e12, max: 8e12 }) }),
    fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(HOUR) }),
    fc.record({ kind: fc.constant("hub" as const), ms: fc.nat(20_000) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 20 }), async (events) => {
      const { machine, clock } = clockAt(0);
      let truth = NOW;
      let hasSpoken = false;
      for (const { kind, ms } of events) {
        if (kind === "machine") machine.setWall(ms);
        else if (kind === "pass") {
          await machine.advance(millis(ms));
          truth += ms;
        } else {
          clock.observe(truth - ms / 2, ms);
          hasSpoken = true;
        }
        const wall = clock.wall().getTime();
        assert.ok(wall >= FLOOR);
        if (hasSpoken) assert.ok(Math.abs(wall - truth) <= 120_000 + 20_000, String(wall - truth));
      }
    }),
    { numRuns: 200 },
  );
});
