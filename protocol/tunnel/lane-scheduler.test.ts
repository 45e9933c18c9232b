import assert from "node:assert/strict";
import { test } from "node:test";
import { LaneScheduler, type Sender } from "./lane-scheduler.ts";
import type { Lane } from "./stream.ts";

/** Sends frames of `size` bytes, `count` of them, marked with its number. */
class Source implements Sender {
  readonly #mark: number;
  readonly #size: number;
  left: number;

  constructor(mark: number, size: number, count = Number.POSITIVE_INFINITY) {
    this.#mark = mark;
    this.#size = size;
    this.left = count;
  }

  nextFrame(): Uint8Array | undefined {
    if (this.left <= 0) return undefined;
    this.left -= 1;
    return new Uint8Array(this.#size).fill(this.#mark);
  }
}

const take = (scheduler: LaneScheduler, count: number): (number | undefined)[] =>
  Array.from({ length: count }, () => scheduler.next()?.[0]);

const shareOf = (marks: readonly (number | undefined)[], mark: number): number =>
  marks.filter((each) => each === mark).length;

test("the more urgent lane goes next, after any other", () => {
  const scheduler = new LaneScheduler();
  scheduler.add("bulk", new Source(1, 16_000));
  take(scheduler, 100);
  scheduler.add("control", new Source(2, 100, 1));
  scheduler.add("status", new Source(3, 100, 1));
  assert.deepEqual(take(scheduler, 3), [2, 3, 1]);
});

test("a lane that was idle may not catch up, one that was busy need not wait", () => {
  const scheduler = new LaneScheduler();
  scheduler.add("bulk", new Source(1, 1000));
  take(scheduler, 1000);
  scheduler.add("logs", new Source(2, 1000));
  const marks = take(scheduler, 100);
  assert.ok(shareOf(marks, 1) >= 19, `bulk got ${shareOf(marks, 1)} of 100 beside logs`);
});

test("every pair of lanes shares by weight", () => {
  const weights: readonly (readonly [Lane, number])[] = [
    ["control", 32],
    ["status", 16],
    ["interactive", 8],
    ["logs", 4],
    ["bulk", 1],
  ];
  for (const [one, more] of weights) {
    for (const [other, less] of weights.filter(([, weight]) => weight < more)) {
      const scheduler = new LaneScheduler();
      scheduler.add(one, new Source(1, 1000));
      scheduler.add(other, new Source(2, 1000));
      const marks = take(scheduler, 10 * (more + less));
      assert.ok(Math.abs(shareOf(marks, 2) - 10 * less) <= 1, `${one} and ${other}: ${shareOf(marks, 2)}`);
    }
  }
});

test("within a lane all senders take turns, and one without frames is skipped", () => {
  const scheduler = new LaneScheduler();
  const [one, two, three] = [new Source(1, 10), new Source(2, 10, 2), new Source(3, 10)];
  for (const each of [one, two, three]) scheduler.add("logs", each);
  scheduler.add("logs", one);
  assert.deepEqual(take(scheduler, 9), [1, 2, 3, 1, 2, 3, 1, 3, 1]);
  scheduler.remove("logs", one);
  scheduler.remove("logs", three);
  assert.equal(scheduler.next(), undefined);
});
