import assert from "node:assert/strict";
import { test } from "node:test";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { linearRegression } from "./linear-regression.ts";
import { plotSamples } from "./plot.ts";
import { judge, type Sample, soak } from "./soak.ts";

const SEED = Number(process.env.PICOLET_SEED ?? 20_261_120);
/** Rounds of the real suite: some 15 seconds; `npm run soak` takes their number as an argument. */
const ROUNDS = 10;
/** An agent that rests takes half of it. */
const MAX_ANON_MIB = 40;

/** An agent whose heap goes up and down by a MiB, and grows. */
function agentThatGrows(mibPerHour: number, count = 200): Sample[] {
  const random = seededRandom(SEED);
  return Array.from({ length: count }, (_, n) => ({
    minutes: n / 4,
    pods: n,
    anonMiB: 20 + random.next() * 2 + (mibPerHour * n) / 240,
  }));
}

test("a line through points has their slope, and an error that shrinks with their number", () => {
  const exact = linearRegression([
    [0, 1],
    [1, 3],
    [2, 5],
  ]);
  assert.deepEqual(exact, { slope: 2, intercept: 1, slopeError: 0 });
  const few = judge(agentThatGrows(0, 50)).perHour?.slopeError ?? 0;
  const many = judge(agentThatGrows(0, 400)).perHour?.slopeError ?? 0;
  assert.ok(many > 0 && many < few / 10);
  assert.throws(
    () =>
      linearRegression([
        [0, 0],
        [1, 1],
      ]),
    RangeError,
  );
});

test("growth beyond the bound is told from a heap that goes up and down", () => {
  assert.ok(!judge(agentThatGrows(0)).grows);
  assert.ok(!judge(agentThatGrows(-5)).grows);
  assert.ok(judge(agentThatGrows(3)).grows);
  assert.deepEqual(judge(agentThatGrows(9, 2)), { perHour: undefined, grows: false });
});

test("the plot is an SVG with a point for each sample", () => {
  const samples = agentThatGrows(1, 30);
  const text = plotSamples(samples, judge(samples).perHour, "a < b");
  assert.match(text, /^<svg xmlns/);
  assert.equal(/points="([^"]+)"/.exec(text)?.[1]?.split(" ").length, 30);
  assert.ok(text.includes("a &lt; b") && text.includes("stroke-dasharray"));
  assert.doesNotMatch(text, /NaN|undefined/);
});

test("an agent under load, in front of a runtime in memory, takes no more than it may", async () => {
  const samples = await soak({ seed: SEED, isOver: (all) => all.length >= ROUNDS });
  assert.equal(samples.length, ROUNDS);
  // Within its first minute the agent still loads code: whether it grows is judged by hours, `npm run soak`.
  for (const { anonMiB } of samples)
    assert.ok(anonMiB > 5 && anonMiB < MAX_ANON_MIB, `${anonMiB} MiB of ${JSON.stringify(samples)}`);
});
