import assert from "node:assert/strict";
import { test } from "node:test";
import { type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { Timetable, TimetableEntry } from "./timetable.ts";

const at = (value: number): MonotonicMs => value as MonotonicMs;

test("wakes are called in the order of their times, on one sleep", async () => {
  const clock = new VirtualClock();
  using timetable = new Timetable(clock);
  const called: string[] = [];
  const wake = (name: string): TimetableEntry => new TimetableEntry(() => called.push(`${name} ${clock.monotonic()}`));
  for (const [name, time] of [
    ["c", 300],
    ["a", 100],
    ["b", 200],
  ] as const)
    timetable.set(wake(name), at(time));
  assert.equal(clock.sleeping, 1);
  await clock.advance(millis(250));
  assert.deepEqual(called, ["a 100", "b 200"]);
  assert.equal(timetable.size, 1);
  await clock.advance(millis(50));
  assert.deepEqual(called.at(-1), "c 300");
  assert.equal(clock.sleeping, 0);
});

test("one that is set again moves, one that is cancelled is not called, and all end with the timetable", async () => {
  const clock = new VirtualClock();
  const timetable = new Timetable(clock);
  const called: string[] = [];
  const [moved, dropped, kept] = ["moved", "dropped", "kept"].map(
    (name) => new TimetableEntry(() => called.push(name)),
  );
  assert.ok(moved && dropped && kept);
  for (const each of [moved, dropped, kept]) timetable.set(each, at(100));
  timetable.set(moved, at(200));
  timetable.cancel(dropped);
  timetable.cancel(dropped);
  await clock.advance(millis(150));
  assert.deepEqual(called, ["kept"]);
  timetable[Symbol.dispose]();
  await clock.advance(millis(150));
  assert.deepEqual(called, ["kept"]);
  assert.equal(clock.sleeping, 0);
});

test("a wake may set itself and others while it is called", async () => {
  const clock = new VirtualClock();
  using timetable = new Timetable(clock);
  const called: number[] = [];
  const every = new TimetableEntry(() => {
    called.push(clock.monotonic());
    timetable.set(every, at(clock.monotonic() + 10));
    timetable.set(new TimetableEntry(() => called.push(-clock.monotonic())), at(clock.monotonic() + 5));
  });
  timetable.set(every, at(0));
  await clock.advance(millis(22));
  assert.deepEqual(called, [0, -5, 10, -15, 20]);
});

test("what a wake sets for later does not hold up what is due before", async () => {
  const clock = new VirtualClock();
  using timetable = new Timetable(clock);
  const called: number[] = [];
  const note = (): number => called.push(clock.monotonic());
  timetable.set(
    new TimetableEntry(() => {
      note();
      timetable.set(new TimetableEntry(note), at(500));
    }),
    at(100),
  );
  timetable.set(new TimetableEntry(note), at(200));
  await clock.advance(millis(1000));
  assert.deepEqual(called, [100, 200, 500]);
});

test("entries set, moved and cancelled in any order are called once, never early, and in order", async () => {
  const step = fc.record({ index: fc.nat(30), time: fc.nat(1000), cancel: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 120 }), async (steps) => {
      const clock = new VirtualClock();
      using timetable = new Timetable(clock);
      const called: number[] = [];
      const wakes = Array.from({ length: 31 }, () => {
        const wake: TimetableEntry = new TimetableEntry(() => {
          assert.equal(clock.monotonic(), wake.at);
          called.push(wake.at);
        });
        return wake;
      });
      const expected = new Map<number, number>();
      for (const { index, time, cancel } of steps) {
        const wake = wakes[index];
        assert.ok(wake);
        if (cancel) timetable.cancel(wake);
        else timetable.set(wake, at(time));
        if (cancel) expected.delete(index);
        else expected.set(index, time);
      }
      assert.equal(timetable.size, expected.size);
      await clock.advance(millis(1000));
      assert.deepEqual(
        called,
        [...expected.values()].sort((a, b) => a - b),
      );
    }),
    { numRuns: 300 },
  );
});
