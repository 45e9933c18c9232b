/** The board's services for real components in real runners, with the agent's own store behind them. */
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { NodeInfoService } from "@picolet/agent/node/node-info-service.ts";
import { KeyvalueService } from "@picolet/agent/store/keyvalue/keyvalue-service.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const BOARD = "localhost/board:1";
const WASI = "localhost/wasi-keyvalue:1";
const DRAFT = "localhost/wasi-keyvalue-draft:1";
const ASYNC = "localhost/async-board:1";
const NEVER = new AbortController().signal;
const ALL = { "wasm.picolet.io/interfaces": "keyvalue, config, logging, node-info" };
const BUCKET = { ...ALL, "wasm.picolet.io/keyvalue": "b=10Ki/400" };

let runtime: WasmRuntime;
let adapter: WasmAdapter;
let keyvalue: KeyvalueService;
let pods = 0;

const makeKeyvalue = (): KeyvalueService =>
  new KeyvalueService(
    {
      clock: systemClock,
      log: new RecordedLog(),
      namedBy: () => [],
      isClockSet: () => true,
      onDamage: () => assert.fail("damaged"),
    },
    { path: runtime.folder.at("keyvalue.db") },
  );

before(async () => {
  const nodeInfo = new NodeInfoService(
    {
      conditions: () => [{ type: "MemoryPressure", status: "True", reason: "", message: "", lastTransitionTime: "" }],
      labels: () => ({ "topology.kubernetes.io/zone": "a", secret: "x", site: "roof" }),
      isClockSet: () => true,
      hub: () => "disconnected",
    },
    { nodeName: "node-a", shownLabels: ["site"] },
  );
  runtime = await WasmRuntime.create({ p3: true, services: { keyvalue: () => keyvalue, "node-info": () => nodeInfo } });
  keyvalue = makeKeyvalue();
  adapter = runtime.adapter();
  for (const [source, name] of [
    ["board.c", BOARD],
    ["wasi-keyvalue.c", WASI],
    ["wasi-keyvalue-draft.c", DRAFT],
    ["async-board.c", ASYNC],
  ] as const) {
    await adapter.images.import(await testComponent(source), name, NEVER);
  }
});

after(async () => {
  await adapter?.[Symbol.asyncDispose]();
  keyvalue?.[Symbol.dispose]();
  await runtime?.[Symbol.asyncDispose]();
});

interface Options {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly image?: string;
  readonly namespace?: string;
  readonly container?: Readonly<Record<string, unknown>>;
  readonly mounts?: readonly { containerPath: string; hostPath: string; readOnly: boolean }[];
}

/** Runs the steps to their end. @returns what was said */
async function run(steps: readonly string[], options: Options = {}): Promise<string[]> {
  const { annotations = BUCKET, image = BOARD, namespace = "default", container = {}, mounts = [] } = options;
  pods += 1;
  await using pod = await WasmPod.create(runtime, adapter, {
    name: `pod-${pods}`,
    image,
    container,
    annotations,
    namespace,
  });
  const started = await pod.start({
    args: steps,
    mounts: mounts.map((each) => ({ ...each, selinuxRelabel: false, propagation: "private" }) as never),
  });
  const { exitCode, message } = await pod.exit(started.id);
  const lines = readFileSync(started.logPath, "utf8").trimEnd().split("\n");
  assert.equal(exitCode, 0, `${message}\n${lines.join("\n")}`);
  return lines.map((line) => line.split(" ").slice(3).join(" ").trimEnd());
}

describe("keyvalue", () => {
  test("keeps what was set, for every pod of the namespace that names the bucket, and for no other", async () => {
    const said = await run(["open", "none", "open", "b", "get", "k", "set", "k", "v", "get", "k", "exists", "k"]);
    assert.deepEqual(said, ["error no-such-bucket", "open", "nothing", "set k", "v", "exists 1"]);
    assert.deepEqual(await run(["open", "b", "get", "k", "delete", "k", "get", "k"]), [
      "open",
      "v",
      "deleted k",
      "nothing",
    ]);
    await run(["open", "b", "set", "mine", "1"], { namespace: "other" });
    assert.deepEqual(await run(["open", "b", "get", "mine"]), ["open", "nothing"]);
    assert.deepEqual(await run(["open", "b"], { annotations: ALL }), ["error no-such-bucket"]);
  });

  test("counts, swaps and sets several at once", async () => {
    const steps = ["open", "b", "add", "n", "5", "add", "n", "-7", "set", "t", "x", "add", "t", "1"];
    steps.push("swap", "s", "-", "one", "swap", "s", "-", "two", "swap", "s", "one", "two", "swap", "u", "one", "two");
    steps.push("many", "a", "1", "c", "3");
    assert.deepEqual(await run(steps, { namespace: "atomics" }), [
      ...["open", "5", "-2", "set t", "error not-a-number"],
      ...["swapped", "holds one", "swapped", "holds nothing"],
      "1 nothing 3",
    ]);
  });

  test("takes no more than the pod may put there, and no key or value that is too large", async () => {
    const steps = ["open", "b", "fill", "a", "10000", "fill", "b", "1000", "fill", "a", "9000", "fill", "b", "1000"];
    steps.push("fill", "c", "1048577", "fill", "c", "100000000", "long", "1024", "long", "1025", "long", "1000000");
    assert.deepEqual(await run(steps, { namespace: "quota" }), [
      ...["open", "filled a", "error quota-exceeded", "filled a", "filled b"],
      ...["error too-large", "error too-large", "error quota-exceeded", "error bad-key", "error bad-key"],
    ]);
  });

  test("goes on when the agent is started anew meanwhile", async () => {
    const pod = await WasmPod.create(runtime, adapter, {
      name: "survivor",
      image: BOARD,
      annotations: BUCKET,
    });
    const started = await pod.start({ args: ["open", "b", "set", "s", "1", "until", "go", "get", "s", "hold"] });
    await pod.lines(started, 2);
    await adapter[Symbol.asyncDispose]();
    keyvalue[Symbol.dispose]();
    keyvalue = makeKeyvalue();
    adapter = runtime.adapter();
    await adapter.list(NEVER);
    await run(["open", "b", "set", "go", ""]);
    assert.deepEqual(await pod.text(started, 3), ["open", "set s", "1"]);
    const { sandboxes } = await adapter.inspect(pod.desired.uid, NEVER);
    for (const { id } of sandboxes) {
      await adapter.apply(pod.desired, { kind: "removeSandbox", sandboxId: id }, NEVER);
    }
  });

  test("is there for a component that runs again in a runner that was kept ready", async () => {
    const name = "again";
    await using pod = await WasmPod.create(runtime, adapter, {
      ...{ name, image: BOARD, annotations: BUCKET, namespace: name },
    });
    const args = ["open", "b", "add", "n", "1"];
    const first = await pod.start({ args });
    assert.equal((await pod.exit(first.id)).exitCode, 0);
    await adapter.sparesSettled;
    const second = await pod.start({ args, attempt: 1 });
    const { exitCode, message } = await pod.exit(second.id);
    assert.equal(exitCode, 0, message);
    assert.deepEqual(await pod.text(second, 2), ["open", "2"]);
  });

  test("answers wasi:keyvalue too, in both its drafts", async () => {
    assert.deepEqual(await run([], { image: DRAFT, namespace: "draft" }), ["300 keys on 2 pages", "7"]);
    const config = runtime.folder.at("wasi-config");
    mkdirSync(config);
    writeFileSync(`${config}/colour`, "red");
    const said = await run([], {
      image: WASI,
      namespace: "wasi",
      annotations: { ...BUCKET, "wasm.picolet.io/config": "settings" },
      container: { volumeMounts: [{ name: "settings", mountPath: "/etc/settings" }] },
      mounts: [{ containerPath: "/etc/settings", hostPath: config, readOnly: true }],
    });
    assert.deepEqual(said, [
      ...["result 1 case 0", "result 1 case 2 bad-key", "k=mine nothing n=-5", "1 keys, cursor 0", "colour=red"],
      "WARN [main] two\\nlines",
    ]);
  });
});

describe("config", () => {
  test("gives the files of the volume as they are at each moment, and nothing that lies outside of it", async () => {
    const root = runtime.folder.at("config");
    mkdirSync(`${root}/..1`, { recursive: true });
    writeFileSync(`${root}/..1/colour`, "red");
    symlinkSync("..1", `${root}/..data`);
    symlinkSync("..data/colour", `${root}/colour`);
    writeFileSync(runtime.folder.at("outside"), "secret");
    symlinkSync("../outside", `${root}/out`);
    symlinkSync(runtime.folder.at("outside"), `${root}/far`);
    writeFileSync(`${root}/binary`, Uint8Array.of(0xff, 0xfe));
    await using pod = await WasmPod.create(runtime, adapter, {
      name: "configured",
      image: BOARD,
      annotations: { ...ALL, "wasm.picolet.io/config": "settings" },
      container: { volumeMounts: [{ name: "settings", mountPath: "/etc/settings/" }] },
    });
    const steps = ["config", "colour", "config", "none", "config", "..data", "config", "../outside", "config", "out"];
    steps.push("config", "far", "config", "binary", "changed", "colour", "red", "hold");
    const mounts = [{ containerPath: "/etc/settings/", hostPath: root, readOnly: true }] as never;
    const started = await pod.start({ args: steps, mounts });
    const first = await pod.text(started, 7);
    assert.deepEqual(first, ["red", "nothing", "nothing", "nothing", "error io", "error io", "error unfit"]);
    mkdirSync(`${root}/..2`);
    writeFileSync(`${root}/..2/colour`, "blue");
    symlinkSync("..2", `${root}/..data_tmp`);
    renameSync(`${root}/..data_tmp`, `${root}/..data`);
    rmSync(`${root}/..1`, { recursive: true });
    assert.equal((await pod.text(started, 8))[7], "blue");
  });

  test("is refused when the container does not mount the volume that the pod names", async () => {
    const annotations = { ...ALL, "wasm.picolet.io/config": "settings" };
    await assert.rejects(run([], { annotations }), /does not mount the volume settings/);
  });
});

test("logging writes lines with their level, and drops those below the pod's", async () => {
  const steps = ["log", "1", "", "debugging", "log", "2", "", "all well", "log", "5", "pump", "stuck"];
  assert.deepEqual(await run(steps), ["INFO all well", "CRITICAL [pump] stuck"]);
  assert.deepEqual(await run(steps, { annotations: { ...ALL, "wasm.picolet.io/log-level": "critical" } }), [
    "CRITICAL [pump] stuck",
  ]);
});

test("node-info tells where the component runs, with the labels it may see", async () => {
  const [node = "", pod] = await run(["node", "pod"], { namespace: "here" });
  const [, name, labels, pressure, clock, hub] =
    /^(\S+) labels (\d+) pressure (\d+) clock (\d) hub (\S+)$/.exec(node) ?? [];
  assert.deepEqual([name, labels, Number(pressure) & 1, clock, hub], ["node-a", "2", 1, "1", "disconnected"]);
  assert.match(pod ?? "", /^pod-\d+ here pod-\d+-6f2a main$/);
});

test("a component whose pod does not name what it imports is not started", async () => {
  await assert.rejects(
    run(["open", "b"], { annotations: { "wasm.picolet.io/interfaces": "config, logging" } }),
    /imports what its pod does not grant: picolet:board\/keyvalue@0\.1\.0, picolet:board\/node-info@0\.1\.0; name keyvalue, node-info in the pod's annotation wasm\.picolet\.io\/interfaces/,
  );
});

describe("by WASI 0.3", () => {
  const interfaces = "keyvalue, config, logging, node-info, telemetry";
  const annotations = { ...BUCKET, "wasm.picolet.io/interfaces": interfaces };
  const said = (...steps: readonly string[]): Promise<string[]> =>
    run(steps, { annotations, image: ASYNC, namespace: "async" });

  test("a component asks the agent while its timers run, again and again", async () => {
    assert.deepEqual(await said("count", "b", "n", "1"), ["1 and the timer"]);
    assert.deepEqual(await said("count", "b", "n", "150"), ["151 and the timer"]);
    assert.deepEqual(await said("keep", "b", "k", "words"), ["words"]);
  });

  test("a handle that is given away in a call that waits is gone once", async () => {
    assert.deepEqual(await said("swap", "b", "s", "first"), ["swapped", "changed meanwhile", "swapped"]);
    assert.deepEqual(await run(["open", "b", "get", "s"], { namespace: "async" }), ["open", "last"]);
  });

  test("its errors are those of the interface", async () => {
    assert.deepEqual(await said("count", "none", "n", "1"), ["open failed: 0"]);
    assert.deepEqual(await said("count", "b", "k", "1"), ["increment failed: 4"]);
  });
});
