import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { type PartWork, type Phase, type RunState, runParts } from "./bench-run.ts";

/** Runs parts on a clock that stands still but for `advance`, and notes what happens in which order. */
async function runOf(make: (bench: FakeBench) => Record<string, PartWork>) {
  const bench = new FakeBench();
  const states: RunState<string>[] = [];
  const reported: [name: string, phase: Phase][] = [];
  const state = await runParts(make(bench), {
    now: () => bench.nowMs,
    sleep: (ms, signal) => bench.sleep(ms, signal),
    limitMs: (name, phase) => (name === "hangs" && phase !== "setUp" ? 1000 : Number.POSITIVE_INFINITY),
    onChange: (each) => states.push(each),
    onError: (name, phase) => reported.push([name, phase]),
  });
  return { state, states, reported, order: bench.order };
}

class FakeBench {
  nowMs = 0;
  readonly order: string[] = [];

  /** What is limited at all is over its limit at once. */
  async sleep(ms: number, signal: AbortSignal): Promise<void> {
    if (ms === Number.POSITIVE_INFINITY) await once(signal, "abort");
    else this.nowMs += ms;
  }

  note(text: string, takesMs = 0): void {
    this.order.push(text);
    this.nowMs += takesMs;
  }

  /** A part that rests until `until` and has the figure `{rested: NAME}`. */
  resting(
    name: string,
    { until = Promise.resolve(), finishes = false }: { until?: Promise<void>; finishes?: boolean } = {},
  ) {
    const finish = async (): Promise<unknown> => {
      this.note(`finish ${name}`, 2000);
      return await Promise.resolve({ finished: name });
    };
    return async () => {
      this.note(`start ${name}`, 1000);
      return await Promise.resolve({
        rest: async () => {
          this.note(`${name} rests`);
          await until;
          this.note(`${name} has rested`);
          return { rested: name };
        },
        ...(finishes && { finish }),
        [Symbol.asyncDispose]: async () => {
          this.note(`end ${name}`);
          await Promise.resolve();
        },
      });
    };
  }
}

const fail = (text: string) => () => Promise.reject(new Error(text));

test("parts rest side by side, after all have started; what is timed runs alone, after all have ended", async () => {
  const { order } = await runOf((bench) => {
    const late = Promise.withResolvers<void>();
    const measured = (name: string) => async (rested: unknown) => {
      bench.note(`measure ${name} after ${JSON.stringify(rested)}`);
      await Promise.resolve();
      bench.note(`measured ${name}`);
      return {};
    };
    return {
      a: { setUp: bench.resting("a", { until: late.promise, finishes: true }), measure: measured("a") },
      b: {
        setUp: async () => {
          const resting = await bench.resting("b")();
          const rest = async (): Promise<unknown> => {
            late.resolve();
            return await resting.rest();
          };
          return { ...resting, rest };
        },
      },
      c: { measure: measured("c") },
    };
  });
  assert.deepEqual(order.slice(0, 4), ["start b", "start a", "a rests", "b rests"]);
  assert.deepEqual(order.slice(4, 6).toSorted(), ["a has rested", "b has rested"]);
  assert.deepEqual(order.slice(6, 9).toSorted(), ["end a", "end b", "finish a"]);
  assert.ok(order.indexOf("finish a") < order.indexOf("end a"), "it finishes before it ends");
  assert.deepEqual(order.slice(9), [
    'measure a after {"finished":"a"}',
    "measured a",
    "measure c after undefined",
    "measured c",
  ]);
});

describe("a part that fails", () => {
  for (const [phase, broken] of [
    ["setUp", () => ({ setUp: fail("no room") })],
    [
      "rest",
      (bench: FakeBench) => ({ setUp: async () => ({ ...(await bench.resting("x")()), rest: fail("no room") }) }),
    ],
    [
      "end",
      (bench: FakeBench) => ({ setUp: async () => ({ ...(await bench.resting("x")()), finish: fail("no room") }) }),
    ],
    ["measure", () => ({ measure: fail("no room") })],
  ] as const) {
    test(`in ${phase} is named with its error, and the others go on`, async () => {
      const { state, reported, order } = await runOf((bench) => ({
        before: { setUp: bench.resting("before") },
        x: broken(bench),
        after: {
          setUp: bench.resting("after"),
          measure: async (rested) => await Promise.resolve({ ...(rested as object), timed: 1 }),
        },
      }));
      assert.deepEqual(state.errors, { x: { phase, message: "no room" } });
      assert.deepEqual(reported, [["x", phase]]);
      assert.deepEqual(state.figures.before, { rested: "before" });
      assert.deepEqual(state.figures.after, { rested: "after", timed: 1 });
      assert.deepEqual(state.unfinished, []);
      const started = order.filter((each) => each.startsWith("start ")).map((each) => each.slice(6));
      const ended = order.filter((each) => each.startsWith("end ")).map((each) => each.slice(4));
      assert.deepEqual(ended.toSorted(), started.toSorted(), "what was started is ended");
    });
  }

  test("is not measured after its rest has failed, and keeps its first error", async () => {
    const { state } = await runOf((bench) => ({
      x: {
        setUp: async () => ({
          ...(await bench.resting("x")()),
          rest: fail("the rest"),
          [Symbol.asyncDispose]: fail("the end"),
        }),
        measure: fail("the measure"),
      },
    }));
    assert.deepEqual(state.errors, { x: { phase: "rest", message: "the rest" } });
  });

  test("that never comes to an end has failed when its limit is over", async () => {
    const never = new Promise<void>(() => undefined);
    const { state } = await runOf((bench) => ({
      hangs: { setUp: bench.resting("hangs", { until: never }) },
      other: { setUp: bench.resting("other"), measure: () => Promise.resolve({ timed: 1 }) },
    }));
    assert.deepEqual(state.errors, { hangs: { phase: "rest", message: "it has not come to an end within 1 s" } });
    assert.deepEqual(state.figures, { other: { timed: 1 } });
  });

  test("when it is timed keeps what it had before", async () => {
    const { state } = await runOf((bench) => ({ x: { setUp: bench.resting("x"), measure: fail("slow") } }));
    assert.deepEqual(state.figures, { x: { rested: "x" } });
  });
});

test("each part is reported as it comes, and those that have more to come are unfinished", async () => {
  const { states } = await runOf((bench) => ({
    a: { setUp: bench.resting("a") },
    b: {
      setUp: bench.resting("b", { until: setImmediate() }),
      measure: async (rested) => await Promise.resolve({ ...(rested as object), timed: 1 }),
    },
    c: { measure: fail("no room") },
    d: { measure: async () => await Promise.resolve({ timed: 2 }) },
  }));
  const seen = states.map(({ figures, unfinished }) => [Object.keys(figures).join(), unfinished.join()]);
  const firstOf = (name: string) => seen.find(([figures = ""]) => figures.split(",").includes(name));
  assert.deepEqual(firstOf("a"), ["a", "b,c,d"]);
  assert.deepEqual(firstOf("b"), ["a,b", "b,c,d"]);
  assert.deepEqual(firstOf("d"), ["a,b,d", ""]);
  assert.deepEqual(states.at(-1)?.figures.b, { rested: "b", timed: 1 });
});

test("how long each phase and part took is in seconds", async () => {
  const { state } = await runOf((bench) => ({
    a: { setUp: bench.resting("a", { finishes: true }) },
    b: { setUp: bench.resting("b") },
    c: { measure: async () => await Promise.resolve(bench.note("measure", 1540)) },
  }));
  assert.deepEqual(state.durations.phases, { setUp: 2, rest: 0, end: 2, measure: 1.5 });
  assert.deepEqual(state.durations.parts, {
    a: { setUp: 1, rest: 0, end: 2 },
    b: { setUp: 1, rest: 0, end: 0 },
    c: { measure: 1.5 },
  });
});
