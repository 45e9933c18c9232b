/**
 * The agent above the runtime adapter, on virtual time, in a world in which everything goes wrong.
 * `SIM_SEEDS=20000` runs more seeds, `SIM_SEED=4711` one alone, with its story; `npm run chaos` runs 50,000.
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { OwnThread } from "../support/unit/machine/own-thread.ts";
import { CANARIES } from "./canaries.ts";
import type { Stories } from "./stories.ts";

const SEEDS = 500;

/** Databases in memory where the machine has such a place: the simulation is of crashes, not of disks. */
const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "picolet-sim-"));
const thread = new OwnThread<Stories>(new URL("stories.ts", import.meta.url));
after(async () => {
  await thread[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

/** Seeds that have failed once, and what they showed. */
const FAILED_ONCE: readonly (readonly [seed: number, why: string])[] = [
  [11769, "a store is lost in the middle of a removal"],
  [13475, "a store is lost in the middle of a removal of which a sandbox was left"],
  [19142, "a store is lost twice while a pod is being removed"],
  [1627, "a power cut comes between the end of an object and that of what was told of it"],
  [
    30773,
    "an agent dies that has told a status which its disk has not got, and is followed by one that sees what was before",
  ],
  [933, "an ephemeral container ends that a lost store does not know"],
  [1592, "an object is deleted of which an agent before knew two pods"],
];

async function assertRight(first: number, last = first): Promise<void> {
  const wrong = await thread.run("wrongIn", folder, first, last);
  if (wrong !== undefined) assert.fail(wrong);
}

describe("a simulated board", () => {
  const only = process.env.SIM_SEED;
  const count = Number(process.env.SIM_SEEDS ?? SEEDS);
  if (only !== undefined) {
    test(`seed ${only}`, () => assertRight(Number(only)));
    return;
  }
  test(`comes right again whatever happens to it (${count} seeds)`, () => assertRight(1, count));
  for (const [seed, why] of FAILED_ONCE) test(`${why} (seed ${seed})`, () => assertRight(seed));
  for (const [mistake, , found] of CANARIES) {
    test(`finds out an agent that ${mistake}`, async () => {
      const wrong = await thread.run("findingsOf", folder, mistake);
      assert.ok(wrong !== undefined, "no seed finds it");
      assert.match(wrong, found);
    });
  }
});
