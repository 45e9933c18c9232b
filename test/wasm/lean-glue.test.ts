/** What a call of the host leaves behind: nothing. */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { LoopWaiter, suspendableInstantiate } from "../../runtime-adapters/wasm/host/event-loop.ts";
import { hostImports } from "../../runtime-adapters/wasm/host/host.ts";
import type { InstantiateComponent } from "../../runtime-adapters/wasm/load-component.ts";
import { generatedFiles } from "../../runtime-adapters/wasm/transpile/generated-files.ts";
import { asScript } from "../../runtime-adapters/wasm/transpile/generated-script.ts";
import { leanGlue } from "../../runtime-adapters/wasm/transpile/lean-glue.ts";
import { SCRIPT_NAME } from "../../runtime-adapters/wasm/transpile/request.ts";
import { type TestComponent, testComponent } from "../support/components.ts";
import { loadedComponent } from "../support/loaded-component.ts";

const MIB = 1_048_576;

/** On a clock that jumps to where the component waits for. */
class Loop {
  nowNs = 1n;
  waits = 0;

  now(): bigint {
    return this.nowNs;
  }

  after(milliseconds: number, act: () => void): () => void {
    this.waits += 1;
    this.nowNs += BigInt(Math.ceil(milliseconds * 1e6));
    queueMicrotask(act);
    return () => undefined;
  }
}

async function run(instantiate: InstantiateComponent, loop: Loop, ...args: readonly string[]): Promise<unknown> {
  const waiter = new LoopWaiter(loop);
  let outcome: Promise<unknown> | undefined;
  const exports = instantiate(
    hostImports(
      {
        waiter,
        wallNow: () => 0,
        log: { write: () => undefined, flushUnfinished: () => undefined },
        beforeWait: () => undefined,
        exit: (code) => {
          throw new Error(`exit ${code}`);
        },
      },
      { args: ["waits", ...args], env: [], workingDir: undefined, preopens: [] },
    ),
    suspendableInstantiate(
      waiter,
      (name) => name.startsWith("wasi:cli/run"),
      (entered) => {
        outcome = entered;
      },
    ),
  );
  (exports["wasi:cli/run@0.2.3"] as { run(): void }).run();
  return outcome;
}

/** Of the heap that is in use. */
function collected(): number {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  return process.memoryUsage().heapUsed;
}

test("a wait leaves nothing behind", async () => {
  const instantiate = await loadedComponent("waits.c");
  const loop = new Loop();
  assert.equal(await run(instantiate, loop, "wait", "20000"), 0);
  const before = collected();
  assert.equal(await run(instantiate, loop, "wait", "100000"), 0);
  const grown = collected() - before;
  assert.equal(loop.waits, 120_000);
  // jco's own glue keeps 2 KiB of each.
  assert.ok(grown < MIB, `the heap has grown by ${grown} bytes`);
});

/** In this process, which is a fifth of what children take. */
async function isLean(path: string): Promise<boolean> {
  const files = await generatedFiles(readFileSync(path));
  const [, source] = files.find(([name]) => name === SCRIPT_NAME) ?? [];
  const { script, isLean: told } = asScript(Buffer.from(source ?? []).toString("utf8"));
  assert.equal(told, !/AsyncTask|task\./.test(script), path);
  return told;
}

test("no component of WASI 0.2 keeps what jco made of it, one of 0.3 does", async () => {
  const unlike = new Set(["realloc.h", "proposals.wit", "hostile-name.wat", "async.c"]);
  const sources = readdirSync("test/components").filter((name) => !unlike.has(name)) as TestComponent[];
  assert.ok(sources.length > 15);
  const examples = ["hello", "beat", "starts"].map((name) => `dist/examples/${name}.wasm`);
  const paths = [...(await Promise.all(sources.map(testComponent))), ...examples.filter((path) => existsSync(path))];
  const kept: string[] = [];
  for (const path of paths) if (!(await isLean(path))) kept.push(path);
  // One of JavaScript is several components in one, with flags between them.
  assert.deepEqual(
    kept.filter((path) => !path.endsWith("/beat.wasm")),
    [],
  );
  assert.equal(await isLean(await testComponent("async.c")), false);
});

test("a component with forms that are not known keeps what jco made of it", () => {
  const task = "function instantiate(a) {\nlet gen= (function* _initGenerator () {\ntask.exit();\n})();\n}";
  assert.equal(leanGlue(task), undefined);
  assert.equal(leanGlue("function instantiate(a) {\nreturn a;\n}"), undefined);
  const unfinished = "function instantiate(a) {\nconst b = (1;\nlet gen= (function* _initGenerator () {\n})();\n}";
  assert.equal(leanGlue(unfinished), undefined);
});
