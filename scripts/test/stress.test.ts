import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";

const { NODE_TEST_CONTEXT: _, ...ENVIRONMENT } = process.env;

function stress(...args: readonly string[]): {
  readonly status: number | null;
  readonly out: string;
  readonly said: string;
} {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["scripts/test/stress.ts", ...args], {
    encoding: "utf8",
    env: ENVIRONMENT,
  });
  return { status, out: stdout, said: stderr };
}

/** A test file that fails when it runs for the `failing`th time. */
function fileThatFails(folder: TempFolder, failing: number): string {
  const [path, runs] = [folder.at("counts.test.mjs"), folder.at("runs")];
  writeFileSync(
    path,
    `import { appendFileSync, readFileSync } from "node:fs";
     import { test } from "node:test";
     appendFileSync(${JSON.stringify(runs)}, "x");
     test("counts", () => { if (readFileSync(${JSON.stringify(runs)}).length === ${failing}) throw new Error("flaky one"); });`,
  );
  return path;
}

test("a test that fails now and then is told at its first failure, with its output and how many passed", () => {
  using folder = new TempFolder();
  const { status, out } = stress(fileThatFails(folder, 3), "--times", "5", "--load", "1");
  assert.equal(status, 1);
  assert.match(out, /flaky one/);
  assert.match(out, /FAILED in run 3 of 5: 2 passed; a run took/);
  assert.equal(readFileSync(folder.at("runs"), "utf8"), "xxx");
});

test("one that never fails has run as often as was asked for", () => {
  using folder = new TempFolder();
  const { status, out } = stress(fileThatFails(folder, 0), "--times", "2", "--load", "0", "--disk", "0");
  assert.equal(status, 0);
  assert.match(out, /^2 of 2 passed; a run took .* \(min \/ median \/ max\)$/m);
  assert.ok(existsSync(folder.at("runs")));
});

for (const signal of ["SIGTERM", "SIGKILL"] as const) {
  test(`${signal} ends the test that runs too`, async () => {
    using folder = new TempFolder();
    const [path, socketPath] = [folder.at("hangs.test.mjs"), folder.at("socket")];
    writeFileSync(
      path,
      `import { connect } from "node:net";
       import { test } from "node:test";
       test("hangs", () => new Promise(() => { connect(${JSON.stringify(socketPath)}); }));`,
    );
    await using server = createServer().listen(socketPath);
    const args = ["scripts/test/stress.ts", path, "--load", "0", "--disk", "0"];
    const stressing = spawn(process.execPath, args, { stdio: "ignore", env: ENVIRONMENT });
    const [connection] = (await once(server, "connection")) as [Socket];
    const ended = once(connection.resume(), "close");
    stressing.kill(signal);
    await ended;
  });
}

for (const [args, message] of [
  [[], /name one test file/],
  [["nonexistent"], /no test file matches nonexistent/],
  [["protocol/pod"], /matches \d+ test files/],
  [["stress.test.ts", "--times", "0"], /--times must be a whole number of at least 1/],
  [["stress.test.ts", "--load", "1000"], /--load must be a whole number from 0 to 64/],
  [["stress.test.ts", "--fast"], /unknown flag --fast/],
] as const) {
  test(`"${args.join(" ")}" is refused with the way to call it`, () => {
    const { status, out, said } = stress(...args);
    assert.deepEqual([status, out], [64, ""]);
    assert.match(said, message);
    assert.match(said, /npm run stress -- --help/);
  });
}
