import { globSync, readFileSync, writeFileSync } from "node:fs";
import { ImportGraph, SOURCE_FOLDERS } from "../checks/source-tree.ts";
import { TEST_SYSTEM_PROGRAMS } from "./install-test-system.ts";
import type { TestCost } from "./test-schedule.ts";

const PATTERN = `{${SOURCE_FOLDERS.join()}}/**/*.test.ts`;
/** JSON: `{ "test/e2e/pods/logs.test.ts": [seconds, cores] }`. */
const COSTS = "scripts/test/test-costs.json";
/** All of `test/` that a unit test may import: it needs nothing that is installed or built. */
const UNIT_SUPPORT = "test/support/unit/";
/**
 * Names a file that must be built, a program among the support for tests that are no unit tests, or one that is
 * installed for them.
 */
const NEEDS_MORE = new RegExp(
  `["'\`](?:dist/|test/support/(?!unit/)|(?:/[\\w/]+/)?(?:${TEST_SYSTEM_PROGRAMS.join("|")})["'\`])`,
);
/** Cases beyond those that each change needs to be judged by: many kills, random mixes, whole distributions. */
const LONG = /\.long\.test\.ts$/;
/** A test of several packages that takes longer is none that one waits for after each change. */
const MAX_UNIT_SECONDS = 3;

export const isLong = (file: string): boolean => LONG.test(file);

/** The test files whose path contains one of the filters, long ones too; all, where there is none. */
export const testFiles = (filters: readonly string[]): readonly string[] =>
  globSync(PATTERN, { exclude: (name) => name === "node_modules" })
    .filter((file) => filters.length === 0 || filters.some((filter) => file.includes(filter)))
    .sort();

/**
 * Those of `files` that need nothing installed and nothing built: all beside the code, and of `test/` the short ones
 * that import nothing of `test/` but its support for unit tests.
 */
export function unitFiles(files: readonly string[], costs = readTestCosts()): readonly string[] {
  const graph = new ImportGraph();
  return files.filter((file) => {
    if (!file.startsWith("test/")) return true;
    if ((costs.get(file)?.seconds ?? 0) > MAX_UNIT_SECONDS || NEEDS_MORE.test(readFileSync(file, "utf8"))) return false;
    return isPure(file, graph);
  });
}

/** Follows imports within `test/` and `scripts/` alone: the packages import nothing of them. */
function isPure(file: string, graph: ImportGraph): boolean {
  const folder = file.slice(0, file.lastIndexOf("/") + 1);
  return graph
    .importsOf(file)
    .filter((each) => /^(?:test|scripts)\//.test(each) && !each.startsWith(UNIT_SUPPORT))
    .every((each) => each.startsWith(folder) && !each.startsWith("test/support/") && isPure(each, graph));
}

/** Reads the costs of slow files; `measure-tests.ts` writes them. */
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
