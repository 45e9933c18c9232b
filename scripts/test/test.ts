/**
 * `npm test`: installs and builds what the tests need and tries `npm start`, while it runs `npm run check` and unit
 * tests. Then it runs the other tests, beside the last of them the unit tests that are left, and lists the skipped
 * ones. Unit test files share processes, as in `npm run unit`; each other file has a process of its own.
 *
 * - Without a filter, files named `*.long.test.ts` are left for `npm run test:long`, and the run is over within
 *   LIMIT_SECONDS: on a machine that is too slow for all, the costliest files are left out, and listed.
 * - `npm test -- FILTER …` runs only the test files whose path contains one of the filters, also long ones, without the
 *   checks and without that limit. When all of them are unit tests, nothing is installed or built.
 * - `npm test -- --all` runs every test, without that limit.
 * - Under CI=true a skipped test is a failure, because CI has all that tests need.
 * - PICOLET_FILE_TIMEOUT_MS replaces the time limits of files and of unit tests.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { text } from "node:stream/consumers";
import type { StatusReport } from "@picolet/protocol/local-api/status.ts";
import { readOptions } from "../options.ts";
import { createMemoryFolder } from "./memory-folder.ts";
import { isLong, readTestCosts, testFiles, unitFiles } from "./test-files.ts";
import { groupCost, groupsOf } from "./test-groups.ts";
import {
  detailsOf,
  newOutcome,
  type Outcome,
  type RunOptions,
  runFile,
  runTogether,
  UNIT_TIMEOUTS,
} from "./test-run.ts";
import { runScheduled, type TestCost, TestSchedule } from "./test-schedule.ts";

const FILE_TIMEOUT = process.env.PICOLET_FILE_TIMEOUT_MS;
/** A test file that takes longer is ended and reported; the slowest takes about a tenth of it on a quiet machine. */
const FILE_TIMEOUT_MS = Number(FILE_TIMEOUT ?? 12 * 60_000);
/** CI ends a run after 20 minutes, of which installing the packages takes one or two. */
const LIMIT_SECONDS = 17 * 60;
/** Tests of what a change must not break: on a slow machine they are left out after all others. */
const KEPT = /^test\/(?:attack|conformance|cri\/conformance|e2e\/pods|e2e\/hub\/kubectl|wasm\/conformance)/;
/** Slower tests are printed with their time. */
const SLOW_SECONDS = 15;
/** Their tests wait for the one emulated board of a machine. */
const GUEST_TESTS = "test/guest/";
const FIRMWARE_TESTS = "test/firmware/";
/** Tests that measure the free memory or processes of the whole machine, which other large tests change by hundreds. */
const SHY: ReadonlySet<string> = new Set([
  "test/e2e/node/pid-pressure.long.test.ts",
  "test/e2e/node/soft-eviction.long.test.ts",
]);

/**
 * Tests within one process that take little memory and start few processes. They run last, beside the shy ones, which
 * wait for most of their time.
 */
const SMALL_TESTS = /^test\/(?:identity|sim|store|telemetry|tunnel)\/|^test\/hub\/authorization/;

/** Needs nothing installed or built: a group of unit tests, or the checks. */
interface Job {
  readonly name: string;
  readonly cost: TestCost;
  readonly run: (outcome: Outcome) => Promise<void>;
}

const REPORTING: RunOptions = {
  timeoutMs: FILE_TIMEOUT_MS,
  onFailure: ({ where, details }) => console.log(`FAIL ${where}\n${details}\n`),
  onPass: ({ name, seconds }) => {
    if (seconds > SLOW_SECONDS) console.log(`  ${seconds.toFixed(1)} s: ${name}`);
  },
};

/** Emulated boards boot, and wait for one another, which takes minutes of a busy machine. */
const isEmulated = (file: string): boolean => file.startsWith(GUEST_TESTS) || file.startsWith(FIRMWARE_TESTS);
const limitOf = (file: string): number =>
  isEmulated(file) && FILE_TIMEOUT === undefined ? 2 * FILE_TIMEOUT_MS : FILE_TIMEOUT_MS;

const CHECK = "npm run check";
/** Its cost on a quiet machine. */
const CHECK_COST: TestCost = { seconds: 25, cores: 1 };

interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly problems: string;
}

async function npm(...args: readonly string[]): Promise<Ended> {
  const child = spawn("npm", args, { stdio: ["ignore", "pipe", "pipe"] });
  const [out, problems, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  return { code, out, problems };
}

async function runCheck(outcome: Outcome): Promise<void> {
  const { code, out, problems } = await npm("run", "-s", "check");
  if (code === 0) outcome.passed += 1;
  else report({ where: CHECK, details: `${out}\n${problems}` }, outcome);
}

function report(failure: Outcome["failed"][number], outcome: Outcome): void {
  outcome.failed.push(failure);
  REPORTING.onFailure?.(failure);
}

/** In a process of its own, because apt and kubectl's downloads block it while the unit tests run here. */
async function installAndBuild(): Promise<void> {
  const child = spawn(process.execPath, ["scripts/test/install-and-build.ts"], { stdio: "inherit" });
  const [code, signal] = await once(child, "close");
  if (code === 0) return;
  console.error(`cannot install and build what the tests need: it ended with ${code ?? signal}`);
  process.exit(1);
}

/** Unit test files in shared processes. A job with one file has its name. */
function unitJobs(files: readonly string[]): readonly Job[] {
  const timeouts = FILE_TIMEOUT === undefined ? UNIT_TIMEOUTS : { timeoutMs: FILE_TIMEOUT_MS };
  const temporaryFolder = files.length === 0 ? undefined : createMemoryFolder();
  const options = { ...REPORTING, ...timeouts, temporaryFolder };
  return groupsOf(files).map((group, index, { length }) => ({
    name: group.length === 1 ? group.join() : `unit tests ${index + 1} of ${length}`,
    cost: groupCost(group),
    run: (outcome) => runTogether(group, outcome, options),
  }));
}

/** @param building ends when all that `files` need is there; `jobs` need none of it */
async function runTests(
  files: readonly string[],
  jobs: readonly Job[],
  outcome: Outcome,
  building: Promise<void>,
): Promise<readonly string[]> {
  const jobsByName = new Map(jobs.map((job) => [job.name, job]));
  const schedule = new TestSchedule([...files, ...jobsByName.keys()], {
    costs: new Map([...readTestCosts(), ...jobs.map(({ name, cost }) => [name, cost] as const)]),
    cores: availableParallelism(),
    isShy: (file) => SHY.has(file),
    turnOf: (file) => (isEmulated(file) ? GUEST_TESTS : undefined),
    isSmall: (file) => (jobsByName.has(file) && file !== CHECK) || SMALL_TESTS.test(file),
    needsBuild: (file) => !jobsByName.has(file),
    isKept: (file) => KEPT.test(file),
    limit: isWhole ? { seconds: LIMIT_SECONDS, now: () => performance.now() / 1000 } : undefined,
  });
  const runOne = async (name: string): Promise<void> => {
    const begun = performance.now();
    // Others run at the same time: each has an outcome of its own.
    const own = newOutcome();
    await (jobsByName.get(name)?.run(own) ?? runFile(name, own, { ...REPORTING, timeoutMs: limitOf(name) }));
    outcome.passed += own.passed;
    outcome.failed.push(...own.failed);
    outcome.skipped.push(...own.skipped);
    const seconds = (performance.now() - begun) / 1000;
    console.log(`${name}: ${own.passed} passed, ${seconds.toFixed(1)} s`);
  };
  await runScheduled(schedule, runOne, building);
  return schedule.leftOut;
}

/** Before the tests that use what is built, because it builds again. */
async function tryStart(outcome: Outcome): Promise<void> {
  const name = "npm start -- --exit-when-ready ends with every sample pod Ready";
  const { code, out, problems } = await npm("start", "--", "--exit-when-ready");
  try {
    const answer = JSON.parse(out.slice(out.indexOf("\n{") + 1)) as StatusReport;
    if (code !== 0) throw new Error(`it ended with ${code}`);
    if (answer.pods.length === 0 || !answer.pods.every(({ ready }) => ready)) throw new Error("not every pod is Ready");
    outcome.passed += 1;
  } catch (error) {
    report({ where: name, details: `${detailsOf(error)}\n${out}\n${problems}` }, outcome);
  }
}

const input = readOptions({
  name: "test",
  summary: "checks, builds, and runs the tests; with FILTER the tests whose path holds one of them",
  operands: "[FILTER...]",
  atMost: 1000,
  flags: [{ name: "all", help: "run the long tests too, however long they take" }],
});
const filters = input.positionals;
/** True for the run of CI. */
const isWhole = filters.length === 0 && !input.flag("all");
const files = testFiles(filters).filter((file) => !isWhole || !isLong(file));
if (files.length === 0) {
  console.error(`no test file matches ${filters.join(" ")}`);
  process.exit(64);
}
const units = new Set(unitFiles(files));
const others = files.filter((file) => !units.has(file));
const jobs = [...unitJobs([...units])];
if (filters.length === 0) jobs.push({ name: CHECK, cost: CHECK_COST, run: runCheck });
const outcome = newOutcome();

async function prepare(): Promise<void> {
  if (others.length > 0) await installAndBuild();
  if (filters.length === 0) await tryStart(outcome);
}

const leftOut = await runTests(others, jobs, outcome, prepare());
const { passed, failed, skipped } = outcome;
for (const each of leftOut) console.log(`LEFT OUT ${each}`);
if (leftOut.length > 0)
  console.log(`this machine is too slow for ${leftOut.length} files in time: npm test -- --all runs them`);
for (const each of skipped) console.log(`SKIPPED ${each}`);
for (const { where } of failed) console.log(`FAILED ${where}`);
console.log(`${passed} passed, ${failed.length} failed, ${skipped.length} skipped`);
const skipsCount = process.env.CI === "true" && skipped.length > 0;
if (skipsCount) console.error("under CI=true a skipped test is a failure");
process.exit(failed.length > 0 || passed === 0 || skipsCount ? 1 : 0);
