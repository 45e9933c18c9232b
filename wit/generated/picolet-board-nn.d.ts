// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface picolet:board/nn@0.1.0 **/
/**
 * `onnx` or `autodetect`, on `cpu`: others are `unsupported-operation`. The parts of `builder` are joined.
 */
export function load(builder: Array<Uint8Array>, encoding: GraphEncoding, target: ExecutionTarget): Graph;
/**
 * The file `NAME.onnx` of the volume that the pod names in the annotation `wasm.picolet.io/nn`.
 */
export function loadByName(name: string): Graph;
/**
 * # Variants
 *
 * ## `"FP16"`
 *
 * ## `"FP32"`
 *
 * ## `"FP64"`
 *
 * ## `"BF16"`
 *
 * ## `"U8"`
 *
 * ## `"I32"`
 *
 * ## `"I64"`
 */
export type TensorType = 'FP16' | 'FP32' | 'FP64' | 'BF16' | 'U8' | 'I32' | 'I64';
/**
 * # Variants
 *
 * ## `"invalid-argument"`
 *
 * The arguments do not fit the model, or a tensor does not fit its dimensions.
 * ## `"invalid-encoding"`
 *
 * The model cannot be read.
 * ## `"timeout"`
 *
 * ## `"runtime-error"`
 *
 * The model failed while it was computed.
 * ## `"unsupported-operation"`
 *
 * What this board does not have: another format, another target.
 * ## `"too-large"`
 *
 * The model, or what it takes, is larger than the pod's memory allows.
 * ## `"not-found"`
 *
 * There is no model of this name.
 * ## `"security"`
 *
 * ## `"unknown"`
 */
export type ErrorCode = 'invalid-argument' | 'invalid-encoding' | 'timeout' | 'runtime-error' | 'unsupported-operation' | 'too-large' | 'not-found' | 'security' | 'unknown';
export type NamedTensor = [string, Tensor];
/**
 * # Variants
 *
 * ## `"openvino"`
 *
 * ## `"onnx"`
 *
 * ## `"tensorflow"`
 *
 * ## `"pytorch"`
 *
 * ## `"tensorflowlite"`
 *
 * ## `"ggml"`
 *
 * ## `"autodetect"`
 */
export type GraphEncoding = 'openvino' | 'onnx' | 'tensorflow' | 'pytorch' | 'tensorflowlite' | 'ggml' | 'autodetect';
/**
 * # Variants
 *
 * ## `"cpu"`
 *
 * ## `"gpu"`
 *
 * ## `"tpu"`
 */
export type ExecutionTarget = 'cpu' | 'gpu' | 'tpu';

export class Error {
  /**
   * This type does not have a public constructor.
   */
  private constructor();
  code(): ErrorCode;
  /**
  * For people.
  */
  data(): string;
}

export class Graph {
  /**
   * This type does not have a public constructor.
   */
  private constructor();
  initExecutionContext(): GraphExecutionContext;
}

export class GraphExecutionContext {
  /**
   * This type does not have a public constructor.
   */
  private constructor();
  /**
  * The inputs by their names in the model; the answer has all outputs of the model.
  */
  compute(inputs: Array<NamedTensor>): Array<NamedTensor>;
}

export class Tensor {
  /**
  * `data` has as many bytes as the dimensions and the type say. A tensor for which that is not so is refused by
  * `compute` as `invalid-argument`.
  */
  constructor(dimensions: Uint32Array, ty: TensorType, data: Uint8Array)
  dimensions(): Uint32Array;
  ty(): TensorType;
  data(): Uint8Array;
}
