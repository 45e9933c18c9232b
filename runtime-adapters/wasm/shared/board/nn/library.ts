/**
 * onnxruntime-web, which computes ONNX models with WebAssembly on one thread: the same on every processor, bounded by
 * the memory limit of the process, and without system calls. Its interface is asynchronous, but with this backend it
 * only ever waits for microtasks. It runs in a context of its own, whose microtasks are all done before a call from
 * outside returns, so that host functions need not set the component's stack aside.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { constants, createContext, Script } from "node:vm";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { TensorType } from "@picolet/wit/generated/picolet-board-nn.js";
import type { InferenceLibrary, InferenceSession, TensorValue } from "./inference.ts";

/** The files of the package's folder `dist` that are used. */
const LIBRARY_FILES = {
  script: "ort.wasm.min.js",
  glue: "ort-wasm-simd-threaded.mjs",
  code: "ort-wasm-simd-threaded.wasm",
};

/** `Y = X + X` for one number, opset 13: the library is ready when it has been loaded. */
const SMALLEST_MODEL = "CAg6NQoOCgFYCgFYEgFZIgNBZGQSAWdaDwoBWBIKCggIARIECgIIAWIPCgFZEgoKCAgBEgQKAggBQgIQDQ==";

type Numbers = { readonly buffer: ArrayBufferLike; readonly byteOffset: number; readonly byteLength: number };
type NumbersOf = new (buffer: ArrayBuffer) => Numbers;

interface OrtTensor {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: Numbers;
}

interface OrtSession {
  readonly inputNames: readonly string[];
  run(inputs: Readonly<Record<string, OrtTensor>>): Promise<Readonly<Record<string, OrtTensor>>>;
  release(): Promise<void>;
}

interface Ort {
  readonly env: {
    logLevel: string;
    wasm: { numThreads: number; wasmBinary: Uint8Array | undefined; wasmPaths: object };
  };
  readonly InferenceSession: { create(model: Uint8Array, options: object): Promise<OrtSession> };
  readonly Tensor: new (type: string, data: Numbers, dims: readonly number[]) => OrtTensor;
}

/** BF16 is missing: the library has no such tensors. */
const TYPES: Readonly<Partial<Record<TensorType, readonly [name: string, numbers: NumbersOf]>>> = {
  FP16: ["float16", Uint16Array],
  FP32: ["float32", Float32Array],
  FP64: ["float64", Float64Array],
  U8: ["uint8", Uint8Array],
  I32: ["int32", Int32Array],
  I64: ["int64", BigInt64Array],
};

/** Settled promises of the context, read when its microtasks are done. */
type Outcome = { readonly value: unknown } | { readonly error: unknown };

/** @param folder with `LIBRARY_FILES`. @throws `internal` when it does not become ready */
export async function loadInferenceLibrary(folder: string): Promise<InferenceLibrary> {
  const context = new LibraryContext(folder);
  const { ort } = context;
  ort.env.logLevel = "fatal";
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = readFileSync(join(folder, LIBRARY_FILES.code));
  ort.env.wasm.wasmPaths = { mjs: pathToFileURL(join(folder, LIBRARY_FILES.glue)).href };
  const create = (model: Uint8Array): Promise<OrtSession> =>
    ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
  await context.settled(() => create(Buffer.from(SMALLEST_MODEL, "base64")).then((session) => session.release()));
  ort.env.wasm.wasmBinary = undefined;
  return {
    load: (model) =>
      sessionOf(
        context,
        context.done(() => create(model)),
      ),
  };
}

function sessionOf(context: LibraryContext, session: OrtSession): InferenceSession {
  return {
    inputs: session.inputNames,
    run(inputs) {
      const fed: Record<string, OrtTensor> = {};
      for (const [name, value] of inputs) fed[name] = toOrt(context.ort, value);
      const made = context.done(() => session.run(fed));
      return new Map(Object.entries(made).map(([name, tensor]) => [name, fromOrt(name, tensor)]));
    },
    close: () => context.done(() => session.release()),
  };
}

function toOrt({ Tensor }: Ort, { type, dimensions, data }: TensorValue): OrtTensor {
  const [name, NumbersOfType] = TYPES[type] ?? [];
  if (name === undefined || NumbersOfType === undefined) throw new Error(`there are no tensors of ${type} here`);
  // A copy, whose numbers are aligned.
  const { buffer } = new Uint8Array(data);
  return new Tensor(name, new NumbersOfType(buffer), [...dimensions]);
}

function fromOrt(name: string, { type, dims, data }: OrtTensor): TensorValue {
  const known = Object.entries(TYPES).find(([, [each]]) => each === type)?.[0];
  if (known === undefined) throw new Error(`the output ${name} is of ${type}, for which there is no tensor`);
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return { type: known as TensorType, dimensions: Uint32Array.from(dims), data: bytes };
}

class LibraryContext {
  readonly ort: Ort;
  readonly #globals: { call?: () => Promise<unknown>; outcome?: Outcome | undefined };
  readonly #call = new Script(
    "outcome = undefined; call().then((value) => { outcome = { value }; }, (error) => { outcome = { error }; })",
  );
  readonly #turn = new Script("undefined");

  constructor(folder: string) {
    const path = join(folder, LIBRARY_FILES.script);
    const load = createRequire(path);
    const module: { exports: unknown } = { exports: {} };
    // The classes of this context: what goes in and out is compared by `instanceof`.
    const classes = { ArrayBuffer, SharedArrayBuffer, DataView, WebAssembly, URL, TextDecoder, TextEncoder };
    const numbers = { Int8Array, Uint8Array, Int16Array, Uint16Array, Int32Array, Uint32Array };
    const large = { Float32Array, Float64Array, BigInt64Array, BigUint64Array };
    const node = { process, console, performance, Buffer, require: load, module, exports: module.exports };
    this.#globals = createContext({ ...classes, ...numbers, ...large, ...node }, { microtaskMode: "afterEvaluate" });
    new Script(readFileSync(path, "utf8"), {
      filename: path,
      importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    }).runInContext(this.#globals);
    this.ort = module.exports as Ort;
  }

  /** Calls, and waits for what the event loop has to do for it: only while the library gets ready. */
  async settled(call: () => Promise<unknown>): Promise<void> {
    this.#begin(call);
    while (this.#globals.outcome === undefined) {
      await new Promise((resolve) => setImmediate(resolve));
      this.#turn.runInContext(this.#globals);
    }
    this.#result();
  }

  /** @throws what the call throws */
  done<R>(call: () => Promise<R>): R {
    this.#begin(call);
    return this.#result() as R;
  }

  #begin(call: () => Promise<unknown>): void {
    this.#globals.call = call;
    this.#call.runInContext(this.#globals);
  }

  #result(): unknown {
    const { outcome } = this.#globals;
    if (outcome === undefined) throw new PicoletError("internal", "the library for models waits for what never comes");
    if ("error" in outcome) throw outcome.error;
    return outcome.value;
  }
}
