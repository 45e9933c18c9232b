import type { TestContext } from "./test-context.ts";

/** Generous for a pod or two on a loaded board; tests that wait on purpose say their own. */
const DEFAULT_LIMIT_SECONDS = 90;

export interface ConformanceTest {
  /** As Kubernetes names the behaviour: area first, then what should be. */
  readonly name: string;
  /** A test that takes longer has failed. */
  readonly limitSeconds: number;
  /** Runs while no other test does: it changes the node, or needs all of it. */
  readonly serial: boolean;
  /** The report counts each group by itself: `node` unless it says otherwise. */
  readonly group?: string | undefined;
  /** A feature that picolet lacks. The test runs and counts as failed all the same, but does not fail the run. */
  readonly gap?: string | undefined;
  /** Throws when the behaviour is not there. */
  readonly run: (t: TestContext) => Promise<void>;
}

export interface TestOptions {
  readonly limitSeconds?: number;
  readonly serial?: boolean;
  readonly group?: string;
  readonly gap?: string;
}

export type Should = (name: string, run: ConformanceTest["run"], options?: TestOptions) => void;

/**
 * The tests of one behaviour: `area("[sig-node] Secrets", (should) => { should("be consumable …", async (t) => …) })`.
 */
export function area(title: string, define: (should: Should) => void): readonly ConformanceTest[] {
  const tests: ConformanceTest[] = [];
  define((name, run, { limitSeconds = DEFAULT_LIMIT_SECONDS, serial = false, group, gap } = {}) => {
    const behaviour = name.includes(" should ") ? name : `should ${name}`;
    tests.push({ name: `${title} ${behaviour}`, limitSeconds, serial, group, gap, run });
  });
  return tests;
}
