import assert from "node:assert/strict";
import { test } from "node:test";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import type { Observations } from "../plan/eviction/eviction-signals.ts";
import { type EvictionState, judgeEviction, NO_EVICTION } from "../plan/eviction/eviction-state.ts";
import type { EvictionThreshold } from "../plan/eviction/eviction-thresholds.ts";
import { PressureLoop } from "./pressure-loop.ts";

const TRANSITION = seconds(60);
const HARD: EvictionThreshold = {
  ...{ signal: "memory.available", gracePeriod: undefined, minReclaim: undefined },
  value: { kind: "quantity", value: 100, text: "100" },
};
const SOFT: EvictionThreshold = {
  ...HARD,
  value: { kind: "quantity", value: 300, text: "300" },
  gracePeriod: seconds(30),
};

const QUICK: EvictionThreshold = { ...SOFT, gracePeriod: millis(1) };

/** A loop over memory of which so much is left. */
class LoopBench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly loop: PressureLoop;
  /** Undefined: it cannot be seen. */
  available: number | undefined;
  /** When it looked, in ms. */
  readonly samples: number[] = [];
  /** When it did something, in ms. */
  readonly reliefs: number[] = [];
  changes = 0;
  underWay = 0;
  mostUnderWay = 0;
  isDone = true;
  canRelieve = false;
  reliefTakes: Millis = millis(100);
  expected: ReadonlySet<string> = new Set();
  #state: EvictionState = NO_EVICTION;
  readonly #life = new AbortController();
  readonly #running: Promise<unknown>;

  constructor(thresholds: readonly EvictionThreshold[], available = 1000) {
    this.available = available;
    const { clock, log } = this;
    this.loop = new PressureLoop(
      {
        ...{ clock, log },
        thresholds: () => thresholds,
        interval: () => seconds(10),
        observe: async () => this.#observe(thresholds),
        conditionsChanged: () => {
          this.changes += 1;
        },
        canRelieve: () => this.canRelieve,
        relieve: async (_due, _observations, signal) => await this.#relieve(signal),
      },
      { transitionPeriod: TRANSITION },
    );
    this.#running = this.loop.run(this.#life.signal).catch((error: unknown) => error);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    assert.match(String(await this.#running), /cancelled/);
    assert.equal(this.clock.sleeping, 0, "nothing of it sleeps on");
  }

  #observe(thresholds: readonly EvictionThreshold[]): Observations {
    this.samples.push(this.clock.monotonic());
    const observed: Observations =
      this.available === undefined
        ? new Map()
        : new Map([[HARD.signal, { available: this.available, capacity: 1000 }]]);
    const rules = { thresholds, transitionPeriod: TRANSITION };
    const verdict = judgeEviction(rules, this.#state, observed, this.clock.monotonic());
    this.#state = verdict.state;
    this.expected = verdict.conditions;
    return observed;
  }

  async #relieve(signal: AbortSignal): Promise<boolean> {
    this.reliefs.push(this.clock.monotonic());
    this.underWay += 1;
    this.mostUnderWay = Math.max(this.mostUnderWay, this.underWay);
    try {
      await this.clock.sleep(this.reliefTakes, signal);
    } finally {
      this.underWay -= 1;
    }
    return this.isDone;
  }
}

test("at rest it samples once an interval", async () => {
  await using bench = new LoopBench([HARD]);
  await bench.clock.advance(seconds(35));
  assert.deepEqual([bench.samples, bench.reliefs, bench.changes], [[0, 10_000, 20_000, 30_000], [], 0]);
});

test("after a measure it samples at once", async () => {
  await using bench = new LoopBench([HARD], 50);
  await bench.clock.advance(millis(250));
  bench.available = 1000;
  await bench.clock.advance(seconds(5));
  assert.deepEqual(bench.reliefs, [0, 100, 200]);
  assert.deepEqual(bench.samples, [0, 100, 200, 300]);
  assert.equal(bench.changes, 1, "the transition period");
});

test("where nothing can be done it is tried every ten seconds, however often it is found crossed, woken and urged", async () => {
  await using bench = new LoopBench([HARD], 50);
  bench.isDone = false;
  for (let ms = 0; ms < 30_000; ms += 50) {
    await bench.clock.advance(millis(50));
    bench.loop.crossed([HARD]);
    bench.loop.urge(HARD);
  }
  assert.equal(bench.reliefs.length, 3, String(bench.reliefs));
  assert.ok(bench.samples.length <= 7, String(bench.samples));
  assert.equal(bench.log.problems.length, 1, "a crossing is logged once");
});

test("the fruitless time is over when something can be done", async () => {
  await using bench = new LoopBench([HARD], 50);
  bench.isDone = false;
  await bench.clock.advance(seconds(1));
  bench.loop.crossed([HARD]);
  await bench.clock.advance(seconds(1));
  assert.equal(bench.reliefs.length, 1);
  bench.canRelieve = true;
  bench.isDone = true;
  bench.loop.crossed([HARD]);
  await bench.clock.advance(millis(1));
  assert.deepEqual(bench.reliefs, [0, 2_000]);
});

test("a soft threshold that is found crossed again and again wakes it once", async () => {
  await using bench = new LoopBench([SOFT]);
  await bench.clock.advance(seconds(1));
  bench.available = 200;
  for (let ms = 0; ms < 29_000; ms += 250) {
    bench.loop.crossed([SOFT]);
    await bench.clock.advance(millis(250));
  }
  assert.deepEqual([bench.samples, bench.reliefs], [[0, 1_000, 11_000, 21_000], []]);
  await bench.clock.advance(seconds(2));
  assert.equal(bench.reliefs[0], 31_000);
});

test("a hard one does not wait for what is done about a soft one; a soft one does, and so does a hard one for a hard one", async () => {
  const cases = [
    { of: [QUICK], next: HARD, reliefs: 2 },
    { of: [QUICK], next: QUICK, reliefs: 1 },
    { of: [HARD], next: HARD, reliefs: 1 },
  ];
  for (const { of, next, reliefs } of cases) {
    await using bench = new LoopBench([...of, next], of[0] === HARD ? 50 : 200);
    bench.reliefTakes = seconds(20);
    await bench.clock.advance(seconds(2));
    assert.equal(bench.reliefs.length, 1);
    bench.available = 50;
    bench.loop.crossed([next]);
    await bench.clock.advance(millis(10));
    assert.equal(bench.reliefs.length, reliefs);
    assert.equal(bench.mostUnderWay, 1);
  }
});

test("urged, it does something once, though nothing is met", async () => {
  await using bench = new LoopBench([HARD]);
  await bench.clock.advance(seconds(1));
  bench.loop.urge(HARD);
  await bench.clock.advance(seconds(8));
  assert.deepEqual([bench.reliefs, bench.changes], [[1_000], 0]);
});

test("in any order of events one measure runs at a time, conditions are those that were judged, and each sample has a cause", async () => {
  const event = fc.record({
    afterMs: fc.nat(3_000),
    available: fc.constantFrom(undefined, 0, 99, 100, 299, 300, 1000, Number.NaN),
    how: fc.constantFrom("crossed hard", "crossed soft", "urge", "nothing"),
    isDone: fc.boolean(),
    canRelieve: fc.boolean(),
    takesMs: fc.nat(20_000),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 20 }), async (events) => {
      await using bench = new LoopBench([HARD, SOFT]);
      let woken = 0;
      for (const { afterMs, available, how, isDone, canRelieve, takesMs } of events) {
        Object.assign(bench, { available, isDone, canRelieve, reliefTakes: millis(takesMs + 1) });
        if (how === "crossed hard") bench.loop.crossed([HARD, SOFT]);
        if (how === "crossed soft") bench.loop.crossed([SOFT]);
        if (how === "urge") bench.loop.urge(HARD);
        woken += how === "nothing" ? 0 : 1;
        await bench.clock.advance(millis(afterMs + 1));
        assert.deepEqual(bench.loop.conditions, bench.expected);
        assert.ok(bench.mostUnderWay <= 1);
      }
      const byTime = 2 + Math.ceil(bench.clock.monotonic() / 5_000);
      assert.ok(bench.samples.length <= byTime + woken + bench.reliefs.length, String(bench.samples));
    }),
    { numRuns: 150 },
  );
});
