/**
 * `npm run stress -- FILE [--times N] [--load N] [--disk N]`: runs a test file many times while the machine is busy,
 * and ends at the first run that fails, with its output. Proves that a test is not flaky; exit code 1 when it is.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, statSync } from "node:fs";
import { text } from "node:stream/consumers";
import { countFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { endWithUsageError, readOptions } from "../options.ts";
import { testFiles, unitFiles } from "./test-files.ts";

/** Beyond them the machine, and not the test, is what fails. */
const MAX_LOAD = 64;
/** On the disk, where the system's temporary folder may be in memory. */
const DISK = "/var/tmp";
/** Both end with their standard input, so that nothing of them is left when this process is killed. */
const COMPUTE =
  'process.stdin.on("end", () => process.exit()).resume(); setInterval(() => { for (const end = Date.now() + 50; Date.now() < end; ); }, 0);';
const WRITE = `
  const fs = require("node:fs");
  process.stdin.on("end", () => process.exit()).resume();
  const folder = fs.mkdtempSync(process.argv[1]);
  const file = fs.openSync(folder + "/file", "w");
  fs.rmSync(folder, { recursive: true });
  const block = Buffer.alloc(2 ** 20, 1);
  let at = 0;
  setInterval(() => {
    fs.writeSync(file, block, 0, block.length, at);
    fs.fsyncSync(file);
    at = (at + block.length) % 2 ** 26;
  }, 0);`;

/** Keeps the machine busy until it is disposed of. */
class Load implements Disposable {
  readonly #children: ChildProcess[];

  constructor(compute: number, write: number) {
    const start = (script: string): ChildProcess =>
      spawn(process.execPath, ["-e", script, `${DISK}/picolet-stress-`], { stdio: ["pipe", "ignore", "ignore"] });
    this.#children = [
      ...Array.from({ length: compute }, () => start(COMPUTE)),
      ...Array.from({ length: write }, () => start(WRITE)),
    ];
  }

  [Symbol.dispose](): void {
    for (const child of this.#children) child.kill("SIGKILL");
  }
}

const refuse = (message: string): never => endWithUsageError("stress", usageError(message));

const TIMES = countFlag({ name: "times", help: "how often (default 50)", default: "50", least: 1 });
const COMPUTERS = countFlag({ name: "load", help: "processes that compute all the time (default 4)", default: "4" });
const WRITERS = countFlag({
  name: "disk",
  help: "processes that write to the disk and wait for it (default 1)",
  default: "1",
});

const input = readOptions({
  name: "stress",
  summary: "runs a test file many times on a busy machine, until a run fails",
  operands: "FILE",
  atMost: 1,
  flags: [TIMES, COMPUTERS, WRITERS],
});
const times = input.value(TIMES) ?? 0;
const [compute = 0, write = 0] = [COMPUTERS, WRITERS].map((flag) => {
  const count = input.value(flag) ?? 0;
  return count <= MAX_LOAD
    ? count
    : refuse(`--${flag.name} must be a whole number from 0 to ${MAX_LOAD}, not ${count}`);
});
const pattern = input.positionals[0] ?? refuse("name one test file");
const matching = statSync(pattern, { throwIfNoEntry: false })?.isFile() === true ? [pattern] : testFiles([pattern]);
const file = matching[0] ?? refuse(`no test file matches ${pattern}`);
if (matching.length > 1)
  refuse(`${pattern} matches ${matching.length} test files, ${matching.slice(0, 3).join(", ")}: name one`);
if (unitFiles([file]).length === 0 && !existsSync("dist/board/lib/picolet.cjs"))
  refuse(`${file} needs what is built: npm run build`);

process.exitCode = await stress(file);

/** @returns the exit code */
async function stress(path: string): Promise<number> {
  using _ = new Load(compute, write);
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
  const seconds: number[] = [];
  for (let run = 1; run <= times; run += 1) {
    const begun = performance.now();
    // Without `--test`, whose process would run the file in another one: the test ends with this process.
    const command = ["--pdeathsig", "KILL", process.execPath, path];
    const child = spawn("setpriv", command, { stdio: ["ignore", "pipe", "pipe"] });
    const [out, problems, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
    seconds.push((performance.now() - begun) / 1000);
    if (code !== 0) {
      console.log(`${out}\n${problems}\nFAILED in run ${run} of ${times}: ${run - 1} passed; ${spreadOf(seconds)}`);
      return 1;
    }
    if (process.stderr.isTTY) process.stderr.write(`\r${run} of ${times} passed`);
  }
  console.log(`${times} of ${times} passed; ${spreadOf(seconds)}`);
  return 0;
}

function spreadOf(seconds: readonly number[]): string {
  const sorted = seconds.toSorted((a, b) => a - b);
  const at = (share: number): string =>
    (sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0).toFixed(1);
  return `a run took ${at(0)} / ${at(0.5)} / ${at(1)} s (min / median / max)`;
}
