/** The transpiler: its limits, its queue, and what it takes from jco. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { Transpiler, type TranspilerInit } from "@picolet/runtime-wasm/adapter/images/transpiler.ts";
import { TRANSPILER_VERSION } from "@picolet/runtime-wasm/shared/messages/transpile-request.ts";
import { asScript } from "@picolet/runtime-wasm/transpile/generated-script.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { testComponent, testPrograms } from "../support/wasm/components.ts";

const NEVER = new AbortController().signal;

const hashOf = (path: string): string => createHash("sha256").update(readFileSync(path)).digest("hex");

class Bench {
  readonly folder = new TempFolder();
  readonly log = new RecordedLog();
  readonly transpiler: Transpiler;

  #passedMs = 0;

  private constructor(context: TestContext, transpilePath: string, init: Partial<TranspilerInit>) {
    const { sleep } = systemClock;
    const monotonic = (): MonotonicMs => (systemClock.monotonic() + this.#passedMs) as MonotonicMs;
    this.transpiler = new Transpiler(
      { clock: { sleep, monotonic }, log: this.log, cgroups: undefined },
      {
        nodePath: process.execPath,
        transpilePath,
        cacheDirectory: this.folder.at("cache"),
        timeout: seconds(60),
        memoryLimitBytes: 512 * MEBIBYTE,
        cgroupPath: undefined,
        ...init,
      },
    );
    context.after(async () => {
      await this.transpiler[Symbol.asyncDispose]();
      this.folder[Symbol.dispose]();
    });
  }

  static async create(context: TestContext, init: Partial<TranspilerInit> = {}): Promise<Bench> {
    return new Bench(context, (await testPrograms()).transpilePath, init);
  }

  /** A transpiler that is a script of the test's. */
  static async withScript(context: TestContext, script: string, init: Partial<TranspilerInit> = {}): Promise<Bench> {
    const folder = new TempFolder();
    context.after(() => folder[Symbol.dispose]());
    writeFileSync(folder.at("transpile.mjs"), script);
    return new Bench(context, folder.at("transpile.mjs"), init);
  }

  get(path: string, signal = NEVER) {
    return this.transpiler.get(hashOf(path), path, signal);
  }

  /** Advances the time for readers of the clock; sleepers sleep on. */
  letPass(ms: number): void {
    this.#passedMs += ms;
  }

  leftovers(): string[] {
    return readdirSync(this.folder.at("cache/tmp"));
  }
}

/** The beginning of a script that counts how often it is run. */
function counted(context: TestContext): { readonly tries: () => number; readonly note: string } {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  const note = `import { writeFileSync } from "node:fs"; writeFileSync(\`${folder.path}/\${process.pid}\`, "");`;
  return { tries: () => readdirSync(folder.path).length, note };
}

test("the version in the cache's key is that of the jco-transpile that is pinned", () => {
  const { dependencies } = JSON.parse(readFileSync("package.json", "utf8"));
  assert.ok(TRANSPILER_VERSION.startsWith(`jco-transpile-${dependencies["@bytecodealliance/jco-transpile"]}-`));
});

test("what jco generates is made a script of ASCII; another form of it is noticed", () => {
  const { script } = asScript("export function instantiate(a) {\n  return 'ü';\n}\nexport const _util = {\n  \n}\n");
  assert.equal(script, "\"use strict\";\nfunction instantiate(a) {\nreturn '\\u00fc';\n}\n\n\nreturn instantiate;\n");
  for (const other of [
    "export default 1;",
    "export async function instantiate(",
    'import "x";\nexport function instantiate(',
  ]) {
    assert.throws(() => asScript(other), /changed its form/);
  }
});

test("several who want the same component share one transpilation", async (context) => {
  const bench = await Bench.create(context);
  const path = await testComponent("exit-42.wat");
  const [one, two] = await Promise.all([bench.get(path), bench.get(path)]);
  assert.deepEqual(one, two);
  assert.equal(bench.log.entries.filter(({ message }) => message === "transpiled a component").length, 1);
  assert.ok(bench.transpiler.peakRssKiB > 10_000);
  assert.deepEqual(bench.leftovers(), []);
});

test("what other versions made, and what was left half-made, goes with the first use", async (context) => {
  const bench = await Bench.create(context);
  const path = await testComponent("exit-42.wat");
  for (const name of ["tmp/1-1", `${hashOf(path)}-jco-transpile-0.1.0-1`]) {
    mkdirSync(bench.folder.at("cache", name), { recursive: true });
  }
  await bench.get(path);
  assert.deepEqual(readdirSync(bench.folder.at("cache")).sort(), [`${hashOf(path)}-${TRANSPILER_VERSION}`, "tmp"]);
  assert.deepEqual(bench.leftovers(), []);
});

test("a component whose file is not what its digest says is refused", async (context) => {
  const bench = await Bench.create(context);
  const path = bench.folder.at("component.wasm");
  writeFileSync(path, readFileSync(await testComponent("exit-42.wat")));
  const digest = hashOf(path);
  writeFileSync(path, readFileSync(await testComponent("no-run.wat")));
  await assert.rejects(bench.transpiler.get(digest, path, NEVER), (error) => isPicoletError(error, "corrupt"));
  assert.deepEqual(bench.leftovers(), []);
});

test("a component that the format allows but jco does not is refused with what jco says", async (context) => {
  const bench = await Bench.create(context);
  const path = bench.folder.at("component.wasm");
  // A type section whose only type is of no kind there is.
  writeFileSync(path, Uint8Array.from([0x00, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0, 7, 2, 1, 0x01]));
  await assert.rejects(
    bench.get(path),
    (error) => isPicoletError(error, "invalid") && /jco refuses/.test(error.message),
  );
});

test("what was refused is refused again without another process, until the component has been removed", async (context) => {
  const answer = JSON.stringify({ kind: "failed", code: "invalid", message: "jco refuses the component: no" });
  const { tries, note } = counted(context);
  const refusing = await Bench.withScript(context, `${note} console.log(${JSON.stringify(answer)});`);
  const path = await testComponent("exit-42.wat");
  for (let time = 0; time < 3; time += 1) {
    await assert.rejects(
      refusing.get(path),
      (error) => isPicoletError(error, "invalid") && /jco refuses/.test(error.message),
    );
    assert.equal(tries(), 1);
  }
  await refusing.transpiler.remove(hashOf(path));
  await assert.rejects(refusing.get(path), (error) => isPicoletError(error, "invalid"));
  assert.equal(tries(), 2);
  const failing = await Bench.withScript(context, `${note} process.exit(3);`);
  for (const count of [3, 4]) {
    await assert.rejects(failing.get(path), (error) => isPicoletError(error, "failed"));
    assert.equal(tries(), count, "what may pass is tried again");
  }
});

test("a transpilation that took all its time is left alone for a while", async (context) => {
  const { tries, note } = counted(context);
  const bench = await Bench.withScript(context, `${note} setInterval(() => {}, 1000);`, { timeout: millis(3000) });
  const path = await testComponent("exit-42.wat");
  for (let time = 0; time < 2; time += 1) {
    await assert.rejects(bench.get(path), (error) => isPicoletError(error, "deadline_exceeded"));
    assert.equal(tries(), 1);
  }
  bench.letPass(5 * 3000);
  await assert.rejects(bench.get(path), (error) => isPicoletError(error, "deadline_exceeded"));
  assert.equal(tries(), 2, "not for good");
});

test("a transpilation has its time", async (context) => {
  const bench = await Bench.withScript(context, "setInterval(() => {}, 1000)", { timeout: millis(300) });
  const path = await testComponent("exit-42.wat");
  await assert.rejects(bench.get(path), (error) => {
    return isPicoletError(error, "deadline_exceeded") && error.retryable && /longer than 0\.3 s/.test(error.message);
  });
  assert.deepEqual(bench.leftovers(), []);
});

test("a transpilation has its memory, watched where no cgroup limits it", async (context) => {
  const greedy = "const taken = []; setInterval(() => taken.push(Buffer.alloc(8 << 20, 1)), 20)";
  const bench = await Bench.withScript(context, greedy, { memoryLimitBytes: 150 * MEBIBYTE });
  const path = await testComponent("exit-42.wat");
  await assert.rejects(bench.get(path), (error) => {
    return isPicoletError(error, "resource_exhausted") && /more than 150 MiB/.test(error.message);
  });
});

test("a transpiler that says nothing, or is not there, is a failure that may pass", async (context) => {
  const path = await testComponent("exit-42.wat");
  const silent = await Bench.withScript(context, "console.error('sorry'); process.exit(3)");
  await assert.rejects(silent.get(path), (error) => {
    return isPicoletError(error, "failed") && error.retryable && /ended with 3.*sorry/.test(error.message);
  });
  const absent = await Bench.create(context, { nodePath: "/no/such/node" });
  await assert.rejects(absent.get(path), (error) => isPicoletError(error, "failed") && error.retryable);
});

test("one who gives up leaves the work to the others, and a disposed transpiler ends it", async (context) => {
  const bench = await Bench.withScript(context, "setInterval(() => {}, 1000)");
  const path = await testComponent("exit-42.wat");
  const impatient = new AbortController();
  const given = bench.get(path, impatient.signal);
  const patient = bench.get(path);
  patient.catch(() => undefined);
  impatient.abort();
  await assert.rejects(given, (error) => isPicoletError(error, "cancelled"));
  await bench.transpiler[Symbol.asyncDispose]();
  await assert.rejects(patient, (error) => isPicoletError(error, "cancelled"));
});
