/**
 * Every parser that faces a network or a file, against what is committed in `corpus/` and mutations of it. The short form is the same on
 * every machine. `PICOLET_FUZZ_SECONDS=N` follows coverage for so long for each target (`npm run chaos`), and keeps what it finds.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { Coverage, explore, type FuzzOutcome, type FuzzTarget, keepInput, mutated, replay } from "./fuzzer.ts";
import { TARGETS } from "./targets.ts";

/** Some tenths of a second for each target. */
const SHORT_RUNS = 400;
const SECONDS = Number(process.env.PICOLET_FUZZ_SECONDS ?? 0);
const coverage = SECONDS === 0 ? undefined : new Coverage();
const SEED = Number(process.env.PICOLET_SEED ?? 1);

/** Each step is a branch of its own, as in a parser. */
function deepFault(input: Uint8Array): void {
  if (input[0] === 255) {
    if (input[1] === 127) {
      if (input[2] === 63) throw new Error("deep down");
    }
  }
}

function report(target: FuzzTarget, { fault }: FuzzOutcome): void {
  if (fault === undefined) return;
  const path = keepInput(target.name, fault.input, "crash");
  assert.fail(`${fault.why}\nThe input is ${path}: commit it with what mends it.`);
}

describe("fuzzing", () => {
  for (const target of TARGETS) {
    it(`${target.name}: whatever comes is understood or refused`, {
      timeout: 2 * SECONDS * 1000 + 120_000,
    }, async (t) => {
      if (coverage === undefined) {
        report(target, await replay(target, seededRandom(SEED), SHORT_RUNS));
        return;
      }
      const until = performance.now() + SECONDS * 1000;
      const isOver = (): boolean => performance.now() > until;
      const outcome = await explore(target, seededRandom(SEED), { coverage, isOver, keep: true });
      t.diagnostic(`${outcome.runs} runs, ${outcome.corpus} inputs, ${outcome.branches} blocks`);
      report(target, outcome);
    });
  }

  it("finds by coverage a fault that chance alone does not find", async () => {
    const target: FuzzTarget = {
      name: "deep-fault",
      dictionary: ["\xff", "\x7f", "\x3f"],
      seeds: () => [new Uint8Array(3)],
      run: deepFault,
      refuses: () => false,
    };
    using own = new Coverage();
    const isOver = (runs: number): boolean => runs >= 5000;
    const { fault } = await explore(target, seededRandom(1), { coverage: coverage ?? own, isOver, keep: false });
    assert.match(fault?.why ?? "none was found", /deep down/);
    assert.deepEqual([...(fault?.input ?? [])], [255, 127, 63]);
    assert.equal((await replay(target, seededRandom(1), 1000)).fault, undefined);
  });

  it("shortens what it found, and makes the same inputs of the same seed", async () => {
    const target: FuzzTarget = {
      name: "none",
      seeds: () => [new TextEncoder().encode("a long input with an x in it")],
      run: (input) => {
        if (input.includes(0x78)) throw new Error("an x");
      },
      refuses: () => false,
    };
    const { fault } = await replay(
      { ...target, seeds: () => [new TextEncoder().encode("yyyyxw")] },
      seededRandom(1),
      1,
    );
    assert.ok(fault !== undefined);
    const inputs = [1, 2].map(() => mutated(target, [new Uint8Array(20)], seededRandom(7)));
    assert.deepEqual(inputs[0], inputs[1]);
  });
});
