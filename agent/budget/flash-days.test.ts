import assert from "node:assert/strict";
import { test } from "node:test";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import fc from "fast-check";
import { FlashDays, keptDay, MAX_DAYS } from "./flash-days.ts";
import { MAX_STRETCH, writePace } from "./write-pace.ts";

const HOUR = 3_600_000;
const at = (hours: number): MonotonicMs => (hours * HOUR) as MonotonicMs;
const day = (text: string): Date => new Date(`${text}T12:00:00Z`);
const writes = (disks: number, agent = 0, pods: Record<string, number> = {}) => ({
  ...{ disks, agent },
  pods: new Map(Object.entries(pods)),
});

test("bytes are counted under the day of the clock, and the days that are over have an average", () => {
  const days = new FlashDays();
  assert.equal(days.average, undefined);
  assert.ok(days.turn(day("2026-11-20"), at(0)));
  days.add(writes(100, 10, { "default/a": 5, "default/b": 7 }));
  assert.ok(!days.turn(day("2026-11-20"), at(1)));
  days.add(writes(50, 0, { "default/a": 5, "default/c": 0 }));
  assert.deepEqual(days.today, { day: "2026-11-20", ...writes(150, 10, { "default/a": 10, "default/b": 7 }) });
  assert.ok(days.turn(day("2026-11-21"), at(13)));
  assert.equal(days.today.disks, 0);
  days.add(writes(1));
  days.turn(day("2026-11-23"), at(60));
  assert.deepEqual(days.average, { disks: 75.5, agent: 5, days: 2 }, "a day on which the board was off is none");
});

test("a clock that is behind, as a board's without a battery, counts on under the last day known, for a day of uptime", () => {
  const days = new FlashDays();
  days.load(
    new Map([
      ["2026-11-19", keptDay({ day: "", ...writes(7) })],
      ["2026-11-20", keptDay({ day: "", ...writes(100, 3, { "default/a": 9 }) })],
    ]),
  );
  assert.ok(!days.turn(day("2026-01-01"), at(0)));
  days.add(writes(1));
  assert.equal(days.today.disks, 101);
  assert.ok(!days.turn(day("2026-01-01"), at(23)));
  assert.ok(!days.turn(day("2026-11-20"), at(23.5)), "the time has been found");
  assert.equal(days.today.disks, 101);
  assert.ok(!days.turn(day("2026-11-19"), at(24)));
  assert.ok(days.turn(day("2026-11-19"), at(48)), "it stays behind: the day that is to come was a mistake");
  assert.equal(days.today.disks, 7, "what was known of that day goes on");
  assert.deepEqual(days.past, []);
});

test("no more than a month is kept, the newest, and of each day the ten that wrote most", () => {
  const days = new FlashDays();
  for (let n = 0; n < 60; n += 1) {
    days.turn(new Date(Date.UTC(2026, 0, 1 + n)), at(24 * n));
    days.add(writes(n, 0, Object.fromEntries(Array.from({ length: 20 }, (_, p) => [`ns/p${p}`, p + 1]))));
  }
  assert.equal(days.past.length, MAX_DAYS - 1);
  assert.equal(days.past.at(-1)?.day, "2026-02-28");
  assert.equal(days.today.pods.size, 20);
  assert.deepEqual([...(days.past[0]?.pods.keys() ?? [])].slice(0, 2), ["ns/p19", "ns/p18"]);
  assert.equal(days.past[0]?.pods.size, 10);
  assert.equal(keptDay(days.today)[2].length, 10);
});

test("loading any records never throws and leaves only days", () => {
  const day = fc.oneof(fc.string(), fc.constantFrom("2026-01-01", "2026-02-30", "9999-99-99"));
  const writer = fc.oneof(fc.anything(), fc.tuple(fc.string(), fc.integer()));
  const record = fc.oneof(fc.anything(), fc.tuple(fc.double(), fc.integer(), fc.array(writer)));
  fc.assert(
    fc.property(fc.array(fc.tuple(day, record)), (kept) => {
      const days = new FlashDays();
      days.load(new Map(kept));
      days.turn(new Date(Date.UTC(2026, 5, 1)), at(0));
      for (const each of [...days.past, days.today]) {
        assert.match(each.day, /^\d{4}-\d\d-\d\d$/);
        assert.ok(each.disks >= 0 && each.agent >= 0);
        for (const [name, bytes] of each.pods) assert.ok(typeof name === "string" && bytes >= 0);
      }
    }),
  );
});

for (const [used, share, stretch] of [
  [0, 0, 1],
  [25, 0, 1],
  [26, 0, 2],
  [34, 0, 4],
  [60, 0.5, 1],
  [64, 0.5, 2],
  [99, 1, 1],
  [99, 0, MAX_STRETCH],
  [100, 1, MAX_STRETCH],
  [500, 0.2, MAX_STRETCH],
] as const) {
  test(`with ${used} % of the budget used when ${share * 100} % of the day is over, batches wait ${stretch} times as long`, () => {
    assert.equal(writePace(used, 100, share), stretch);
  });
}
