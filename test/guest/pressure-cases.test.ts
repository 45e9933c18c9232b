/**
 * Random mixes of pods on a board of 512 MB that runs short of memory, disk, inodes or processes, each judged by an oracle
 * that knows nothing of the code that evicts. `PICOLET_MIXES=50` runs fifty (as `npm run chaos` does), `PICOLET_MIX_SEED=2,14`
 * these two; without either one runs that is soon over: a fork bomb, for which an innocent pod of less priority goes first.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { kubectlMissing } from "../support/fleet.ts";
import { guestMissing } from "../support/guest.ts";
import { PressureBoard } from "../support/pressure-board.ts";
import { type MixedPod, type PressureMix, pressureMix } from "../support/pressure-mixes.ts";
import { judge } from "../support/pressure-oracle.ts";

const skip = guestMissing() ?? (kubectlMissing("1.32") || false);
const { PICOLET_MIXES, PICOLET_MIX_SEED } = process.env;
const SEEDS =
  PICOLET_MIX_SEED !== undefined
    ? PICOLET_MIX_SEED.split(",").map(Number)
    : PICOLET_MIXES !== undefined
      ? Array.from({ length: Number(PICOLET_MIXES) }, (_, index) => index + 1)
      : [25];

let board: PressureBoard;

before(async () => {
  if (skip === false) board = await PressureBoard.start();
});

after(async () => {
  await board?.[Symbol.asyncDispose]();
});

for (const seed of SEEDS) {
  const mix = pressureMix(seed);
  test(`mix ${seed}: ${inShort(mix)}`, { skip }, async (context) => {
    const start = performance.now();
    const reached = (what: string): void =>
      context.diagnostic(`${((performance.now() - start) / 1_000).toFixed(0)} s: ${what}`);
    const observed = await board.run(mix, reached).catch((error: unknown) => {
      throw new Error(`mix ${seed} was not over\n${board.log}`, { cause: error });
    });
    const problems = judge(mix, observed);
    const shown = [...problems, ...observed.told.map(({ reason, name }) => `told: ${reason} ${name}`)];
    if (problems.length > 0) shown.push(JSON.stringify([...observed.pods], undefined, 1), board.log);
    assert.deepEqual(problems, [], shown.join("\n"));
  });
}

function inShort({ pods }: PressureMix): string {
  const one = (pod: MixedPod): string => {
    const what =
      pod.usesUp === undefined ? `holds ${pod.holdMiB}` : `uses up ${pod.usesUp} at ${pod.rate || "full speed"}`;
    const asks =
      pod.requestMiB === undefined ? "" : ` of ${pod.requestMiB}${pod.limitMiB === undefined ? "" : " at most"}`;
    return `${pod.source === "static" ? "static" : pod.priority} ${pod.runtime} ${what}${asks}`;
  };
  return pods.map(one).join(", ");
}
