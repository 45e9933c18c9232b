import assert from "node:assert/strict";
import { test } from "node:test";
import { seconds } from "../ports.ts";
import { Backoff, type BackoffPolicy, backoffDelay, EQUAL_JITTER, FULL_JITTER } from "./backoff.ts";

const POLICY: BackoffPolicy = { first: seconds(1), max: seconds(10) };

test("the delay doubles from the first to the longest one, however many failures there are", () => {
  const delays = [0, 1, 2, 3, 4, 5, 5000, Number.POSITIVE_INFINITY].map((failures) => backoffDelay(POLICY, failures));
  assert.deepEqual(delays, [0, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
});

test("a first delay above the longest one is cut too", () => {
  assert.equal(backoffDelay({ first: seconds(20), max: seconds(10) }, 1), 10_000);
});

test("jitter draws a share of the nominal delay, and nothing falls below the shortest delay", () => {
  for (const [jitter, least, expected] of [
    [undefined, undefined, [4000, 4000, 4000]],
    [FULL_JITTER, undefined, [0, 1000, 4000]],
    [EQUAL_JITTER, undefined, [2000, 2500, 4000]],
    [[0.75, 1.25], undefined, [3000, 3500, 5000]],
    [FULL_JITTER, seconds(2), [2000, 2000, 4000]],
  ] as const) {
    const policy = { ...POLICY, ...(jitter && { jitter }), ...(least && { least }) };
    const delays = [0, 0.25, 1].map((lot) => backoffDelay(policy, 3, lot));
    assert.deepEqual(delays, expected);
  }
});

test("a Backoff counts failures until it is reset", () => {
  const lots = [0.5, 0.5, 0.25, 1];
  const backoff = new Backoff({ next: () => lots.shift() ?? 0 }, { ...POLICY, jitter: FULL_JITTER });
  assert.deepEqual([backoff.next(), backoff.next(), backoff.next(), backoff.failures], [500, 1000, 1000, 3]);
  backoff.reset();
  assert.deepEqual([backoff.next(), backoff.failures], [1000, 1]);
});
