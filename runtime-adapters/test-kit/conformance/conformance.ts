/**
 * The conformance suite of RuntimeAdapter, run on the real thing: one suite for the fake, CRI and components. An
 * adapter's own `*.test.ts` calls `runtimeAdapterConformance` with a fixture; each case gets a fresh one.
 */
import { test } from "node:test";
import { Bench } from "./conformance-bench.ts";
import { CASES } from "./conformance-cases.ts";
import type { ConformanceFeature, ConformanceFixture } from "./conformance-fixture.ts";

export interface ConformanceTraits {
  /** By nature, each with the reason in a few words. */
  readonly lacks?: Readonly<Partial<Record<ConformanceFeature, string>>>;
  /** Leaves out the cases with other names. */
  readonly only?: RegExp | undefined;
}

/** Real time. Generous: on a loaded machine a container start has been seen to take seconds. */
const CASE_TIMEOUT_MS = 120_000;

/**
 * Registers the whole suite with node:test.
 * @param createFixture called for every case; the case disposes of what it returns.
 */
export function runtimeAdapterConformance(
  name: string,
  createFixture: () => Promise<ConformanceFixture>,
  traits: ConformanceTraits = {},
): void {
  const { lacks = {}, only } = traits;
  test(`${name}: what this runtime lacks by nature is said`, (context) => {
    for (const [feature, reason] of Object.entries(lacks)) context.diagnostic(`no ${feature}: ${reason}`);
  });
  for (const each of CASES) {
    if (each.needs !== undefined && lacks[each.needs] !== undefined) continue;
    if (only?.test(each.name) === false) continue;
    test(`${name}: ${each.name}`, { timeout: CASE_TIMEOUT_MS }, async (context) => {
      await using fixture = await createFixture();
      await each.run(new Bench(fixture, context.signal), context);
    });
  }
}
