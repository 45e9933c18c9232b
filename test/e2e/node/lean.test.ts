/**
 * The cost of an agent with a hub while nothing happens must not grow: memory, bytes to the hub and to the disk,
 * wakeups, system calls, with no pod and with ten. Real hub, real agent, real containers. The limits are in
 * test/bench/goals.ts; PICOLET_LEAN=figures prints the measured figures.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { describeMissed, judge, LEAN_GOALS } from "../../bench/goals.ts";
import { type LeanFigures, leanFigures } from "../../bench/memory/lean-figures.ts";
import { containerdMissing } from "../../support/containerd/containerd.ts";

const skip = containerdMissing() ?? false;
/** One is enough when nothing is above its limit; what is above it in so many is always above it. */
const MAX_PERIODS = 8;

function aboveLimits(pods: number, figures: Partial<LeanFigures>): string[] {
  const name = `pods${pods}`;
  const goals = LEAN_GOALS.filter(({ figure }) => {
    const [, of = "", what = ""] = figure.split(".");
    return of === name && what in figures;
  });
  return describeMissed(judge({ lean: { [name]: figures } }, goals, { parts: ["lean"] }));
}

/** It is waiting for heartbeats, nearly all of it. */
describe("an agent with a hub at rest", { skip, concurrency: 2 }, () => {
  for (const pods of [0, 10]) {
    test(`takes no more than it did, with ${pods} pods`, async () => {
      const isEnough = (figures: Partial<LeanFigures>): boolean => aboveLimits(pods, figures).length === 0;
      const figures = await leanFigures({ pods, maxPeriods: MAX_PERIODS, isEnough });
      if (process.env.PICOLET_LEAN === "figures") console.log(`${pods} pods: ${JSON.stringify(figures)}`);
      assert.deepEqual(aboveLimits(pods, figures), [], JSON.stringify(figures));
    });
  }
});
