import assert from "node:assert/strict";
import { test } from "node:test";
import { LongTimers } from "./patient-timers.ts";

interface Globals {
  setTimeout(act: () => void, milliseconds?: number): number;
  setInterval(act: () => void, milliseconds?: number): number;
  clearInterval(id: unknown): void;
}

/** Time that the test moves on. */
class Bench {
  now = 0;
  #timers: { at: number; act: () => void }[] = [];
  readonly timers = new LongTimers((milliseconds, act) => {
    const timer = { at: this.now + milliseconds, act };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((each) => each !== timer);
    };
  });
  readonly globals = this.timers.globals as unknown as Globals;

  advance(milliseconds: number): void {
    const end = this.now + milliseconds;
    for (;;) {
      const next = this.#timers.filter(({ at }) => at <= end).sort((one, other) => one.at - other.at)[0];
      if (next === undefined) break;
      this.#timers = this.#timers.filter((each) => each !== next);
      this.now = Math.max(this.now, next.at);
      next.act();
    }
    this.now = end;
  }
}

test("looks become rare while nothing happens, and frequent again at once when something does", () => {
  const bench = new Bench();
  let looks = 0;
  bench.globals.setInterval(() => {
    looks += 1;
  });
  bench.advance(10);
  assert.equal(looks, 10, "a millisecond apart");
  bench.advance(60_000);
  looks = 0;
  bench.advance(10_000);
  assert.equal(looks, 100, "a tenth of a second apart");
  bench.timers.wake();
  bench.timers.wake();
  looks = 0;
  bench.advance(0);
  assert.equal(looks, 1, "at once, and once");
  bench.advance(5);
  assert.equal(looks, 6);
});

test("what is to be done at once is, and says that more may be; longer times are kept", () => {
  const bench = new Bench();
  let looks = 0;
  bench.globals.setInterval(() => {
    looks += 1;
  });
  const long: number[] = [];
  bench.advance(60_000);
  bench.globals.setTimeout(() => void long.push(bench.now), 5000);
  bench.globals.setTimeout(() => void long.push(bench.now), 0);
  looks = 0;
  bench.advance(3);
  assert.equal(looks, 4);
  bench.advance(10_000);
  assert.deepEqual(long, [60_000, 65_000]);
});

test("an interval that was taken back looks no more, and timers have a limit", () => {
  const bench = new Bench();
  let looks = 0;
  const id = bench.globals.setInterval(() => {
    looks += 1;
    bench.globals.clearInterval(id);
  });
  bench.advance(1000);
  assert.equal(looks, 1);
  bench.globals.clearInterval("x");
  for (let count = 0; count < 10_000; count += 1) bench.globals.setTimeout(() => undefined, 1);
  assert.throws(() => bench.globals.setTimeout(() => undefined, 1), /wasm trap: more than 10000 timers/);
});
