/**
 * `npm test`: installs what the tests need, checks, builds, runs every test file, and accounts for skips.
 *
 * - `npm test -- FILTER …` runs only the test files whose path contains one of the filters, without the checks.
 * - Under CI=true a skipped test is a failure: here everything must be there.
 */
import { spawnSync } from "node:child_process";
import { availableParallelism } from "node:os";
import { relative, resolve } from "node:path";
import { run } from "node:test";
import { describeError } from "@picolet/protocol/errors.ts";
import type { StatusReport } from "@picolet/protocol/local-api/status.ts";
import { buildPrograms } from "../build/build.ts";
import { buildExamples } from "../build/build-examples.ts";
import { readOptions } from "../start/options.ts";
import { installKubectl } from "./install-kubectl.ts";
import { installTestSystem } from "./install-test-system.ts";
import { readTestCosts, testFiles } from "./test-files.ts";
import { runScheduled, TestSchedule } from "./test-schedule.ts";

/** A hung test file is ended and reported after this long; the slowest takes about a tenth of it on a quiet machine. */
const FILE_TIMEOUT_MS = Number(process.env.PICOLET_FILE_TIMEOUT_MS ?? 8 * 60_000);
/** A test that takes longer is named with its time. */
const SLOW_MS = 15_000;
/** Each waits for the one emulated board that a machine has. */
const GUEST_TESTS = "test/guest/";
/** They go by what the whole machine has left of memory and processes, which others would take and give back by the hundreds. */
const SHY: ReadonlySet<string> = new Set(["test/e2e/node/pid-pressure.test.ts", "test/e2e/node/soft-eviction.test.ts"]);
/** Unit tests of one process each. */
const SMALL = /^(agent|protocol)\//;
/**
 * Loaded before each test file: what Node makes of the modules that they share, types stripped and compiled, it makes once for all.
 * JavaScript, as to strip one file loads what strips them: a quarter of a unit test's time.
 */
const COMPILE_CACHE = `data:text/javascript,${encodeURIComponent(
  `import { enableCompileCache } from "node:module"; enableCompileCache(${JSON.stringify(resolve("node_modules/.cache/picolet/compiled"))});`,
)}`;

interface Outcome {
  passed: number;
  readonly failed: string[];
  readonly skipped: string[];
}

function runCheck(): void {
  const check = spawnSync("npm", ["run", "-s", "check"], { stdio: "inherit" });
  if (check.status !== 0) process.exit(check.status ?? 1);
}

/** What a failing test threw, with its causes, and where. The runner wraps it once. */
function detailsOf(error: unknown): string {
  const thrown = error instanceof Error && error.cause !== undefined ? error.cause : error;
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause === undefined ? (thrown.stack ?? "") : `${describeError(thrown)}\n${thrown.stack}`;
}

async function runTests(files: readonly string[]): Promise<Outcome> {
  const outcome: Outcome = { passed: 0, failed: [], skipped: [] };
  const schedule = new TestSchedule(files, {
    costs: readTestCosts(),
    cores: availableParallelism(),
    isShy: (file) => SHY.has(file),
    turnOf: (file) => (file.startsWith(GUEST_TESTS) ? GUEST_TESTS : undefined),
    isSmall: (file) => SMALL.test(file),
  });
  await runScheduled(schedule, (file) => runFile(file, outcome));
  return outcome;
}

async function runFile(path: string, outcome: Outcome): Promise<void> {
  const stream = run({
    files: [path],
    concurrency: 1,
    timeout: FILE_TIMEOUT_MS,
    execArgv: ["--import", COMPILE_CACHE],
  });
  for await (const event of stream) {
    if (event.type === "test:stderr" || event.type === "test:stdout") continue;
    if (event.type === "test:pass" || event.type === "test:fail") {
      const { file, name, skip, todo, details } = event.data;
      const where = `${relative(".", file ?? path)}: ${name}`;
      // A file is reported as a test of its own; only what is inside counts, but for files that fail as a whole.
      const isFile = event.data.nesting === 0 && name.endsWith(".test.ts");
      if (skip !== undefined && skip !== false)
        outcome.skipped.push(`${where}: ${skip === true ? "no reason given" : skip}`);
      else if (todo !== undefined && todo !== false) outcome.skipped.push(`${where}: to do`);
      else if (event.type === "test:fail") {
        outcome.failed.push(where);
        console.log(`FAIL ${where}\n${detailsOf(details.error)}\n`);
      } else if (details.type !== "suite" && !isFile) {
        outcome.passed += 1;
        if (details.duration_ms > SLOW_MS) console.log(`  ${(details.duration_ms / 1000).toFixed(1)} s: ${name}`);
      }
    }
    if (event.type === "test:summary" && event.data.file !== undefined) {
      const { counts, duration_ms, file } = event.data;
      console.log(`${relative(".", file)}: ${counts.passed} passed, ${(duration_ms / 1000).toFixed(1)} s`);
    }
  }
}

/** Last, as it builds anew and has a folder of its own: what a user does first. */
function tryStart(outcome: Outcome): void {
  const name = "npm start -- --exit-when-ready ends with every sample pod Ready";
  const { status, stdout, stderr } = spawnSync("npm", ["start", "--", "--exit-when-ready"], { encoding: "utf8" });
  try {
    const report = JSON.parse(stdout.slice(stdout.indexOf("\n{") + 1)) as StatusReport;
    if (status !== 0) throw new Error(`it ended with ${status}`);
    if (report.pods.length === 0 || !report.pods.every(({ ready }) => ready)) throw new Error("not every pod is Ready");
    outcome.passed += 1;
  } catch (error) {
    outcome.failed.push(name);
    console.log(`FAIL ${name}\n${detailsOf(error)}\n${stdout}\n${stderr}`);
  }
}

const filters = readOptions({
  name: "test",
  summary: "checks, builds, and runs every test; with FILTER the tests whose path holds one of them",
  operands: "[FILTER...]",
  atMost: 1000,
  flags: [],
}).positionals;
const files = testFiles(filters);
if (files.length === 0) {
  console.error(`no test file matches ${filters.join(" ")}`);
  process.exit(64);
}
installTestSystem();
installKubectl();
if (filters.length === 0) runCheck();
await buildPrograms();
await buildExamples();
const outcome = await runTests(files);
if (filters.length === 0) tryStart(outcome);
const { passed, failed, skipped } = outcome;
for (const each of skipped) console.log(`SKIPPED ${each}`);
for (const each of failed) console.log(`FAILED ${each}`);
console.log(`${passed} passed, ${failed.length} failed, ${skipped.length} skipped`);
const skipsCount = process.env.CI === "true" && skipped.length > 0;
if (skipsCount) console.error("under CI=true a skipped test is a failure");
process.exit(failed.length > 0 || passed === 0 || skipsCount ? 1 : 0);
