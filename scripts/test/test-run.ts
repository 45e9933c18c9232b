/** Runs test files, each in a process of its own or many in one, and counts what becomes of their tests. */
import { relative, resolve } from "node:path";
import { run } from "node:test";
import { describeError } from "@picolet/protocol/errors.ts";
import { LAST_TEST } from "./last-test.ts";

/**
 * Loaded before each test file: what Node makes of the modules that they share, types stripped and compiled, it makes
 * once for all. JavaScript, as to strip one file loads what strips them: a quarter of a unit test's time.
 */
const COMPILE_CACHE = `data:text/javascript,${encodeURIComponent(
  `import { enableCompileCache } from "node:module"; enableCompileCache(${JSON.stringify(resolve("node_modules/.cache/picolet/compiled"))});`,
)}`;
/** Imports the test files that are its arguments. */
const SHARED_PROCESS = "scripts/test/shared-process.ts";

const LAST_NOTES = 20;

export interface TestFailure {
  /** "FILE: NAME" */
  readonly where: string;
  readonly details: string;
}

export interface TestEnd {
  readonly file: string;
  readonly name: string;
  readonly seconds: number;
}

export interface Outcome {
  passed: number;
  readonly failed: TestFailure[];
  /** "FILE: NAME: REASON" */
  readonly skipped: string[];
}

export const newOutcome = (): Outcome => ({ passed: 0, failed: [], skipped: [] });

export interface RunOptions {
  readonly timeoutMs: number;
  /** Called for each test that passes. */
  readonly onPass?: ((test: TestEnd) => void) | undefined;
  readonly onFailure?: (failure: TestFailure) => void;
  /** What the files print. */
  readonly onOutput?: (text: string) => void;
}

/** What a failing test threw, with its causes, and where. The runner wraps it once. */
export function detailsOf(error: unknown): string {
  const thrown = error instanceof Error && error.cause !== undefined ? error.cause : error;
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause === undefined ? (thrown.stack ?? "") : `${describeError(thrown)}\n${thrown.stack}`;
}

/** Runs one file in a process of its own. */
export async function runFile(path: string, outcome: Outcome, options: RunOptions): Promise<void> {
  await runProcess(path, [], outcome, options);
}

/**
 * Runs files in one process, one after the other. When that process fails as a whole, each file runs once more in a
 * process of its own, so that the one to blame is named.
 */
export async function runTogether(paths: readonly string[], outcome: Outcome, options: RunOptions): Promise<void> {
  const isOne = paths.length === 1;
  // Its failures are not told while it may still have to run again.
  const attempt = newOutcome();
  const quiet = { timeoutMs: options.timeoutMs, onPass: options.onPass };
  const { isWhole, notes } = await runProcess(SHARED_PROCESS, paths, attempt, isOne ? options : quiet);
  if (!isWhole && !isOne) {
    for (const path of paths) await runTogether([path], outcome, options);
    return;
  }
  if (!isWhole) {
    const details = `the process failed, or ended before its tests\n${notes.slice(-LAST_NOTES).join("\n")}`;
    fail({ where: paths.join(), details }, attempt, options);
  }
  if (!isOne) for (const each of attempt.failed) options.onFailure?.(each);
  outcome.passed += attempt.passed;
  outcome.failed.push(...attempt.failed);
  outcome.skipped.push(...attempt.skipped);
}

function fail(failure: TestFailure, outcome: Outcome, { onFailure }: RunOptions): void {
  outcome.failed.push(failure);
  onFailure?.(failure);
}

interface ProcessEnd {
  readonly isWhole: boolean;
  /** What the runner says besides, and what was printed on standard error. */
  readonly notes: readonly string[];
}

/** @returns whether the process ran to its end: of `SHARED_PROCESS`, to `LAST_TEST` and with no failure of its own */
async function runProcess(
  path: string,
  argv: readonly string[],
  outcome: Outcome,
  options: RunOptions,
): Promise<ProcessEnd> {
  const isShared = path === SHARED_PROCESS;
  let [isWhole, hasFailed] = [!isShared, false];
  const notes: string[] = [];
  const stream = run({
    files: [path],
    argv: [...argv],
    concurrency: 1,
    timeout: options.timeoutMs,
    execArgv: ["--import", COMPILE_CACHE],
  });
  for await (const event of stream) {
    if (event.type === "test:stderr" || event.type === "test:stdout") options.onOutput?.(event.data.message);
    if (event.type === "test:stderr" || event.type === "test:diagnostic") notes.push(event.data.message);
    if (event.type !== "test:pass" && event.type !== "test:fail") continue;
    const { file, name, skip, todo, details } = event.data;
    const from = relative(".", file ?? path);
    const where = `${from}: ${name}`;
    // A file is reported as a test of its own; only what is inside counts, but for files that fail as a whole.
    const isFile = event.data.nesting === 0 && resolve(name) === resolve(path);
    if (isShared && (isFile || name === LAST_TEST)) {
      if (name === LAST_TEST) isWhole = true;
      else hasFailed ||= event.type === "test:fail";
      continue;
    }
    if (skip !== undefined && skip !== false)
      outcome.skipped.push(`${where}: ${skip === true ? "no reason given" : skip}`);
    else if (todo !== undefined && todo !== false) outcome.skipped.push(`${where}: to do`);
    else if (event.type === "test:fail") fail({ where, details: detailsOf(details.error) }, outcome, options);
    else if (details.type !== "suite" && !isFile) {
      outcome.passed += 1;
      options.onPass?.({ file: from, name, seconds: details.duration_ms / 1000 });
    }
  }
  return { isWhole: isWhole && !hasFailed, notes };
}
