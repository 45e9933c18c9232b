import assert from "node:assert/strict";
import { test } from "node:test";
import { usageSample } from "@picolet/test/support/unit/tunnel/usage-samples.ts";
import fc from "fast-check";
import { MAX_LOG_BYTES, SampleLog } from "./sample-log.ts";

const ALL = 100_000;
const minutesOf = (log: SampleLog): readonly number[] => log.pending(0, ALL).map(({ sequence }) => sequence);

/** A log with a sample for each minute, which is its sequence. */
function logOf(minutes: number, pods: number, maxBytes = MAX_LOG_BYTES): SampleLog {
  const log = new SampleLog(maxBytes);
  for (let minute = 1; minute <= minutes; minute += 1) log.append(minute, usageSample(pods, minute));
  return log;
}

test("six hours with ten pods are kept in full, and come back as they were", () => {
  const log = logOf(360, 10);
  assert.equal(log.thinned, 0);
  assert.ok(log.bytes <= MAX_LOG_BYTES, `${log.bytes} bytes`);
  const pending = log.pending(0, ALL);
  assert.equal(pending.length, 360);
  for (const { sequence, sample } of pending) assert.deepEqual(sample, usageSample(10, sequence));
});

test("days away keep the last half hour in full, and the rest ever more thinly", () => {
  const end = 3 * 24 * 60;
  const log = logOf(end, 4, MAX_LOG_BYTES / 3);
  assert.ok(log.bytes <= MAX_LOG_BYTES / 3, `${log.bytes} bytes`);
  const minutes = minutesOf(log);
  assert.ok(
    minutes.includes(end) && minutes.filter((minute) => minute > end - 30).length === 30,
    minutes.slice(-70).join(" "),
  );
  for (const [index, minute] of minutes.entries()) {
    const before = minutes[index - 1] ?? 0;
    assert.ok(minute - before <= 1 + (end - before) / 4, `a gap from ${before} to ${minute} of ${end} minutes`);
  }
  assert.ok(minutes.length >= 150, `${minutes.length} samples`);
  assert.equal(log.thinned + minutes.length, end);
});

test("the bound holds, the newest is there and the order is kept, with any pods, limit and acknowledgements", () => {
  const step = fc.record({ pods: fc.nat({ max: 12 }), acked: fc.option(fc.nat({ max: 100 }), { freq: 4 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), fc.integer({ min: 200, max: 20_000 }), (steps, maxBytes) => {
      const log = new SampleLog(maxBytes);
      let acknowledged = 0;
      for (const [index, { pods, acked }] of steps.entries()) {
        const sequence = index + 1;
        log.append(sequence, usageSample(pods, sequence));
        const newest = log.pending(sequence - 1, 1);
        assert.deepEqual(newest[0]?.sample, usageSample(pods, sequence));
        if (acked !== null) {
          acknowledged = Math.min(sequence, acknowledged + acked);
          log.ack(acknowledged);
        }
        const sequences = log.pending(acknowledged, ALL).map((each) => each.sequence);
        assert.deepEqual(
          sequences,
          [...new Set(sequences)].toSorted((one, other) => one - other),
        );
        assert.ok(sequences.every((each) => each > acknowledged));
        // One sample alone may be larger.
        assert.ok(log.bytes <= maxBytes || log.size <= 1, `${log.bytes} bytes in ${log.size} samples`);
      }
    }),
    { numRuns: 100, examples: [[[0, 6].map((pods) => ({ pods, acked: null })), 625]] },
  );
});

test("the oldest are sent first, as many as may be under way, after those that are", () => {
  const log = logOf(150, 2);
  assert.deepEqual(
    log.pending(0, 3).map(({ sequence }) => sequence),
    [1, 2, 3],
  );
  assert.deepEqual(
    log.pending(59, 3).map(({ sequence }) => sequence),
    [60, 61, 62],
  );
  assert.deepEqual(log.pending(150, 3), []);
});

test("what is saved is restored, and other bytes are refused", () => {
  const log = logOf(130, 3);
  const restored = log.saved().flatMap((chunk) => SampleLog.restored(chunk));
  assert.deepEqual(
    restored,
    log.pending(0, ALL).map(({ sample }) => sample),
  );
  const [chunk = new Uint8Array()] = log.saved();
  const damaged = Uint8Array.from(chunk);
  damaged[6] = 0xff;
  assert.throws(() => SampleLog.restored(damaged), /cannot/);
});
