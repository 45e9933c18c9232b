/**
 * `npm run unit [-- PATTERN …]`: runs the unit tests, with nothing installed but npm's packages and nothing built. A
 * PATTERN is part of a file's path. Prints failures in full, then one line.
 *
 * --watch runs again what a change concerns, until it is ended --list prints the names of the tests instead, a line
 * each
 */
import { chmodSync, mkdtempSync, rmSync, statfsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { testFiles, unitFiles } from "./test-files.ts";
import { groupsOf } from "./test-groups.ts";
import { testNamesOf } from "./test-names.ts";
import { newOutcome, type Outcome, runTogether } from "./test-run.ts";
import { watchTests } from "./watch-tests.ts";

/** All of them take less than a minute. */
const TIMEOUT_MS = 5 * 60_000;
/** More processes than processors: now and then each waits for the disk. */
const SURPLUS_PROCESSES = 1;
/** A test that takes longer is named, when none failed. */
const SLOW_SECONDS = 3;

/**
 * Temporary folders in memory: half of what unit tests take is to wait for the disk, and none of them is about the
 * disk.
 */
const MEMORY = "/dev/shm";
const LEAST_MEMORY_BYTES = 2 ** 30;

function keepTemporaryFilesInMemory(): void {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    if (bavail * bsize < LEAST_MEMORY_BYTES) return;
    const folder = mkdtempSync(`${MEMORY}/picolet-unit-`);
    // Some tests are about users who may not read a file in it.
    chmodSync(folder, 0o755);
    process.env.TMPDIR = folder;
    process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
  } catch {
    // There is no such folder, or it may not be written to: the disk serves.
  }
}

/** @returns whether none failed */
async function runUnits(files: readonly string[]): Promise<boolean> {
  const begun = performance.now();
  const outcome = newOutcome();
  const slow: string[] = [];
  const waiting = [...groupsOf(files)];
  const runNext = async (): Promise<void> => {
    for (let group = waiting.shift(); group !== undefined; group = waiting.shift()) {
      await runTogether(group, outcome, {
        timeoutMs: TIMEOUT_MS,
        onFailure: ({ where, details }) => console.log(`FAIL ${where}\n${details}\n`),
        onPass: ({ file, name, seconds }) => {
          if (seconds > SLOW_SECONDS) slow.push(`${seconds.toFixed(1)} s: ${file}: ${name}`);
        },
        ...(files.length === 1 && { onOutput: (text: string) => void process.stdout.write(text) }),
      });
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() + SURPLUS_PROCESSES }, runNext));
  if (outcome.failed.length === 0) for (const each of slow) console.log(each);
  console.log(summaryOf(outcome, files.length, (performance.now() - begun) / 1000));
  return outcome.failed.length === 0 && outcome.passed > 0;
}

function summaryOf({ passed, failed, skipped }: Outcome, files: number, seconds: number): string {
  for (const each of skipped) console.log(`SKIPPED ${each}`);
  for (const { where } of failed) console.log(`FAILED ${where}`);
  const counts = `${passed} passed, ${failed.length} failed, ${skipped.length} skipped`;
  return `${counts} in ${files} files, ${seconds.toFixed(1)} s`;
}

const { values, positionals } = parseArgs({
  options: { watch: { type: "boolean", default: false }, list: { type: "boolean", default: false } },
  allowPositionals: true,
});
const matching = testFiles(positionals);
const files = unitFiles(matching);
if (files.length === 0) {
  const others = matching.length === 0 ? "" : `: ${matching.join(", ")} needs what is installed or built (npm test)`;
  console.error(`no unit test file matches ${positionals.join(" ")}${others}`);
  process.exit(64);
}
if (values.list) {
  for (const each of files.flatMap(testNamesOf)) console.log(each);
} else if (values.watch) {
  keepTemporaryFilesInMemory();
  await watchTests(files, runUnits);
} else {
  keepTemporaryFilesInMemory();
  process.exitCode = (await runUnits(files)) ? 0 : 1;
}
