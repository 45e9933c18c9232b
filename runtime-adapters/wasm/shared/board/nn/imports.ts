/** picolet:board/nn and wasi:nn: models that are computed in the component's own process, and never wait. */
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { describeError } from "@picolet/protocol/errors.ts";
import type * as Nn from "@picolet/wit/generated/picolet-board-nn.js";
import { resolvePath } from "../../host/paths.ts";
import { Failure } from "../../resources/failure.ts";
import { HandlePool, HostResource, type LiveResources, makeConstructor, trapOnNew } from "../../resources/handles.ts";
import type { InferenceLibrary, InferenceSession, TensorValue } from "./inference.ts";

/** More than fits into the memory of a small board. The pod's memory limit is met before. */
const MAX_MODEL_BYTES = 1_073_741_824;
const MODEL_NAME = /^[\w.-]{1,200}$/;
const ELEMENT_BYTES: Readonly<Record<Nn.TensorType, number>> = {
  ...{ FP16: 2, FP32: 4, FP64: 8, BF16: 2, U8: 1, I32: 4, I64: 8 },
};

export interface NnParts {
  /** Undefined: this process has none, and every model is refused. */
  readonly library: InferenceLibrary | undefined;
  /** An open directory, O_PATH is enough; undefined: no volume is named, there are no models by name. */
  readonly models: number | undefined;
  readonly live: LiveResources | undefined;
}

class Tensor extends HostResource {
  readonly value: TensorValue;

  constructor(pool: HandlePool, value: TensorValue) {
    super(pool);
    this.value = value;
  }

  dimensions(): Uint32Array {
    return this.value.dimensions;
  }

  ty(): Nn.TensorType {
    return this.value.type;
  }

  data(): Uint8Array {
    return this.value.data;
  }
}

class NnError extends HostResource {
  readonly #code: Nn.ErrorCode;
  readonly #text: string;

  constructor(pool: HandlePool, code: Nn.ErrorCode, text: string) {
    super(pool);
    this.#code = code;
    this.#text = text;
  }

  code(): Nn.ErrorCode {
    return this.#code;
  }

  data(): string {
    return this.#text;
  }
}

class ExecutionContext extends HostResource {
  readonly #graph: Graph;
  readonly #parts: GraphParts;

  constructor(parts: GraphParts, graph: Graph) {
    super(parts.contexts);
    this.#parts = parts;
    this.#graph = graph;
    graph.users += 1;
  }

  compute(inputs: readonly (readonly [name: string, tensor: Tensor])[]): [string, Tensor][] {
    const { fail, tensors } = this.#parts;
    const { session } = this.#graph;
    const given = new Map<string, TensorValue>();
    for (const [name, { value }] of inputs) {
      const problem = given.has(name) ? "is given twice" : misfit(value);
      if (problem !== undefined) throw fail("invalid-argument", `the input ${name} ${problem}`);
      given.set(name, value);
    }
    const unknown = [...given.keys()].find((name) => !session.inputs.includes(name));
    const missing = session.inputs.find((name) => !given.has(name));
    if (unknown !== undefined || missing !== undefined) {
      const problem = unknown === undefined ? `the input ${missing} is missing` : `there is no input ${unknown}`;
      throw fail("invalid-argument", `${problem}; the model has ${session.inputs.join(", ")}`);
    }
    try {
      return [...session.run(given)].map(([name, value]) => [name, new Tensor(tensors, value)]);
    } catch (error) {
      throw fail("runtime-error", describeError(error));
    }
  }

  protected override closed(): void {
    this.#graph.unused();
  }
}

/** A model. Its contexts may outlive the handle. */
class Graph extends HostResource {
  readonly session: InferenceSession;
  readonly #parts: GraphParts;
  /** The handle, and each context. */
  users = 1;

  constructor(parts: GraphParts, session: InferenceSession) {
    super(parts.graphs);
    this.#parts = parts;
    this.session = session;
  }

  initExecutionContext(): ExecutionContext {
    return new ExecutionContext(this.#parts, this);
  }

  unused(): void {
    this.users -= 1;
    if (this.users === 0) this.session.close();
  }

  protected override closed(): void {
    this.unused();
  }
}

interface GraphParts {
  readonly graphs: HandlePool;
  readonly contexts: HandlePool;
  readonly tensors: HandlePool;
  readonly fail: (code: Nn.ErrorCode, text: string) => Failure<NnError>;
}

export function nnImports({ library, models, live }: NnParts) {
  const pool = (what: string): HandlePool => new HandlePool(what, live);
  const [tensors, errors] = [pool("tensors"), pool("errors of wasi:nn")];
  const fail = (code: Nn.ErrorCode, text: string) => new Failure(new NnError(errors, code, text));
  const parts: GraphParts = { tensors, fail, graphs: pool("graphs"), contexts: pool("execution contexts") };
  const made = (model: Uint8Array): Graph => {
    if (library === undefined) throw fail("unsupported-operation", "this process computes no models");
    let session: InferenceSession;
    try {
      session = library.load(model);
    } catch (error) {
      throw fail("invalid-encoding", describeError(error));
    }
    return new Graph(parts, session);
  };
  const graph = {
    load(builder: readonly Uint8Array[], encoding: Nn.GraphEncoding, target: Nn.ExecutionTarget): Graph {
      if (target !== "cpu") throw fail("unsupported-operation", `there is no ${target} for models, only cpu`);
      if (encoding !== "onnx" && encoding !== "autodetect")
        throw fail("unsupported-operation", `${encoding} is not known, only onnx`);
      return made(builder.length === 1 ? (builder[0] as Uint8Array) : Buffer.concat(builder));
    },
    loadByName(name: string): Graph {
      const model = models === undefined || !MODEL_NAME.test(name) ? undefined : readModel(models, `${name}.onnx`);
      if (model === undefined) throw fail("not-found", `there is no model ${JSON.stringify(name.slice(0, 200))}`);
      if (model === "too large") throw fail("too-large", `the model ${name} is larger than ${MAX_MODEL_BYTES} bytes`);
      return made(model);
    },
  };
  const classes = {
    tensor: {
      Tensor: makeConstructor(
        Tensor,
        (dimensions: Uint32Array, type: Nn.TensorType, data: Uint8Array) =>
          // The lists are the component's memory, or a view of it.
          new Tensor(tensors, { dimensions: dimensions.slice(), type, data: data.slice() }),
      ),
    },
    errors: { Error: makeConstructor(NnError, trapOnNew) },
    inference: { GraphExecutionContext: makeConstructor(ExecutionContext, trapOnNew) },
    graph: { Graph: makeConstructor(Graph, trapOnNew), ...graph },
  };
  return {
    "picolet:board/nn": { ...classes.tensor, ...classes.errors, ...classes.inference, ...classes.graph },
    "wasi:nn/tensor": classes.tensor,
    "wasi:nn/errors": classes.errors,
    "wasi:nn/inference": classes.inference,
    "wasi:nn/graph": classes.graph,
  };
}

/** @returns what is wrong with the tensor */
function misfit({ dimensions, type, data }: TensorValue): string | undefined {
  const bytes = dimensions.reduce((product, each) => product * each, ELEMENT_BYTES[type]);
  if (bytes === data.length) return undefined;
  return `has ${data.length} bytes, and ${bytes} by its type ${type} and its dimensions [${dimensions.join(", ")}]`;
}

function readModel(root: number, path: string): Uint8Array | "too large" | undefined {
  let fd: number;
  try {
    using found = resolvePath(root, path, true);
    fd = openSync(found.path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  } catch {
    return undefined;
  }
  try {
    const found = fstatSync(fd);
    if (!found.isFile()) return undefined;
    if (found.size > MAX_MODEL_BYTES) return "too large";
    const bytes = Buffer.allocUnsafeSlow(found.size);
    let length = 0;
    for (let count = -1; count !== 0 && length < bytes.length; length += count)
      count = readSync(fd, bytes, length, bytes.length - length, length);
    return bytes.subarray(0, length);
  } finally {
    closeSync(fd);
  }
}
