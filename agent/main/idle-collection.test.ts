import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "../../protocol/async/watch.ts";
import { millis } from "../../protocol/ports.ts";
import { VirtualClock } from "../../test/support/virtual-clock.ts";
import { IdleCollection } from "./idle-collection.ts";

/** A collection that counts, on virtual time. */
async function withCollection(
  work: (bench: { clock: VirtualClock; changes: WatchSource<number>; count: () => number }) => Promise<void>,
) {
  const clock = new VirtualClock();
  const changes = new WatchSource(0);
  const stop = new AbortController();
  let collections = 0;
  const collect = (): void => {
    collections += 1;
  };
  const running = new IdleCollection({ changes, collect, clock }).run(stop.signal);
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
