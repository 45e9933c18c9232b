/** Components that attempt forbidden actions: each fails, in a process of its own, and its pod reports it. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { createServer as createUnixServer } from "node:net";
import { type TestContext, test } from "node:test";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { memoryOf } from "../bench/measure/process-usage.ts";
import { swapFolder } from "../support/unit/wasm/folder-swapper.ts";
import type { TestComponent } from "../support/wasm/components.ts";
import { mount, type WasmBench, wasmBench } from "../support/wasm/wasm-bench.ts";
import type { Exit, WasmPod, WasmPodOptions } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;

interface Hostile {
  readonly bench: WasmBench;
  readonly volume: string;
  /** Runs one to its end. */
  run(
    component: TestComponent,
    args: readonly string[],
    options?: Partial<WasmPodOptions>,
  ): Promise<{ readonly exit: Exit; readonly lines: readonly string[] }>;
}

/** With a volume that every user may write to, as an emptyDir, beside which lies what must not be reached. */
async function hostile(context: TestContext, mode: Mode = "isolated"): Promise<Hostile> {
  const bench = await wasmBench(context);
  const volume = bench.runtime.folder.at("volume");
  mkdirSync(volume);
  chmodSync(volume, 0o777);
  mkdirSync(bench.runtime.folder.at("outside"));
  for (const name of ["file", "secret"]) writeFileSync(bench.runtime.folder.at("outside", name), "outside");
  return {
    bench,
    volume,
    async run(component, args, options = {}) {
      const pod: WasmPod = await bench.pod(component, { ...options, annotations: annotationOf(mode) });
      const container = await pod.start({ args, mounts: [mount("/data", volume)] });
      const exit = await pod.exit(container.id);
      return { exit, lines: await pod.text(container, 0) };
    },
  };
}

const outsideOf = ({ bench }: Hostile): string[] =>
  readdirSync(bench.runtime.folder.at("outside")).map(
    (name) => `${name}: ${readFileSync(bench.runtime.folder.at("outside", name), "utf8")}`,
  );

/** In a process of its own, or in one with others: what each may reach is the same. */
const MODES = ["isolated", "dense"] as const;
type Mode = (typeof MODES)[number];
const annotationOf = (mode: Mode) => ({ "wasm.picolet.io/mode": mode });

const UNTOUCHED = ["file: outside", "secret: outside"];

for (const [what, prepare] of Object.entries({
  "own-links": () => undefined,
  deep: () => undefined,
  special: (volume: string, context: TestContext) => {
    execFileSync("mkfifo", ["-m", "666", `${volume}/fifo`]);
    const server = createUnixServer().listen(`${volume}/socket`, () => chmodSync(`${volume}/socket`, 0o777));
    context.after(() => server.close());
    return once(server, "listening");
  },
})) {
  for (const mode of MODES) {
    test(`files, ${mode}: ${what} lead nowhere`, async (context) => {
      const made = await hostile(context, mode);
      await prepare(made.volume, context);
      const { exit, lines } = await made.run("escapes.c", [what]);
      assert.deepEqual(
        lines.filter((line) => !line.startsWith("ok ")),
        [],
      );
      assert.deepEqual([exit.exitCode, exit.reason], [0, "Completed"], exit.message);
      assert.deepEqual(outsideOf(made), UNTOUCHED);
    });
  }
}

for (const mode of MODES) {
  test(`files, ${mode}: another process that swaps a folder for a link out helps nobody out`, async (context) => {
    const made = await hostile(context, mode);
    const { folder } = made.bench.runtime;
    mkdirSync(`${made.volume}/moving`);
    chmodSync(`${made.volume}/moving`, 0o777);
    writeFileSync(`${made.volume}/moving/file`, "inside");
    const pod = await made.bench.pod("escapes.c", { annotations: annotationOf(mode) });
    const end = await swapFolder(context, folder.path, "volume/moving", "../outside");
    const container = await pod.start({ args: ["race", "400"], mounts: [mount("/data", made.volume)] });
    const exit = await pod.exit(container.id);
    await end();
    assert.equal(exit.exitCode, 0, exit.message);
    const [line = ""] = await pod.text(container, 1);
    assert.match(line, /^inside [1-9]\d*, outside 0$/);
    assert.deepEqual(outsideOf(made), UNTOUCHED);
  });
}

for (const mode of MODES) {
  test(`environment, ${mode}: nothing of the agent's shows`, async (context) => {
    process.env.PICOLET_TEST_SECRET = "secret";
    context.after(() => delete process.env.PICOLET_TEST_SECRET);
    const made = await hostile(context, mode);
    const { lines } = await made.run("workload.c", ["env", "PICOLET_TEST_SECRET", "PATH", "HOME", "USER"]);
    assert.deepEqual(lines, ["(not set)", "(not set)", "(not set)", "(not set)"]);
    assert.deepEqual((await (await hostile(context, mode)).run("workload.c", ["env"])).lines, []);
  });
}

for (const mode of MODES) {
  test(`handles, ${mode}: a component that opens without end is told that there are no more`, async (context) => {
    const made = await hostile(context, mode);
    for (const what of ["files", "folders"]) {
      const { exit, lines } = await made.run("hoards.c", [what], { name: what });
      const [, count] = /^(\d+), then (?:Cannot allocate memory|Out of memory)$/.exec(lines[0] ?? "") ?? [];
      // The preview 1 adapter's own table ends at 128, the host's at 1024.
      assert.ok(Number(count) > 100 && Number(count) <= 1024, lines[0]);
      assert.equal(exit.exitCode, 0, exit.message);
    }
  });
}

for (const mode of MODES) {
  test(`handles, ${mode}: a component that makes clocks without end is ended, and told why`, async (context) => {
    const { exit } = await (await hostile(context, mode)).run("hoards.c", ["clocks"]);
    assert.deepEqual([exit.exitCode, exit.reason], [1, "Error"]);
    assert.match(exit.message, /^wasm trap: the component holds more than 1024 pollables at once/);
  });
}

test("memory: growing ends at the limit", async (context) => {
  const container = { resources: { limits: { memory: "40Mi" } } };
  const { bench } = await hostile(context);
  const pod = await bench.pod("hoards.c", { container });
  const { id } = await pod.start({ args: ["memory"] });
  const exit = await pod.exit(id);
  // The component sees the end of its own memory, unless the kernel sees that of the whole process first.
  const seen = bench.runtime.cgroups?.usable === true ? [137, "OOMKilled"] : [0, "Completed"];
  assert.deepEqual([exit.exitCode, exit.reason], seen);
});

test("output: a flood into both streams costs bounded memory, and rotation holds", async (context) => {
  const { bench } = await hostile(context);
  const pod = await bench.pod("hoards.c");
  const { id, logPath } = await pod.start({ args: ["flood"] });
  const runner = bench.runtime.runner(id);
  assert.ok(runner);
  const kept = new Map<string, number>();
  for (let turn = 1; turn <= 4; turn += 1) {
    while (statSync(logPath).size < 8 * MEBIBYTE) await new Promise((resolve) => setTimeout(resolve, 20));
    renameSync(logPath, `${logPath}.${turn}`);
    await bench.adapter.reopenLog(pod.desired.uid, id, NEVER);
    if (turn > 1) kept.set(`${logPath}.${turn - 1}`, statSync(`${logPath}.${turn - 1}`).size);
    const { anonMiB } = memoryOf(runner.pid);
    assert.ok(anonMiB < 32, `${anonMiB} MiB`);
  }
  await pod.stop(id, seconds(30));
  assert.equal((await pod.exit(id)).exitCode, 143);
  for (const [path, size] of kept) assert.equal(statSync(path).size, size, "nothing goes into what was rotated away");
});
