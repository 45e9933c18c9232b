import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { relative, resolve } from "node:path";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { ImportGraph } from "../checks/source-tree.ts";
import { refusalOf } from "./installed-programs.ts";
import { groupsOf } from "./test-groups.ts";
import type { Outcome } from "./test-run.ts";
import { concernedBy } from "./watch-tests.ts";

// A runner inside a test runs nothing.
const { NODE_TEST_CONTEXT: _, ...ENVIRONMENT } = process.env;

const RUN = `
  import { newOutcome, runTogether } from ${JSON.stringify(resolve("scripts/test/test-run.ts"))};
  const outcome = newOutcome();
  const [limits, ...files] = process.argv.slice(2);
  await runTogether(files, outcome, JSON.parse(limits));
  console.log(JSON.stringify(outcome));`;

/** Runs test files of these contents in one process. */
const together = (folder: TempFolder, ...bodies: readonly string[]): Outcome =>
  within({ timeoutMs: 60_000 }, folder, ...bodies);

function within(
  limits: { readonly timeoutMs: number; readonly testTimeoutMs?: number },
  folder: TempFolder,
  ...bodies: readonly string[]
): Outcome {
  const files = bodies.map((body, index) => {
    const path = folder.at(`${index}.test.mjs`);
    writeFileSync(path, `import { test } from "node:test"; import { spawnSync } from "node:child_process"; ${body}`);
    return relative(".", path);
  });
  writeFileSync(folder.at("run.mjs"), RUN);
  const args = [folder.at("run.mjs"), JSON.stringify(limits), ...files];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", env: ENVIRONMENT });
  assert.notEqual(stdout, "", stderr);
  return JSON.parse(stdout) as Outcome;
}

const GOOD = 'test("good", () => {});';
const failedOf = ({ failed }: Outcome): readonly string[] =>
  failed.map(({ where }) => where.slice(where.lastIndexOf("/") + 1));

test("a test that fails is named with its file, and the others pass", () => {
  using folder = new TempFolder();
  const outcome = together(folder, GOOD, 'test("bad", () => { throw new Error("here it is"); });');
  assert.equal(outcome.passed, 1);
  assert.deepEqual(failedOf(outcome), ["1.test.mjs: bad"]);
  assert.match(outcome.failed[0]?.details ?? "", /here it is/);
});

test("an error that nothing catches fails the test that it comes from, though the process is shared", () => {
  using folder = new TempFolder();
  const lost =
    'test("waits", async () => { setTimeout(() => { throw new Error("lost"); }, 5); await new Promise(() => {}); });';
  const outcome = together(folder, lost, GOOD);
  assert.equal(outcome.passed, 1);
  assert.deepEqual(failedOf(outcome), ["0.test.mjs: waits"]);
  assert.match(outcome.failed[0]?.details ?? "", /lost/);
});

test("a file that ends its process, or that cannot be imported, is the only one that fails", () => {
  using folder = new TempFolder();
  assert.deepEqual(failedOf(together(folder, 'test("ends", () => process.exit(0));', GOOD)), ["0.test.mjs"]);
  const [broken] = failedOf(together(folder, 'import "./absent.mjs";', GOOD));
  assert.match(broken ?? "", /0\.test\.mjs cannot be imported$/);
});

const HANGS = `test("hangs", async ({ signal }) => {
  const alive = setInterval(() => {}, 1000);
  signal.addEventListener("abort", () => clearInterval(alive));
  await new Promise(() => {});
});`;

test("a test that hangs is named and ended, and so is the process that it keeps alive", () => {
  using folder = new TempFolder();
  const hung = within({ timeoutMs: 60_000, testTimeoutMs: 300 }, folder, HANGS, GOOD);
  assert.deepEqual(failedOf(hung), ["0.test.mjs: hangs"]);
  assert.equal(hung.passed, 1);
  const kept = within({ timeoutMs: 1000 }, folder, `${GOOD} setInterval(() => {}, 1000);`);
  assert.deepEqual(failedOf(kept), ["0.test.mjs"]);
  assert.match(kept.failed[0]?.details ?? "", /did not end within 1 s/);
});

test("files that fail together are a failure, though each passes alone", () => {
  using folder = new TempFolder();
  const outcome = together(
    folder,
    "globalThis.isShared = true;",
    'test("ends", () => globalThis.isShared && process.exit(0));',
  );
  assert.deepEqual(failedOf(outcome), ["2 unit test files in one process"]);
  assert.match(outcome.failed[0]?.details ?? "", /Each of these files passes alone: .*1\.test\.mjs/);
});

test("a unit test that starts what must be installed or built is told where it belongs", () => {
  using folder = new TempFolder();
  const outcome = together(folder, 'test("starts it", () => spawnSync("/usr/bin/clang", ["--version"]));', GOOD);
  assert.deepEqual(failedOf(outcome), ["0.test.mjs: starts it"]);
  assert.match(outcome.failed[0]?.details ?? "", /must not use clang.*move the test to test\//);
  assert.match(refusalOf("node", ["dist/picolet.cjs"]) ?? "", /dist\/picolet\.cjs, which must be built/);
  assert.equal(refusalOf("sh", ["-c", "exit 0"]), undefined);
  assert.equal(refusalOf("node", ["dist/test-components/made-by-the-test.mjs"]), undefined);
});

test("every file is in one group, and the groups take about as long", () => {
  const files = Array.from({ length: 100 }, (_, index) => `protocol/${index}.test.ts`);
  const costs = new Map(files.slice(0, 3).map((file) => [file, { seconds: 10, cores: 1 }]));
  const groups = groupsOf(files, costs);
  assert.deepEqual(groups.flat().sort(), files.toSorted());
  assert.deepEqual(
    groups.map((group) => group.filter((file) => costs.has(file)).length),
    [1, 1, 1],
  );
});

test("a change concerns the tests that load what has changed", () => {
  const graph = new ImportGraph();
  const files = ["scripts/test/test-run.test.ts", "scripts/checks/size.test.ts"];
  assert.deepEqual(concernedBy(["scripts/checks/source-tree.ts"], files, graph), files);
  assert.deepEqual(concernedBy(["scripts/test/test-groups.ts"], files, graph), files.slice(0, 1));
  assert.deepEqual(concernedBy(["agent/plan/absent.ts"], files, graph), []);
});
