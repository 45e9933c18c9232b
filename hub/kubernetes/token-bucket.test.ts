import assert from "node:assert/strict";
import { test } from "node:test";
import { millis, seconds } from "../../protocol/ports.ts";
import { VirtualClock } from "../../test/support/virtual-clock.ts";
import { TokenBucket } from "./token-bucket.ts";

test("a burst passes at once, the rest at the rate, and rest gives the burst back", async () => {
  const clock = new VirtualClock();
  const bucket = new TokenBucket(clock, { perSecond: 10, burst: 5 });
  const { signal } = new AbortController();
  let taken = 0;
  const take = (count: number): void => {
    for (let index = 0; index < count; index += 1) void bucket.take(signal).then(() => (taken += 1));
  };
  take(25);
  await clock.settle();
  assert.equal(taken, 5);
  await clock.advance(seconds(1));
  assert.equal(taken, 15);
  await clock.advance(seconds(1));
  assert.equal(taken, 25);
  await clock.advance(seconds(60));
  take(8);
  await clock.settle();
  assert.equal(taken, 30);
  await clock.advance(millis(300));
  assert.equal(taken, 33);
});

test("whoever gives up waits no longer", async () => {
  const clock = new VirtualClock();
  const bucket = new TokenBucket(clock, { perSecond: 1, burst: 1 });
  await bucket.take(new AbortController().signal);
  const caller = new AbortController();
  const asked = bucket.take(caller.signal);
  caller.abort();
  await assert.rejects(asked);
  assert.equal(clock.sleeping, 0);
});
