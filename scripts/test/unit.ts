/**
 * `npm run unit [-- PATTERN …]`: runs the unit tests, with nothing installed but npm's packages and nothing built.
 * Prints failures in full, then one line.
 */
import { availableParallelism } from "node:os";
import { readOptions } from "../options.ts";
import { createMemoryFolder } from "./memory-folder.ts";
import { testFiles, unitFiles } from "./test-files.ts";
import { groupsOf } from "./test-groups.ts";
import { testNamesOf } from "./test-names.ts";
import { newOutcome, type Outcome, runTogether, UNIT_TIMEOUTS } from "./test-run.ts";
import { watchTests } from "./watch-tests.ts";

/** More processes than processors, because a test sometimes waits. */
const SURPLUS_PROCESSES = 1;
/** Slower tests are listed when no test failed. */
const SLOW_SECONDS = 3;

/** @returns whether none failed */
async function runUnits(files: readonly string[]): Promise<boolean> {
  const begun = performance.now();
  const outcome = newOutcome();
  const slow: string[] = [];
  const waiting = [...groupsOf(files)];
  const runNext = async (): Promise<void> => {
    for (let group = waiting.shift(); group !== undefined; group = waiting.shift()) {
      await runTogether(group, outcome, {
        ...UNIT_TIMEOUTS,
        temporaryFolder,
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

const input = readOptions({
  name: "unit",
  summary: "runs the unit tests; with PATTERN those whose path holds one of them",
  operands: "[PATTERN...]",
  atMost: 1000,
  flags: [
    { name: "watch", help: "run the tests again that a change concerns, until it is ended" },
    { name: "list", help: "print the names of the tests instead, a line each" },
  ],
});
const patterns = input.positionals;
const matching = testFiles(patterns);
const files = unitFiles(matching);
if (files.length === 0) {
  const others = matching.length === 0 ? "" : `: ${matching.join(", ")} needs what is installed or built (npm test)`;
  console.error(`no unit test file matches ${patterns.join(" ")}${others}`);
  process.exit(64);
}
const temporaryFolder = input.flag("list") ? undefined : createMemoryFolder();
if (input.flag("list")) {
  for (const each of files.flatMap(testNamesOf)) console.log(each);
} else if (input.flag("watch")) {
  await watchTests(files, runUnits);
} else {
  process.exitCode = (await runUnits(files)) ? 0 : 1;
}
