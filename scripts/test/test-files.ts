import { globSync, readFileSync, writeFileSync } from "node:fs";
import type { TestCost } from "./test-schedule.ts";

const PATTERN = "{protocol,runtime-adapters,agent,hub,scripts,test}/**/*.test.ts";
/** JSON: `{ "test/e2e/pods/logs.test.ts": [seconds, cores] }`. */
const COSTS = "scripts/test/test-costs.json";

/** The test files whose path contains one of the filters; all, where there is none. */
export const testFiles = (filters: readonly string[]): readonly string[] =>
  globSync(PATTERN)
    .filter((file) => filters.length === 0 || filters.some((filter) => file.includes(filter)))
    .sort();

/** Of the files that take long; `measure-tests.ts` writes them. */
export function readTestCosts(): Map<string, TestCost> {
  const costs = JSON.parse(readFileSync(COSTS, "utf8")) as Readonly<Record<string, readonly [number, number]>>;
  return new Map(Object.entries(costs).map(([file, [seconds, cores]]) => [file, { seconds, cores }]));
}

export function writeTestCosts(costs: ReadonlyMap<string, TestCost>): void {
  const lines = [...costs]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([file, { seconds, cores }]) => `  "${file}": [${Number(seconds.toFixed(1))}, ${Number(cores.toFixed(2))}]`);
  writeFileSync(COSTS, `{\n${lines.join(",\n")}\n}\n`);
}
