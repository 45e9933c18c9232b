import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DueQueue } from "./due-queue.ts";

const drained = (queue: DueQueue, nowMs: number): number[] => {
  const times: number[] = [];
  for (let entry = queue.pop(nowMs); entry !== undefined; entry = queue.pop(nowMs)) times.push(entry.dueMs);
  return times;
};

test("gives out what is due, earliest first, and nothing before its time", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(100)), fc.nat(100), (times, now) => {
      const queue = new DueQueue();
      for (const [index, time] of times.entries()) queue.push(`key-${index}`, time);
      const sorted = times.toSorted((a, b) => a - b);
      assert.equal(queue.nextDueMs, sorted[0]);
      assert.deepEqual(
        drained(queue, now),
        sorted.filter((time) => time <= now),
      );
      assert.deepEqual(
        drained(queue, 100),
        sorted.filter((time) => time > now),
      );
      assert.equal(queue.nextDueMs, undefined);
    }),
  );
});
