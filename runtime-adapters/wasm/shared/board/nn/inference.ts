/** The types of the library that computes models, as the host part of picolet:board/nn sees it. */
import type { TensorType } from "@picolet/wit/generated/picolet-board-nn.js";

/** Little-endian numbers of one type, the last dimension varying fastest. */
export interface TensorValue {
  readonly dimensions: Uint32Array;
  readonly type: TensorType;
  readonly data: Uint8Array;
}

export interface InferenceSession {
  /** By their names in the model. */
  readonly inputs: readonly string[];
  /** @throws Error when the model cannot be computed with these, or makes what is no tensor of a known type */
  run(inputs: ReadonlyMap<string, TensorValue>): ReadonlyMap<string, TensorValue>;
  /** Frees what the model takes. */
  close(): void;
}

export interface InferenceLibrary {
  /** @throws Error when the model cannot be read */
  load(model: Uint8Array): InferenceSession;
}
