import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { millis, seconds } from "../ports.ts";
import { TokenBucket } from "./token-bucket.ts";

const NEVER = new AbortController().signal;

test("a burst goes at once, then a fixed number each second; a cancelled wait leaves its place", async () => {
  const clock = new VirtualClock();
  const bucket = new TokenBucket({ clock }, { rate: 2, burst: 3 });
  let taken = 0;
  const take = async (signal = NEVER): Promise<void> => {
    await bucket.take(signal);
    taken += 1;
  };
  const leaving = new AbortController();
  const all = [take(), take(), take(), take(), take(leaving.signal), take()];
  await clock.settle();
  assert.equal(taken, 3);
  leaving.abort();
  await assert.rejects(all.splice(4, 1)[0] ?? Promise.resolve());
  await clock.advance(millis(499));
  assert.equal(taken, 3);
  await clock.advance(millis(1));
  assert.equal(taken, 4);
  await clock.advance(seconds(1));
  await Promise.all(all);
  const next = take();
  await clock.settle();
  assert.equal(taken, 6, "the one that left has freed a turn");
  await next;
  await clock.advance(seconds(60));
  await Promise.all([take(), take(), take()]);
  assert.equal(taken, 9, "no more than a burst is saved up");
  take().catch(() => undefined);
  await clock.settle();
  assert.equal(taken, 9);
});

test("without a rate there is no limit", async () => {
  const bucket = new TokenBucket({ clock: new VirtualClock() }, { rate: 0, burst: 1 });
  for (let count = 0; count < 100; count += 1) await bucket.take(NEVER);
});

test("it is full again when all of its burst is back", async () => {
  const clock = new VirtualClock();
  const bucket = new TokenBucket({ clock }, { rate: 2, burst: 3 });
  assert.ok(bucket.isFull);
  await bucket.take(NEVER);
  await clock.advance(millis(499));
  assert.ok(!bucket.isFull);
  await clock.advance(millis(1));
  assert.ok(bucket.isFull);
});

test("a cancelled wait leaves no timer", async () => {
  const clock = new VirtualClock();
  const bucket = new TokenBucket({ clock }, { rate: 1, burst: 1 });
  await bucket.take(NEVER);
  const caller = new AbortController();
  const asked = bucket.take(caller.signal);
  caller.abort();
  await assert.rejects(asked);
  assert.equal(clock.sleeping, 0);
});
