/** Runs test files, each in a process of its own or many in one, and counts the results of their tests. */
import { relative, resolve } from "node:path";
import { run } from "node:test";
import { describeError } from "@picolet/protocol/errors.ts";
import { LAST_TEST } from "./last-test.ts";

/**
 * Preloaded by each test process: Node strips the types of a shared module and compiles it once for all processes. It
 * is JavaScript because stripping a single file loads the stripper, a quarter of a unit test's time.
 */
const COMPILE_CACHE = `data:text/javascript,${encodeURIComponent(
  `import { enableCompileCache } from "node:module"; enableCompileCache(${JSON.stringify(resolve("node_modules/.cache/picolet/compiled"))});`,
)}`;
/** Imports the test files that are its arguments. */
const SHARED_PROCESS = "scripts/test/shared-process.ts";

/** The diagnostics that a failure shows, so that a process that prints without end does not hide it. */
const LAST_NOTES = 20;

/**
 * Limits for `runTogether`: a group takes about 10 s, and its slowest test 3 s, on a quiet machine. A test that hangs
 * fails by its own limit and the others go on; the limit of the process is for what keeps it alive or blocks it.
 */
export const UNIT_TIMEOUTS = { timeoutMs: 5 * 60_000, testTimeoutMs: 2 * 60_000 } as const;

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
  /** A process that takes longer is ended and reported. */
  readonly timeoutMs: number;
  /** A test that takes longer fails, and the next one runs; `timeoutMs` by default. */
  readonly testTimeoutMs?: number | undefined;
  /** `TMPDIR` of the test process; this process's by default. */
  readonly temporaryFolder?: string | undefined;
  /** Called for each test that passes. */
  readonly onPass?: ((test: TestEnd) => void) | undefined;
  readonly onFailure?: (failure: TestFailure) => void;
  /** Called with all that the files print. */
  readonly onOutput?: (text: string) => void;
}

/** Describes the error of a failing test, with its causes and its stack. The runner wraps it once. */
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
 * Runs files in one process, one after the other. When that process fails as a whole or does not end in time, each file
 * runs again in a process of its own, so that the failure names the file. A process that fails although each of its
 * files passes alone is a failure too.
 */
export async function runTogether(paths: readonly string[], outcome: Outcome, options: RunOptions): Promise<void> {
  const isOne = paths.length === 1;
  // Failures are not reported while the files may still have to run again.
  const attempt = newOutcome();
  const { onFailure: _, onOutput: __, ...quiet } = options;
  const end = await runProcess(SHARED_PROCESS, paths, attempt, isOne ? options : quiet);
  if (!end.isWhole && !isOne) {
    const before = outcome.failed.length;
    for (const path of paths) await runTogether([path], outcome, options);
    if (outcome.failed.length > before) return;
    const details = `${describeEnd(end, options)}\nEach of these files passes alone: ${paths.join(" ")}`;
    fail({ where: `${paths.length} unit test files in one process`, details }, outcome, options);
    return;
  }
  if (!end.isWhole) fail({ where: paths.join(), details: describeEnd(end, options) }, attempt, options);
  if (!isOne) for (const each of attempt.failed) options.onFailure?.(each);
  outcome.passed += attempt.passed;
  outcome.failed.push(...attempt.failed);
  outcome.skipped.push(...attempt.skipped);
}

/** Explains why a process is not whole. */
function describeEnd({ isLate, unfinished, notes }: Omit<ProcessEnd, "isWhole">, { timeoutMs }: RunOptions): string {
  const reason = isLate
    ? `the process did not end within ${timeoutMs / 1000} s`
    : "the process failed, or ended before its tests";
  const running = unfinished.length === 0 ? [] : [`unfinished: ${unfinished.join(", ")}`];
  return [reason, ...running, ...notes.slice(-LAST_NOTES)].join("\n");
}

function fail(failure: TestFailure, outcome: Outcome, { onFailure }: RunOptions): void {
  outcome.failed.push(failure);
  onFailure?.(failure);
}

interface ProcessEnd {
  /** The process ran to its end: that of `SHARED_PROCESS`, to `LAST_TEST` and without a failure of its own. */
  readonly isWhole: boolean;
  /** The process was ended because it took longer than its limit. */
  readonly isLate: boolean;
  /** The tests that had begun and had no result, "FILE: NAME". */
  readonly unfinished: readonly string[];
  /** The runner's diagnostics, and the lines on standard error. */
  readonly notes: readonly string[];
}

async function runProcess(
  path: string,
  argv: readonly string[],
  outcome: Outcome,
  options: RunOptions,
): Promise<ProcessEnd> {
  const { timeoutMs, testTimeoutMs = timeoutMs, temporaryFolder } = options;
  const isShared = path === SHARED_PROCESS;
  let [isWhole, hasFailed] = [!isShared, false];
  const notes: string[] = [];
  const unfinished = new Set<string>();
  const late = AbortSignal.timeout(timeoutMs);
  const stream = run({
    files: [path],
    argv: [...argv],
    concurrency: 1,
    // Node applies this limit to each test, never to a process that stays alive after its tests.
    timeout: testTimeoutMs,
    signal: late,
    execArgv: ["--import", COMPILE_CACHE],
    ...(temporaryFolder !== undefined && { env: { ...process.env, TMPDIR: temporaryFolder } }),
  });
  for await (const event of stream) {
    if (event.type === "test:stderr" || event.type === "test:stdout") options.onOutput?.(event.data.message);
    if (event.type === "test:stderr" || event.type === "test:diagnostic") notes.push(event.data.message);
    if (event.type === "test:dequeue" && !isFileOf(event.data, path)) unfinished.add(whereOf(event.data, path));
    if (event.type === "test:complete") unfinished.delete(whereOf(event.data, path));
    if (event.type !== "test:pass" && event.type !== "test:fail") continue;
    const { name, skip, todo, details } = event.data;
    const where = whereOf(event.data, path);
    // A file is reported as a test of its own; only its tests count, unless the file fails as a whole.
    const isFile = isFileOf(event.data, path);
    if (isShared && (isFile || name === LAST_TEST)) {
      if (name === LAST_TEST) isWhole = true;
      else hasFailed ||= event.type === "test:fail";
      continue;
    }
    if (skip !== undefined && skip !== false)
      outcome.skipped.push(`${where}: ${skip === true ? "no reason given" : skip}`);
    else if (todo !== undefined && todo !== false) outcome.skipped.push(`${where}: to do`);
    else if (event.type === "test:fail" && isFile && late.aborted)
      fail(
        { where, details: describeEnd({ isLate: true, unfinished: [...unfinished], notes }, options) },
        outcome,
        options,
      );
    else if (event.type === "test:fail") fail({ where, details: detailsOf(details.error) }, outcome, options);
    else if (details.type !== "suite" && !isFile) {
      outcome.passed += 1;
      const file = relative(".", event.data.file ?? path);
      options.onPass?.({ file, name, seconds: details.duration_ms / 1000 });
    }
  }
  return { isWhole: isWhole && !hasFailed, isLate: late.aborted, unfinished: [...unfinished], notes };
}

const isFileOf = ({ nesting, name }: { readonly nesting: number; readonly name: string }, path: string): boolean =>
  nesting === 0 && resolve(name) === resolve(path);

const whereOf = ({ file, name }: { readonly file?: string | undefined; readonly name: string }, path: string): string =>
  `${relative(".", file ?? path)}: ${name}`;
