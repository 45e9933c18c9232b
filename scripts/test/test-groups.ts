import { readTestCosts } from "./test-files.ts";

/** A process loads the modules that its files share once; with more files in it, the last one to end is alone for longer. */
const FILES_OF_A_GROUP = 40;
/** Of a file that is not measured. */
const UNKNOWN_SECONDS = 0.4;

/** Divides unit test files among processes, so that each takes about as long. */
export function groupsOf(files: readonly string[], costs = readTestCosts()): readonly (readonly string[])[] {
  const secondsOf = (file: string): number => costs.get(file)?.seconds ?? UNKNOWN_SECONDS;
  const groups = Array.from({ length: Math.ceil(files.length / FILES_OF_A_GROUP) }, () => ({
    files: [] as string[],
    seconds: 0,
  }));
  for (const file of files.toSorted((a, b) => secondsOf(b) - secondsOf(a))) {
    const least = groups.reduce((best, each) => (each.seconds < best.seconds ? each : best));
    least.files.push(file);
    least.seconds += secondsOf(file);
  }
  return groups.map((group) => group.files.sort());
}
