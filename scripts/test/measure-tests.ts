/**
 * `node scripts/test/measure-tests.ts [FILTER …]`: runs test files one by one and notes what those take that take long,
 * by which `npm test` schedules them. After `npm run build`, on a machine that does nothing else.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { readTestCosts, testFiles, writeTestCosts } from "./test-files.ts";

/** One that takes less may as well be unknown. */
const LEAST_SECONDS = 2;
const TICKS_PER_SECOND = 100;

/** User's and system's, of this process's children that have ended and of theirs. */
function childSeconds(): number {
  const stat = readFileSync("/proc/self/stat", "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[13]) + Number(fields[14])) / TICKS_PER_SECOND;
}

const costs = readTestCosts();
for (const file of testFiles(process.argv.slice(2))) {
  const [begun, before] = [performance.now(), childSeconds()];
  const { status } = spawnSync(process.execPath, ["--test", file], { stdio: "ignore" });
  const seconds = (performance.now() - begun) / 1000;
  const cores = (childSeconds() - before) / seconds;
  console.log(`${seconds.toFixed(1)} s, ${cores.toFixed(2)} cores: ${file}${status === 0 ? "" : " FAILED"}`);
  if (status !== 0) continue;
  costs.delete(file);
  if (seconds >= LEAST_SECONDS) costs.set(file, { seconds, cores });
}
writeTestCosts(costs);
