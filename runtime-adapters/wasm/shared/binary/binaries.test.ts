/** The readers of WebAssembly binaries, on real components, on hostile ones, and on anything at all. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { textFile } from "@picolet/test/support/unit/wasm/text-components.ts";
import fc from "fast-check";
import { checkNames } from "../../transpile/component-names.ts";
import { ungrantedImports } from "../grants/import-grants.ts";
import { ByteReader, paddedU32 } from "./byte-reader.ts";
import { type ComponentShape, readComponentShape } from "./component-shape.ts";
import { importedFunctionTypes } from "./function-types.ts";
import { limitMemories, padMemoryLimits, WASM_PAGE_BYTES } from "./memory-limits.ts";

const shapeOf = (bytes: Uint8Array): ComponentShape =>
  readComponentShape((offset, length) => bytes.subarray(offset, offset + length), bytes.length);

const isInvalid = (text: RegExp) => (error: unknown) => isPicoletError(error, "invalid") && text.test(error.message);

test("a component's imports and exports are read by name, in order", async () => {
  const shape = shapeOf(readFileSync(await textFile("exit-42.wat")));
  assert.deepEqual(shape, { imports: ["wasi:cli/exit@0.2.6"], exports: ["wasi:cli/run@0.2.6"] });
});

test("all imports that are not granted are named", async () => {
  const { imports } = shapeOf(readFileSync(await textFile("wants-http.wat")));
  assert.deepEqual(ungrantedImports(imports), ["wasi:http/outgoing-handler@0.2.0", "example:board/gpio@1.0.0"]);
  const granted = ["wasi:cli/stdout@0.3.0", "wasi:cli/stdout@0.2.99", "wasi:clocks/system-clock@0.3.1"];
  const others = ["wasi:cli/stdout", "wasi:clocks/system-clock@0.2.0", "wasi:io/poll@0.3.0", "wasi:cli/stdout@0.4.0"];
  assert.deepEqual(ungrantedImports([...granted, ...others]), others);
});

test("garbage, an empty file and a WebAssembly of another time are refused", () => {
  const header = [0x00, 0x61, 0x73, 0x6d];
  assert.throws(() => shapeOf(new Uint8Array()), isInvalid(/no WebAssembly binary/));
  assert.throws(() => shapeOf(Buffer.from("#!/bin/sh\nexit 0\n")), isInvalid(/no WebAssembly binary/));
  assert.throws(() => shapeOf(Uint8Array.from([...header, 0x0a, 0, 1, 0])), isInvalid(/unknown WebAssembly version/));
});

test("a component that was cut at any place is refused", async () => {
  const bytes = readFileSync(await textFile("exit-42.wat"));
  const sections = new Set<number>();
  for (let length = 0; length < bytes.length; length += 1) {
    try {
      shapeOf(bytes.subarray(0, length));
      sections.add(length);
    } catch (error) {
      assert.ok(isPicoletError(error, "invalid"), `a cut at ${length}`);
    }
  }
  // Between two sections nothing shows that there should be more; jco and the digest do.
  assert.ok(sections.size < 20, `${sections.size} cuts were not seen`);
});

test("any bytes are read or refused", async () => {
  const real = readFileSync(await textFile("exit-42.wat"));
  const mutated = fc
    .array(fc.tuple(fc.nat(real.length - 1), fc.nat(255)), { minLength: 1, maxLength: 8 })
    .map((changes) => {
      const bytes = Uint8Array.from(real);
      for (const [at, value] of changes) bytes[at] = value;
      return bytes;
    });
  const core = fc.uint8Array({ maxLength: 200 }).map((tail) => Uint8Array.from([...real.subarray(0, 8), ...tail]));
  fc.assert(
    fc.property(fc.oneof(mutated, core, fc.uint8Array({ maxLength: 300 })), (bytes) => {
      for (const read of [shapeOf, checkNames, padMemoryLimits, importedFunctionTypes]) {
        try {
          read(bytes);
        } catch (error) {
          assert.ok(isPicoletError(error, "invalid"), String(error));
        }
      }
    }),
    { numRuns: 3000 },
  );
});

test("numbers of padded length are read correctly", () => {
  fc.assert(
    fc.property(fc.nat(0xffff_ffff), (value) => {
      const bytes = paddedU32(value);
      assert.equal(bytes.length, 5);
      assert.equal(new ByteReader(bytes).u32(), value);
    }),
  );
  assert.throws(() => new ByteReader(Uint8Array.from([0xff, 0xff, 0xff, 0xff, 0x1f])).u32(), isInvalid(/too long/));
});

/** `(module (memory (export "m") min max?))` */
const memoryModule = (min: number, max?: number): Uint8Array => {
  const limits = max === undefined ? [0, min] : [1, min, max];
  const preamble = [0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  const exported = [1, 1, "m".charCodeAt(0), 2, 0];
  return Uint8Array.from([...preamble, 5, 1 + limits.length, 1, ...limits, 7, exported.length, ...exported]);
};

interface Memory {
  grow(pages: number): number;
  readonly buffer: ArrayBuffer;
}

/** The real engine's opinion of the module. */
const memoryOf = (bytes: Uint8Array): Memory =>
  new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports.m as Memory;

test("memory grows up to the limit and no page further", () => {
  for (const declared of [undefined, 100]) {
    const { bytes, memories } = padMemoryLimits(memoryModule(1, declared));
    limitMemories(bytes, memories, 3 * WASM_PAGE_BYTES + 5);
    const memory = memoryOf(bytes);
    assert.equal(memory.grow(2), 1);
    assert.equal(memory.buffer.byteLength, 3 * WASM_PAGE_BYTES);
    assert.throws(() => memory.grow(1));
  }
});

test("a module's own lower maximum is kept, and without a limit every maximum", () => {
  const { bytes, memories } = padMemoryLimits(memoryModule(1, 2));
  limitMemories(bytes, memories, 10 * WASM_PAGE_BYTES);
  assert.throws(() => memoryOf(bytes).grow(2));
  limitMemories(bytes, memories, undefined);
  assert.equal(memoryOf(bytes).grow(1), 1);
});

test("a module that starts out larger than its limit is refused", () => {
  const { bytes, memories } = padMemoryLimits(memoryModule(5));
  assert.throws(
    () => limitMemories(bytes, memories, 4 * WASM_PAGE_BYTES),
    (error) => isPicoletError(error, "resource_exhausted") && /327680 bytes.*262144 bytes/.test(error.message),
  );
});

test("shared, 64-bit and unknown memories are refused, defined or imported", () => {
  const preamble = [0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  for (const [flags, text] of [
    [0x03, /shared memory/],
    [0x04, /64-bit/],
    [0x08, /unknown kind/],
  ] as const) {
    const defined = Uint8Array.from([...preamble, 5, 4, 1, flags, 1, 1]);
    const imported = Uint8Array.from([...preamble, 2, 9, 1, 1, 0x61, 1, 0x62, 2, flags, 1, 1]);
    for (const bytes of [defined, imported]) assert.throws(() => padMemoryLimits(bytes), isInvalid(text));
  }
});
