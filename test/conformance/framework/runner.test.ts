import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import { isUsageError } from "@picolet/protocol/command-line/usage-error.ts";
import { scriptProgram } from "@picolet/scripts/options.ts";
import { type Arguments, argumentsOf, OPTIONS } from "../arguments.ts";
import { area, type ConformanceTest } from "./conformance-test.ts";
import type { WatchObserver } from "./kube-api.ts";
import { LiveSet, type Named } from "./live-set.ts";
import { chosen, type RunnerInit, runTests, type Stage } from "./runner.ts";
import { Skipped } from "./test-context.ts";

type Body = (signal: AbortSignal) => Promise<void>;

/** Plays bodies by the names of their tests, and notes what is asked of it. */
class FakeStage implements Stage {
  readonly notes: string[] = [];
  left: string | undefined;
  running = 0;
  mostRunning = 0;
  readonly #bodies: ReadonlyMap<string, Body>;

  constructor(bodies: Readonly<Record<string, Body>>) {
    this.#bodies = new Map(Object.entries(bodies));
  }

  async play({ name }: ConformanceTest, signal: AbortSignal): Promise<void> {
    this.running += 1;
    this.mostRunning = Math.max(this.mostRunning, this.running);
    this.notes.push(`play ${name} beside ${this.running - 1}`);
    try {
      await this.#bodies.get(name)?.(signal);
    } finally {
      this.running -= 1;
    }
  }

  async diagnose({ name }: ConformanceTest): Promise<string> {
    return `what is known of ${name}`;
  }

  async clear({ name }: ConformanceTest): Promise<void> {
    this.notes.push(`clear ${name}`);
  }

  async settle(): Promise<void> {
    if (this.left !== undefined) throw new Error(this.left);
  }
}

const parseArguments = (words: readonly string[]): Arguments =>
  argumentsOf(parseCommandLine(words, scriptProgram(OPTIONS)).arguments);

const plain = (name: string, more: Partial<ConformanceTest> = {}): ConformanceTest => ({
  ...{ name, limitSeconds: 60, serial: false, run: async () => undefined },
  ...more,
});

const quiet: RunnerInit = { parallel: 2, say: () => undefined };
const soon = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("a report counts what passed, failed and was skipped, in the order of the tests, and tells why", async () => {
  const stage = new FakeStage({
    bad: async () => {
      throw new Error("it broke");
    },
    odd: async () => {
      throw new Skipped("no image");
    },
  });
  const all = [plain("bad", { group: "metrics" }), plain("odd"), plain("good")];
  const { tests, groups, ...counts } = await runTests(all, stage, quiet);
  assert.deepEqual(groups, {
    metrics: { passed: 0, failed: 1, skipped: 0 },
    node: { passed: 2, failed: 0, skipped: 1 },
  });
  assert.deepEqual(counts, { passed: 2, failed: 1, known: 0, skipped: 1 });
  const outcomes = tests.slice(0, 3).map(({ name, result }) => `${name} ${result}`);
  assert.deepEqual(outcomes, ["bad failed", "odd skipped", "good passed"]);
  assert.match(tests[0]?.message ?? "", /it broke[\s\S]*what is known of bad/);
  assert.equal(tests[1]?.message, "no image");
});

test("a test that is known to fail counts as failed, and as known; one that passes all the same has passed", async () => {
  const fails = async (): Promise<void> => {
    throw new Error("it is not there");
  };
  const gap = "no eviction";
  const all = ["bad", "known", "mended"].map((name) => plain(name, name === "bad" ? {} : { gap }));
  const report = await runTests(all, new FakeStage({ bad: fails, known: fails }), quiet);
  assert.deepEqual([report.passed, report.failed, report.known], [2, 2, 1]);
  assert.deepEqual(
    report.tests.map((each) => each.gap),
    [undefined, gap, undefined, undefined],
  );
});

test("no more tests than allowed run at the same time, and a serial one runs alone", async () => {
  const names = ["a", "b", "c", "d", "e"];
  const stage = new FakeStage(Object.fromEntries(names.map((name) => [name, soon])));
  await runTests([plain("alone", { serial: true }), ...names.map((name) => plain(name))], stage, quiet);
  assert.equal(stage.mostRunning, 2);
  assert.ok(stage.notes.includes("play alone beside 0"));
  assert.ok(stage.notes.indexOf("play alone beside 0") > stage.notes.indexOf("clear e"));
});

test("a test that takes too long fails with what it was waiting for, and is cleared up after", async () => {
  const stage = new FakeStage({
    slow: async (signal) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      throw new Error("waited for the moon", { cause: signal.reason });
    },
  });
  const { tests } = await runTests([plain("slow", { limitSeconds: 0.01 })], stage, quiet);
  assert.equal(tests[0]?.result, "failed");
  assert.match(tests[0]?.message ?? "", /waited for the moon[\s\S]*it took longer than 0\.01 s/);
  assert.deepEqual(stage.notes.at(-1), "clear slow");
});

test("a slow machine multiplies a test's limit, and nothing else", async () => {
  const stage = new FakeStage({
    slow: async (signal) => {
      await Promise.race([
        new Promise((resolve) => setTimeout(resolve, 60)),
        new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
      ]);
    },
  });
  const tests = [plain("slow", { limitSeconds: 0.01 })];
  assert.equal((await runTests(tests, stage, quiet)).failed, 1);
  assert.equal((await runTests(tests, stage, { ...quiet, slowness: 6_000 })).failed, 0);
});

test("what does not go after the tests is a failure of its own", async () => {
  const stage = new FakeStage({});
  stage.left = "still there: one";
  const { tests, failed } = await runTests([], stage, quiet);
  assert.equal(failed, 1);
  assert.match(tests[0]?.message ?? "", /still there: one/);
});

test("tests are chosen by their names", () => {
  const all = area("[sig-node] Secrets", (should) => {
    should("be patched", async () => undefined);
    should("be mounted", async () => undefined, { serial: true, limitSeconds: 5 });
  });
  assert.deepEqual(
    all.map(({ name }) => name),
    ["[sig-node] Secrets should be patched", "[sig-node] Secrets should be mounted"],
  );
  assert.deepEqual(
    chosen(all, /mount/).map(({ serial, limitSeconds }) => [serial, limitSeconds]),
    [[true, 5]],
  );
  assert.deepEqual(chosen(all, undefined, /mount/).length, 1);
});

test("arguments say what is tested, and are refused when they make no sense", () => {
  const given = parseArguments([
    "--kubeconfig",
    "f",
    "--node",
    "n",
    "--image",
    "tool=r.example/t:1",
    "--focus",
    "Pods",
  ]);
  assert.deepEqual(given.cluster, { kubeconfig: "f", node: "n" });
  assert.equal(given.images.tool, "r.example/t:1");
  assert.equal(given.images.https, "");
  assert.ok(given.focus?.test("Pods should"));
  const board = parseArguments(["--board", "arm64", "--pages", "16k", "--components"]);
  assert.deepEqual(board.board, { architecture: "arm64", runtime: undefined, pages: "16k" });
  assert.equal(board.componentsOnly, true);
  for (const wrong of [
    ["--pages", "16k"],
    ["--board", "amd64", "--kubeconfig", "f", "--node", "n"],
  ])
    assert.throws(() => parseArguments(wrong), isUsageError);
  for (const wrong of [["--node", "n"], ["--parallel", "0"], ["--image", "x=y"], ["--none"]])
    assert.throws(() => parseArguments(wrong), isUsageError);
});

interface Thing extends Named {
  readonly value: number;
}

/** A set with a watch that the test speaks for. */
function watched(): { set: LiveSet<Thing>; tell: WatchObserver<Thing>; stop: AbortController } {
  const stop = new AbortController();
  let tell: WatchObserver<Thing> | undefined;
  const watch = (_path: string, observer: WatchObserver<never>): void => {
    tell = observer as unknown as WatchObserver<Thing>;
  };
  const set = new LiveSet<Thing>({ watch } as never, "/things", stop.signal);
  assert.ok(tell !== undefined);
  return { set, tell, stop };
}

const thing = (name: string, value: number): Thing => ({ metadata: { name, uid: `uid-${name}` }, value });

test("a wait ends with the change that fits, and every state is remembered", async () => {
  const { set, tell } = watched();
  const found = set.find(() => (set.get("a")?.value === 2 ? set.get("a") : undefined));
  tell.onList([thing("a", 1)]);
  tell.onChange(false, thing("a", 2));
  assert.equal((await found).value, 2);
  assert.deepEqual(
    set.history("a").map(({ value }) => value),
    [1, 2],
  );
});

test("what a second list leaves out is gone, as if its deletion had been seen", () => {
  const { set, tell } = watched();
  tell.onList([thing("a", 1), thing("b", 1)]);
  tell.onList([thing("b", 1)]);
  assert.equal(set.get("a"), undefined);
  assert.ok(set.isGone("uid-a") && !set.isGone("uid-b"));
});

test("a wait ends with the signal's reason, and what should hold fails at once when it does not", async () => {
  const { set, tell, stop } = watched();
  tell.onList([thing("a", 1)]);
  const check = (): void => assert.equal(set.get("a")?.value, 1);
  const holds = set.holds(60_000, check);
  tell.onChange(false, thing("a", 9));
  await assert.rejects(holds, /9 !== 1/);
  await assert.doesNotReject(set.holds(1, () => undefined));
  const never = set.find(() => undefined);
  stop.abort(new Error("over"));
  await assert.rejects(never, /over/);
});
