/** Components of WASI 0.3, where the node runs them: what they say, how they end, and what holds them. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { describeError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { runConfined } from "@picolet/runtime-wasm/shared/component/load-component.ts";
import { textComponent } from "../support/unit/wasm/text-components.ts";
import { testComponent } from "../support/wasm/components.ts";
import { type Exit, WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const IMAGE = "localhost/async:1";
const NEVER = new AbortController().signal;

let runtime: WasmRuntime;
let adapter: WasmAdapter;
let pods = 0;

before(async () => {
  runtime = await WasmRuntime.create({ p3: true });
  adapter = runtime.adapter();
  await adapter.images.import(await testComponent("async.c"), IMAGE, NEVER);
});

after(async () => {
  await adapter?.[Symbol.asyncDispose]();
  await runtime?.[Symbol.asyncDispose]();
});

/** Each has a log of its own. */
function create(container: Readonly<Record<string, unknown>> = {}): Promise<WasmPod> {
  pods += 1;
  return WasmPod.create(runtime, adapter, { name: `async-${pods}`, image: IMAGE, container });
}

async function ran(
  args: readonly string[],
  container: Readonly<Record<string, unknown>> = {},
): Promise<{ exit: Exit; log: string }> {
  await using pod = await create(container);
  const started = await pod.start({ args });
  const exit = await pod.exit(started.id);
  return { exit, log: logOf(started) };
}

const logOf = ({ logPath }: ObservedContainer): string =>
  readFileSync(logPath, "utf8").replace(/^\S+ stdout ([PF]) (.*)\n/gm, (_, tag, text) =>
    tag === "P" ? text : `${text}\n`,
  );

test("it writes and waits asynchronously, and ends well", async () => {
  const { exit, log } = await ran(["say", "one", "two", "three"]);
  assert.deepEqual([exit.exitCode, exit.reason, log], [0, "Completed", "one\ntwo\nthree\n"]);
});

test("it runs on when it has returned, until nothing of it runs any more", async () => {
  const { exit, log } = await ran(["after", "one", "two", "three"]);
  assert.deepEqual([exit.exitCode, exit.reason, log], [0, "Completed", "one\ntwo\nthree\n"]);
});

test("its glue is none that grows with its calls", async () => {
  await ran(["say"]);
  const told = runtime.log.entries.filter(({ message }) => /transpiled a component|glue of jco's own/.test(message));
  assert.deepEqual(
    told.map(({ message }) => message),
    ["transpiled a component"],
  );
});

test("what its host tells is there, and its input is at its end", async () => {
  const { exit, log } = await ran(["about"]);
  assert.deepEqual([exit.exitCode, log], [0, "input 1 waited now random\n"]);
});

test("every way to end has its code, and what was written before it is in the log", async () => {
  for (const [args, code, reason] of [
    [["exit", "0"], 0, "Completed"],
    [["exit", "7"], 7, "Error"],
    [["fail"], 1, "Error"],
    [["trap"], 1, "Error"],
    [["stuck"], 1, "Error"],
  ] as const) {
    const { exit, log } = await ran(args);
    const [first, second, ...frames] = log.split("\n");
    assert.deepEqual([exit.exitCode, exit.reason, first], [code, reason, args[0]], args.join(" "));
    const trap = exit.message === "" ? "" : `stderr F picolet: ${exit.message}`;
    assert.ok(second?.endsWith(trap) && (trap !== "" || second === ""), log);
    for (const frame of frames) assert.match(frame, /^$|stderr F {5}at .*wasm-function/);
    if (args[0] === "trap") assert.match(exit.message, /wasm trap: .*unreachable/);
    if (args[0] === "stuck") assert.match(exit.message, /wasm trap: .*(deadlock|never comes)/);
  }
});

test("SIGTERM ends it while it waits, and a kill is seen", async () => {
  for (const how of ["stop", "kill"] as const) {
    await using pod = await create();
    const container = await pod.start({ args: ["sleep"] });
    assert.deepEqual(await pod.text(container, 1), ["sleep"]);
    if (how === "stop") await pod.stop(container.id, millis(30_000));
    else await pod.killAndAwaitHint(container.id);
    assert.equal((await pod.exit(container.id)).exitCode, how === "stop" ? 143 : 137);
  }
});

test("while it waits it takes next to no processor time", async () => {
  await using pod = await create();
  const container = await pod.start({ args: ["sleep"] });
  await pod.text(container, 1);
  const runner = runtime.runner(container.id);
  assert.ok(runner);
  const switches = (): number =>
    Number(/^voluntary_ctxt_switches:\s*(\d+)/m.exec(readFileSync(`/proc/${runner.pid}/status`, "latin1"))?.[1]);
  const looked = { switches: switches(), at: performance.now() };
  // A look of the glue's every 10 ms and every millisecond would be 1,000 a second; what is measured is real time.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const seconds = (performance.now() - looked.at) / 1000;
  assert.ok((switches() - looked.switches) / seconds < 200);
});

test("its memory is limited, and a flood of output takes none", async () => {
  const { exit, log } = await ran(["grow"], { resources: { limits: { memory: "32Mi" } } });
  assert.equal(exit.exitCode, 0);
  const pages = Number.parseInt(log, 10);
  assert.ok(pages > 100 && pages < 512, log);
  const flooded = await ran(["flood", "128"], { resources: { limits: { memory: "48Mi" } } });
  assert.deepEqual([flooded.exit.exitCode, flooded.exit.reason], [0, "Completed"]);
  assert.equal(flooded.log.length, 128 * 65_536);
});

test("a node that does not run them says how it would", async () => {
  await using plain = await WasmRuntime.create();
  await using without = plain.adapter();
  await assert.rejects(without.images.import(await testComponent("async.c"), IMAGE, NEVER), (error) => {
    assert.match(
      describeError(error),
      /another WASI than 0\.2: it has .*wasi:cli\/run@0\.3\.0.*; build it for .*wasm\.p3: true/,
    );
    return true;
  });
});

test("what of WASI 0.3 is not there is listed, a draft of it is refused", async () => {
  const wanting = await textComponent(
    '(component (import "wasi:sockets/tcp@0.3.0" (instance)) (import "wasi:tls/client@0.3.0" (instance)) (import "wasi:filesystem/types@0.3.0" (instance)))',
  );
  await adapter.images.import(wanting, "localhost/wanting:1", NEVER);
  await using pod = await WasmPod.create(runtime, adapter, { image: "localhost/wanting:1" });
  await assert.rejects(pod.start(), (error) => {
    assert.match(
      describeError(error),
      /imports what its pod does not grant: wasi:sockets\/tcp@0\.3\.0, wasi:tls\/client@0\.3\.0; build it/,
    );
    return true;
  });
  const draft = await textComponent('(component (import "wasi:cli/stdout@0.3.0-rc-2025-09-16" (instance)))');
  await assert.rejects(adapter.images.import(draft, "localhost/draft:1", NEVER), /another WASI than 0\.2|cannot/);
  const asking = await textComponent(
    '(component (import "wasi:http/types@0.2.3" (instance)) (import "wasi:cli/stdout@0.3.0" (instance)))',
  );
  await adapter.images.import(asking, "localhost/asking:1", NEVER);
  await using networked = await WasmPod.create(runtime, adapter, {
    ...{ name: "networked", image: "localhost/asking:1" },
    annotations: { "wasm.picolet.io/network": "http://192.0.2.1" },
  });
  await assert.rejects(networked.start(), (error) => {
    assert.match(
      describeError(error),
      /is for WASI 0\.3, where this is not there yet: wasi:http\/types@0\.2\.3; build/,
    );
    return true;
  });
  await using dense = await WasmPod.create(runtime, adapter, {
    ...{ name: "dense", image: IMAGE },
    annotations: { "wasm.picolet.io/mode": "dense" },
  });
  await assert.rejects(dense.start({ args: ["say"] }), (error) => {
    assert.match(describeError(error), /shares its process cannot have WASI 0\.3/);
    return true;
  });
});

test("its glue finds timers and nothing else of Node's", () => {
  const seen = runConfined(
    "return [typeof setTimeout, typeof setImmediate, typeof process, typeof require, typeof fetch]",
    "x",
    { setTimeout: () => 1 },
  );
  assert.deepEqual(seen, ["function", "undefined", "undefined", "undefined", "undefined"]);
});
