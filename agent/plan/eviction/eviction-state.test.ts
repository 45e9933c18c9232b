import assert from "node:assert/strict";
import { test } from "node:test";
import { type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import fc from "fast-check";
import type { Observations } from "./eviction-signals.ts";
import { type EvictionRules, type EvictionState, judgeEviction, NO_EVICTION } from "./eviction-state.ts";
import type { Amount, EvictionSignal, EvictionThreshold } from "./eviction-thresholds.ts";

const quantity = (value: number): Amount => ({ kind: "quantity", value, text: String(value) });
const threshold = (
  signal: EvictionSignal,
  value: number,
  rest: Partial<EvictionThreshold> = {},
): EvictionThreshold => ({ signal, value: quantity(value), gracePeriod: undefined, minReclaim: undefined, ...rest });
const seen = (values: Partial<Record<EvictionSignal, number>>): Observations =>
  new Map(
    Object.entries(values).map(([signal, available]) => [signal as EvictionSignal, { available, capacity: 1000 }]),
  );
const at = (value: number): MonotonicMs => value as MonotonicMs;

/** Judges one sample after the other. */
class Judge {
  state: EvictionState = NO_EVICTION;
  readonly #rules: EvictionRules;

  constructor(thresholds: readonly EvictionThreshold[], transitionPeriod = seconds(300)) {
    this.#rules = { thresholds, transitionPeriod };
  }

  look(nowMs: number, values: Partial<Record<EvictionSignal, number>>) {
    const verdict = judgeEviction(this.#rules, this.state, seen(values), at(nowMs));
    this.state = verdict.state;
    const due = verdict.due.map(({ signal }) => signal);
    return { due, conditions: [...verdict.conditions], wakeIn: verdict.wakeIn };
  }
}

test("a hard threshold is due at once, and only below it", () => {
  const judge = new Judge([threshold("memory.available", 100)]);
  assert.deepEqual(judge.look(0, { "memory.available": 100 }).due, []);
  const { due, conditions } = judge.look(1, { "memory.available": 99 });
  assert.deepEqual([due, conditions], [["memory.available"], ["MemoryPressure"]]);
});

test("a share is one of the capacity that was observed", () => {
  const share: Amount = { kind: "percentage", share: 0.1, text: "10%" };
  const judge = new Judge([threshold("nodefs.available", 0, { value: share })]);
  assert.deepEqual(judge.look(0, { "nodefs.available": 100 }).due, []);
  assert.deepEqual(judge.look(1, { "nodefs.available": 99 }).due, ["nodefs.available"]);
});

test("a soft threshold is a condition at once and due after its grace period, counted anew after each recovery", () => {
  const judge = new Judge([threshold("memory.available", 100, { gracePeriod: seconds(30) })]);
  const first = judge.look(0, { "memory.available": 50 });
  assert.deepEqual(first, { due: [], conditions: ["MemoryPressure"], wakeIn: seconds(30) });
  assert.deepEqual(judge.look(20_000, { "memory.available": 150 }).due, []);
  assert.deepEqual(judge.look(25_000, { "memory.available": 50 }).due, []);
  assert.equal(judge.look(35_000, { "memory.available": 50 }).wakeIn, seconds(20));
  assert.deepEqual(judge.look(55_000, { "memory.available": 50 }).due, ["memory.available"]);
});

test("once it is due it stays so until the minimum reclaim is free too, but that alone begins nothing", () => {
  const judge = new Judge([threshold("nodefs.available", 100, { minReclaim: quantity(50) })]);
  assert.deepEqual(judge.look(0, { "nodefs.available": 120 }).due, []);
  assert.deepEqual(judge.look(1, { "nodefs.available": 90 }).due, ["nodefs.available"]);
  assert.deepEqual(judge.look(2, { "nodefs.available": 149 }).due, ["nodefs.available"]);
  assert.deepEqual(judge.look(3, { "nodefs.available": 150 }).due, []);
  assert.deepEqual(judge.look(4, { "nodefs.available": 120 }).due, []);
});

test("a condition lasts for the transition period after it was last seen", () => {
  const judge = new Judge([threshold("pid.available", 10)], seconds(60));
  assert.deepEqual(judge.look(0, { "pid.available": 5 }).conditions, ["PIDPressure"]);
  const after = judge.look(10_000, { "pid.available": 500 });
  assert.deepEqual(after, { due: [], conditions: ["PIDPressure"], wakeIn: seconds(50) });
  assert.deepEqual(judge.look(59_999, { "pid.available": 500 }).conditions, ["PIDPressure"]);
  assert.deepEqual(judge.look(60_000, { "pid.available": 500 }), { due: [], conditions: [], wakeIn: undefined });
});

test("memory comes before all else, hard before soft", () => {
  const judge = new Judge([
    threshold("nodefs.available", 100),
    threshold("memory.available", 200, { gracePeriod: millis(0) }),
    threshold("allocatableMemory.available", 100),
  ]);
  const { due } = judge.look(0, { "nodefs.available": 1, "memory.available": 1, "allocatableMemory.available": 1 });
  assert.deepEqual(due, ["allocatableMemory.available", "memory.available", "nodefs.available"]);
});

test("what cannot be observed evicts nobody and is no recovery", () => {
  const judge = new Judge([threshold("memory.available", 100)], seconds(1));
  assert.deepEqual(judge.look(0, {}), { due: [], conditions: [], wakeIn: undefined });
  judge.look(1, { "memory.available": 1 });
  const { due, conditions } = judge.look(60_000, {});
  assert.deepEqual([due, conditions], [[], ["MemoryPressure"]]);
});

test("whatever is seen, in whatever order: due means observed, below and for long enough; a condition holds whatever is due", () => {
  const thresholds = [
    threshold("memory.available", 100),
    threshold("memory.available", 300, { gracePeriod: seconds(5) }),
    threshold("nodefs.available", 200, { minReclaim: quantity(100) }),
  ];
  const looks = fc.array(
    fc.record({
      after: fc.integer({ min: 0, max: 4000 }),
      memory: fc.option(fc.integer({ min: 0, max: 400 }), { nil: undefined }),
      disk: fc.option(fc.integer({ min: 0, max: 400 }), { nil: undefined }),
    }),
  );
  fc.assert(
    fc.property(looks, (all) => {
      let state = NO_EVICTION;
      let now = 0;
      let below: number | undefined;
      for (const { after, memory, disk } of all) {
        now += after;
        const values = {
          ...(memory !== undefined && { "memory.available": memory }),
          ...(disk !== undefined && { "nodefs.available": disk }),
        };
        if (memory !== undefined) below = memory < 300 ? (below ?? now) : undefined;
        const rules = { thresholds, transitionPeriod: seconds(10) };
        const verdict = judgeEviction(rules, state, seen(values), at(now));
        state = verdict.state;
        const [hard, soft, nodefs] = thresholds.map((each) => verdict.due.includes(each));
        assert.equal(hard, memory !== undefined && memory < 100);
        assert.equal(soft, memory !== undefined && below !== undefined && now - below >= 5000);
        if (nodefs) assert.ok(disk !== undefined && disk < 300);
        if (disk !== undefined && disk < 200) assert.ok(nodefs);
        if (hard || soft) assert.ok(verdict.conditions.has("MemoryPressure"));
        if (nodefs) assert.ok(verdict.conditions.has("DiskPressure"));
        assert.ok(verdict.wakeIn === undefined || verdict.wakeIn >= 0);
      }
    }),
  );
});
