import { readTestCosts } from "./test-files.ts";
import type { TestCost } from "./test-schedule.ts";

/** A process loads the modules that its files share once. Larger groups leave processors idle while the last one ends. */
const FILES_OF_A_GROUP = 40;
/** A unit test file without a measured cost takes about this long. */
const UNKNOWN_SECONDS = 0.2;

const secondsOf = (file: string, costs: ReadonlyMap<string, TestCost>): number =>
  costs.get(file)?.seconds ?? UNKNOWN_SECONDS;

/** The tests of a group run one after the other, and most of them compute. */
export const groupCost = (files: readonly string[], costs = readTestCosts()): TestCost => ({
  seconds: files.reduce((sum, file) => sum + secondsOf(file, costs), 0),
  cores: 1,
});

/** Divides unit test files among processes, so that each takes about as long. */
export function groupsOf(files: readonly string[], costs = readTestCosts()): readonly (readonly string[])[] {
  const groups = Array.from({ length: Math.ceil(files.length / FILES_OF_A_GROUP) }, () => ({
    files: [] as string[],
    seconds: 0,
  }));
  for (const file of files.toSorted((a, b) => secondsOf(b, costs) - secondsOf(a, costs))) {
    const least = groups.reduce((best, each) => (each.seconds < best.seconds ? each : best));
    least.files.push(file);
    least.seconds += secondsOf(file, costs);
  }
  return groups.map((group) => group.files.sort());
}
