/** Models for real components in real runners. */
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { onnxModel } from "../support/unit/wasm/onnx-model.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const IMAGE = "localhost/nn:1";
const NEVER = new AbortController().signal;
const GRANTED = { "wasm.picolet.io/interfaces": "nn", "wasm.picolet.io/nn": "models" };
const MODELS = "/models";

let runtime: WasmRuntime;
let adapter: WasmAdapter;
let pods = 0;

before(async () => {
  runtime = await WasmRuntime.create();
  adapter = runtime.adapter();
  await adapter.images.import(await testComponent("nn.c"), IMAGE, NEVER);
  mkdirSync(runtime.folder.at("models"));
  const write = (name: string, content: Uint8Array): void =>
    writeFileSync(runtime.folder.at(`models/${name}`), content);
  write("double.onnx", onnxModel([{ operator: "Add", inputs: ["X", "X"], output: "Y" }], [1, "n"]));
  write(
    "relu.onnx",
    onnxModel(
      [
        { operator: "Neg", inputs: ["X"], output: "N" },
        { operator: "Relu", inputs: ["N"], output: "Y" },
      ],
      [1, "n"],
    ),
  );
  write("broken.onnx", Buffer.from("no model"));
});

after(async () => {
  await adapter?.[Symbol.asyncDispose]();
  await runtime?.[Symbol.asyncDispose]();
});

interface Options {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly memory?: string;
}

async function podOf({ annotations = GRANTED, memory = "192Mi" }: Options): Promise<WasmPod> {
  pods += 1;
  const container = {
    resources: { limits: { memory } },
    volumeMounts: [{ name: "models", mountPath: MODELS }],
  };
  return await WasmPod.create(runtime, adapter, { name: `pod-${pods}`, image: IMAGE, container, annotations });
}

const start = (pod: WasmPod, args: readonly string[]) =>
  pod.start({
    args,
    mounts: [
      {
        containerPath: MODELS,
        hostPath: runtime.folder.at("models"),
        readOnly: true,
        selinuxRelabel: false,
        propagation: "private",
      } as never,
    ],
  });

/** Runs the steps to their end. @returns what was said */
async function run(steps: readonly string[], options: Options = {}): Promise<string[]> {
  await using pod = await podOf(options);
  const started = await start(pod, steps);
  const { exitCode, message } = await pod.exit(started.id);
  const lines = readFileSync(started.logPath, "utf8").trimEnd().split("\n");
  assert.equal(exitCode, 0, `${message}\n${lines.join("\n")}`);
  return lines.map((line) => line.split(" ").slice(3).join(" ").trimEnd());
}

test("a component has models computed that it brings and that its pod has, again and again", async () => {
  const steps = ["file", `${MODELS}/double.onnx`, "run", "X", "3", "1.5", "run", "X", "1", "7", "drop"];
  steps.push("name", "relu", "run", "X", "4", "-2", "again", "3000", "run", "X", "1", "-9", "drop");
  assert.deepEqual(await run(steps), [
    ...["loaded", "Y FP32 [1 3] 3 5 7", "Y FP32 [1 1] 14", "dropped"],
    ...["loaded", "Y FP32 [1 4] 2 1 -0 0", "again", "Y FP32 [1 1] 9", "dropped"],
  ]);
});

test("what is wrong is an error that says so, and the component goes on", async () => {
  const steps = ["file", `${MODELS}/broken.onnx`, "name", "none", "name", "../double", "gpu", `${MODELS}/double.onnx`];
  steps.push("name", "double", "run", "Z", "1", "1", "short", "X", "2", "run", "X", "1", "4");
  const said = await run(steps);
  assert.match(said.shift() ?? "", /^error invalid-encoding: .*protobuf/);
  assert.deepEqual(said, [
    'error not-found: there is no model "none"',
    'error not-found: there is no model "../double"',
    "error unsupported-operation: there is no gpu for models, only cpu",
    "loaded",
    "error invalid-argument: there is no input Z; the model has X",
    "error invalid-argument: the input X has 7 bytes, and 8 by its type FP32 and its dimensions [1, 2]",
    "Y FP32 [1 1] 8",
  ]);
});

test("a pod that does not name it, has too little memory or shares a process is told so", async () => {
  const refusal = async (options: Options): Promise<string> => {
    await using pod = await podOf(options);
    const { message } = await start(pod, []).then(
      () => assert.fail("it started"),
      (error: Error) => error,
    );
    return message;
  };
  assert.match(await refusal({ annotations: {} }), /wasi:nn/);
  assert.match(await refusal({ memory: "64Mi" }), /134217728|128Mi|128 MiB/);
  assert.match(await refusal({ annotations: { ...GRANTED, "wasm.picolet.io/mode": "dense" } }), /models \(nn\)/);
});
