/**
 * Components that write far more than their logs may hold: real components in real processes, with and without an
 * agent.
 */
import assert from "node:assert/strict";
import { readFileSync, renameSync, statSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { seconds } from "@picolet/protocol/ports.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import { cpuSecondsOf } from "../bench/measure/process-usage.ts";
import { type WasmBench, wasmBench } from "../support/wasm/wasm-bench.ts";
import type { WasmPod } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const MAX_BYTES = 256 * 1024;
/** A buffer that was begun, and one more where a thread is shared. */
const SLACK_BYTES = 128 * 1024;
const HOUR_MS = 3_600_000;
const LOOK_MS = 20;
const MODES = ["isolated", "dense"] as const;

interface Flood {
  readonly bench: WasmBench;
  readonly pod: WasmPod;
  readonly container: ObservedContainer;
  readonly pid: number;
  size(): number;
  /** @returns the size that it has then */
  full(): Promise<number>;
  /** As the agent does. */
  rotate(to: string): Promise<void>;
}

async function flood(context: TestContext, mode: (typeof MODES)[number], patienceMs: number): Promise<Flood> {
  const bench = await wasmBench(context, { logLimit: { maxBytes: MAX_BYTES, patienceMs } });
  const pod = await bench.pod("workload.c", { annotations: { "wasm.picolet.io/mode": mode } });
  const container = await pod.start({ args: ["flood"] });
  const { logPath, id } = container;
  const size = (): number => statSync(logPath).size;
  const pid = bench.runtime.runner(id)?.pid ?? bench.runtime.reaper(id)?.pid ?? assert.fail("it has a process");
  return {
    ...{ bench, pod, container, pid, size },
    async full() {
      while (size() <= MAX_BYTES) await wait(LOOK_MS);
      return size();
    },
    async rotate(to) {
      renameSync(logPath, to);
      await bench.adapter.reopenLog(pod.desired.uid, id, NEVER);
    },
  };
}

for (const mode of MODES) {
  test(`${mode}: a component that floods its log waits for each rotation, loses nothing and can be stopped`, async (context) => {
    const { bench, pod, container, full, rotate } = await flood(context, mode, HOUR_MS);
    const rotated: string[] = [];
    for (let turn = 1; turn <= 5; turn += 1) {
      const size = await full();
      assert.ok(size <= MAX_BYTES + SLACK_BYTES, `${size} bytes`);
      const to = `${container.logPath}.${turn}`;
      await rotate(to);
      rotated.push(to);
    }
    await full();
    const neighbour = await bench.pod("workload.c", {
      name: "neighbour",
      annotations: { "wasm.picolet.io/mode": mode },
    });
    const printing = await neighbour.start({ args: ["print", "stdout", "one"] });
    assert.deepEqual(await neighbour.text(printing, 1), ["one"], "another one runs while it waits");
    await pod.stop(container.id, seconds(30));
    assert.equal((await pod.exit(container.id)).exitCode, 143);
    const lines = [...rotated, container.logPath].flatMap((path) =>
      readFileSync(path, "utf8").split("\n").slice(0, -1),
    );
    for (const [index, line] of lines.entries()) {
      assert.ok(line.endsWith(` stdout F flood ${index} of a line that says nothing`), `${index}: ${line}`);
    }
    for (const path of rotated)
      assert.ok(statSync(path).size <= MAX_BYTES + SLACK_BYTES, "none became too large later");
  });

  test(`${mode}: with no agent that rotates a flood keeps its log small and runs on`, async (context) => {
    const { container, pid, size, full, rotate } = await flood(context, mode, 300);
    await full();
    const before = cpuSecondsOf(pid);
    // A waiting one takes some 0.1 % of a processor.
    while (cpuSecondsOf(pid) - before < 0.5) {
      assert.ok(size() <= MAX_BYTES + SLACK_BYTES, `${size()} bytes`);
      await wait(LOOK_MS);
    }
    await rotate(`${container.logPath}.old`);
    while (size() === 0) await wait(LOOK_MS);
    const [first = ""] = readFileSync(container.logPath, "utf8").split("\n");
    assert.match(first, / stderr F picolet: \d+ bytes of output were dropped here: the log was full and not rotated$/);
  });
}

test("a component of WASI 0.3 that floods its log ends as it would have, within its limit", async (context) => {
  const bench = await wasmBench(context, { p3: true, logLimit: { maxBytes: MAX_BYTES, patienceMs: 300 } });
  const pod = await bench.pod("async.c");
  const { id, logPath } = await pod.start({ args: ["flood", "128"] });
  assert.equal((await pod.exit(id)).exitCode, 0);
  assert.ok(statSync(logPath).size <= MAX_BYTES + SLACK_BYTES, `${statSync(logPath).size} bytes`);
});
