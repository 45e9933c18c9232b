import assert from "node:assert/strict";
import { test } from "node:test";
import { changesOf, WatchSource } from "@picolet/protocol/async/watch.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { IdleCollection } from "./idle-collection.ts";

const FLOOR_BYTES = 16 * MEBIBYTE;

/** A collection that counts, on virtual time. */
async function withCollection(
  work: (bench: { clock: VirtualClock; changes: WatchSource<number>; count: () => number }) => Promise<void>,
  memory?: { bytes: number; readonly kinds: string[] },
) {
  const clock = new VirtualClock();
  const changes = new WatchSource(0);
  const stop = new AbortController();
  let collections = 0;
  const collect = (after: string): void => {
    collections += 1;
    memory?.kinds.push(after);
    if (memory !== undefined) memory.bytes = FLOOR_BYTES;
  };
  const measured = memory === undefined ? {} : { memory: () => memory.bytes };
  const running = endOfRun(new IdleCollection({ changes, collect, clock, ...measured }).run(stop.signal));
  await work({ clock, changes, count: () => collections });
  stop.abort();
  await running;
}

test("memory is given back once, when it has been quiet for ten seconds after a burst", async () => {
  await withCollection(async ({ clock, changes, count }) => {
    for (let second = 0; second < 30; second += 1) {
      changes.set(second + 1);
      await clock.advance(millis(1000));
    }
    assert.equal(count(), 0);
    await clock.advance(millis(20_000));
    assert.equal(count(), 1);
    await clock.advance(millis(3_600_000));
    assert.equal(count(), 1, "an idle node collects no more");
  });
});

test("a node that keeps changing a little collects at most once in 200 seconds", async () => {
  await withCollection(async ({ clock, changes, count }) => {
    for (let minute = 0; minute < 60; minute += 1) {
      changes.set(minute + 1);
      await clock.advance(millis(60_000));
    }
    assert.ok(count() >= 10 && count() <= 18, `${count()} collections in an hour`);
  });
});

test("what a burst leaves to be done a minute later is collected too, if it is worth it", async () => {
  for (const grown of [MEBIBYTE, MEBIBYTE / 2]) {
    const memory = { bytes: 20 * MEBIBYTE, kinds: [] as string[] };
    await withCollection(async ({ clock, changes }) => {
      changes.set(1);
      await clock.advance(millis(11_000));
      assert.deepEqual(memory.kinds, ["burst"]);
      await clock.advance(millis(60_000));
      memory.bytes += grown;
      await clock.advance(millis(30_000));
      assert.deepEqual(memory.kinds, grown === MEBIBYTE ? ["burst", "burst"] : ["burst"]);
      await clock.advance(millis(3_600_000));
      assert.deepEqual(memory.kinds, grown === MEBIBYTE ? ["burst", "burst"] : ["burst"], "nothing has grown since");
    }, memory);
  }
});

test("what grows at rest is collected, once in 200 seconds at most", async () => {
  const memory = { bytes: 20 * MEBIBYTE, kinds: [] as string[] };
  await withCollection(async ({ clock, changes }) => {
    changes.set(1);
    await clock.advance(millis(11_000));
    for (let minute = 0; minute < 60; minute += 1) {
      memory.bytes += MEBIBYTE;
      await clock.advance(millis(60_000));
    }
    const [first, tail, ...rest] = memory.kinds;
    assert.deepEqual([first, tail, new Set(rest)], ["burst", "burst", new Set(["rest"])]);
    assert.ok(rest.length >= 12 && rest.length <= 18, `${rest.length} collections in an hour`);
  }, memory);
});

test("the young generation is collected every five seconds in any case", async () => {
  const clock = new VirtualClock();
  const stop = new AbortController();
  let count = 0;
  const collectYoung = (): void => {
    count += 1;
  };
  const components = { changes: new WatchSource(0), collect: () => undefined, collectYoung, clock };
  const running = endOfRun(new IdleCollection(components).run(stop.signal));
  await clock.advance(millis(60_000));
  assert.equal(count, 12);
  stop.abort();
  await running;
  assert.equal(clock.sleeping, 0);
});

test("a plugin that is loaded long after the start is followed by a collection, though no pod changes", async () => {
  const clock = new VirtualClock();
  const [pods, devices] = [new WatchSource(0), new WatchSource(0)];
  const stop = new AbortController();
  let collections = 0;
  const collect = (): void => {
    collections += 1;
  };
  const changes = changesOf([pods, devices], stop.signal);
  const running = endOfRun(new IdleCollection({ changes, collect, clock }).run(stop.signal));
  await clock.advance(millis(3_600_000));
  assert.equal(collections, 1);
  devices.set(1);
  await clock.advance(millis(10_000));
  assert.equal(collections, 2);
  stop.abort();
  await running;
});
