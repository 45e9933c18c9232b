/** The real library, in this process. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { onnxModel } from "@picolet/test/support/unit/wasm/onnx-model.ts";
import fc from "fast-check";
import { inferenceFolder } from "../../devices/runner-packages.ts";
import type { InferenceLibrary, TensorValue } from "./inference.ts";
import { loadInferenceLibrary } from "./library.ts";

const DOUBLED = onnxModel([{ operator: "Add", inputs: ["X", "X"], output: "Y" }], [1, "n"]);
const floats = (...numbers: number[]): TensorValue => ({
  dimensions: Uint32Array.of(1, numbers.length),
  type: "FP32",
  data: new Uint8Array(Float32Array.from(numbers).buffer),
});

let library: InferenceLibrary;

before(async () => {
  library = await loadInferenceLibrary(inferenceFolder(import.meta.filename));
});

describe("a model", () => {
  test("is loaded and computed before the call returns", () => {
    const session = library.load(DOUBLED);
    assert.deepEqual([...session.inputs], ["X"]);
    const made = session.run(new Map([["X", floats(1, 2, 3.5)]])).get("Y");
    assert.deepEqual(made?.dimensions, Uint32Array.of(1, 3));
    assert.equal(made?.type, "FP32");
    assert.deepEqual([...new Float32Array(Uint8Array.from(made?.data ?? []).buffer)], [2, 4, 7]);
    session.close();
  });

  test("has its numbers copied, wherever they lie", () => {
    const session = library.load(DOUBLED);
    const padded = new Uint8Array(13);
    padded.set(new Uint8Array(Float32Array.of(8, 16).buffer), 3);
    const value = { ...floats(0, 0), data: padded.subarray(3, 11) };
    const made = session.run(new Map([["X", value]])).get("Y");
    assert.deepEqual([...new Float32Array(Uint8Array.from(made?.data ?? []).buffer)], [16, 32]);
    session.close();
  });

  test("that cannot be read or computed fails, and the next one does not", () => {
    assert.throws(() => library.load(Uint8Array.of(1, 2, 3)), /protobuf/);
    const session = library.load(DOUBLED);
    const whole: TensorValue = { dimensions: Uint32Array.of(1), type: "I32", data: new Uint8Array(4) };
    assert.throws(() => session.run(new Map([["X", whole]])), /int32/);
    assert.throws(() => session.run(new Map([["X", { ...whole, type: "BF16" }]])), /no tensors of BF16/);
    assert.equal(session.run(new Map([["X", floats(1)]])).size, 1);
    session.close();
  });

  test("of any bytes is read or refused", () => {
    fc.assert(
      fc.property(fc.nat(DOUBLED.length - 1), fc.uint8Array({ minLength: 1, maxLength: 4 }), (at, bytes) => {
        const damaged = DOUBLED.slice();
        damaged.set(bytes.subarray(0, damaged.length - at), at);
        try {
          library.load(damaged).close();
        } catch (error) {
          assert.ok(error instanceof Error || typeof error === "object", String(error));
        }
      }),
      { numRuns: 300 },
    );
    const session = library.load(DOUBLED);
    session.close();
  });
});
