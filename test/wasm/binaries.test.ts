/** The readers of WebAssembly binaries, on real components, on hostile ones, and on anything at all. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parse } from "@bytecodealliance/jco-transpile/wasm-tools";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { ByteReader, paddedU32 } from "@picolet/runtime-wasm/shared/binary/byte-reader.ts";
import {
  type ComponentShape,
  readComponentShape,
  refuseAsync,
} from "@picolet/runtime-wasm/shared/binary/component-shape.ts";
import { importedFunctionTypes } from "@picolet/runtime-wasm/shared/binary/function-types.ts";
import { limitMemories, padMemoryLimits, WASM_PAGE_BYTES } from "@picolet/runtime-wasm/shared/binary/memory-limits.ts";
import { exportsRun, ungrantedImports } from "@picolet/runtime-wasm/shared/grants/import-grants.ts";
import { checkNames } from "@picolet/runtime-wasm/transpile/component-names.ts";
import { testComponent, testCoreModule, textComponent } from "@picolet/test/support/wasm/components.ts";
import fc from "fast-check";

const shapeOf = (bytes: Uint8Array): ComponentShape =>
  readComponentShape((offset, length) => bytes.subarray(offset, offset + length), bytes.length);

const isInvalid = (text: RegExp) => (error: unknown) => isPicoletError(error, "invalid") && text.test(error.message);

test("a component's imports and exports are read by name, in order", async () => {
  const shape = shapeOf(readFileSync(await testComponent("exit-42.wat")));
  assert.deepEqual(shape, { imports: ["wasi:cli/exit@0.2.6"], exports: ["wasi:cli/run@0.2.6"] });
});

test("a C program's imports are all granted, and it can be run", async () => {
  const { imports, exports } = shapeOf(readFileSync(await testComponent("workload.c")));
  assert.ok(imports.length > 10);
  assert.deepEqual(ungrantedImports(imports), []);
  assert.equal(exportsRun(exports), true);
});

test("what nobody grants is named, all of it", async () => {
  const { imports } = shapeOf(readFileSync(await testComponent("wants-http.wat")));
  assert.deepEqual(ungrantedImports(imports), ["wasi:http/outgoing-handler@0.2.0", "example:board/gpio@1.0.0"]);
  const granted = ["wasi:cli/stdout@0.3.0", "wasi:cli/stdout@0.2.99", "wasi:clocks/system-clock@0.3.1"];
  const others = ["wasi:cli/stdout", "wasi:clocks/system-clock@0.2.0", "wasi:io/poll@0.3.0", "wasi:cli/stdout@0.4.0"];
  assert.deepEqual(ungrantedImports([...granted, ...others]), others);
});

test("a core module is refused with the way to make a component of it", async () => {
  const module = readFileSync(await testCoreModule("workload.c"));
  assert.throws(() => shapeOf(module), isInvalid(/core module.*wasm-tools component new.*componentNew/));
});

test("garbage, an empty file and a WebAssembly of another time are refused", () => {
  const header = [0x00, 0x61, 0x73, 0x6d];
  assert.throws(() => shapeOf(new Uint8Array()), isInvalid(/no WebAssembly binary/));
  assert.throws(() => shapeOf(Buffer.from("#!/bin/sh\nexit 0\n")), isInvalid(/no WebAssembly binary/));
  assert.throws(() => shapeOf(Uint8Array.from([...header, 0x0a, 0, 1, 0])), isInvalid(/unknown WebAssembly version/));
});

test("a component for another WASI than 0.2 and 0.3 is refused, and one for 0.3 where the node does not run it", async () => {
  const shape = shapeOf(readFileSync(await testComponent("async.c")));
  assert.throws(
    () => refuseAsync(shape),
    isInvalid(/another WASI than 0\.2: it has .*, or have the node.*wasm\.p3: true/),
  );
  refuseAsync(shapeOf(readFileSync(await testComponent("exit-42.wat"))));
  for (const name of [
    "wasi:cli/stdout@0.3.0-rc-2025-09-16",
    "wasi:io/streams@0.2.0-rc-2023-11-10",
    "wasi:http/types@0.3.0-draft",
  ]) {
    const bytes = readFileSync(await textComponent(`(component (import "${name}" (instance)))`));
    assert.throws(() => shapeOf(bytes), isInvalid(/another WASI than 0\.2/));
  }
});

test("a truncated component is refused, wherever it was cut", async () => {
  const bytes = readFileSync(await testComponent("exit-42.wat"));
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

test("no bytes whatever do anything but be read or refused", async () => {
  const real = readFileSync(await testComponent("exit-42.wat"));
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

test("the types of imported functions are read in their order, whatever other types and imports there are", async () => {
  const module = await parse(`(module
    (rec (type $node (struct (field (ref null $node)) (field (mut i8)))) (type $nodes (sub (array (mut (ref $node))))))
    (type $none (func))
    (import "a" "one" (func (param i32 i64 f32 f64) (result i64)))
    (import "a" "table" (table 1 funcref))
    (import "a" "memory" (memory 1))
    (import "b" "none" (func (type $none)))
    (import "b" "global" (global (mut i32)))
    (import "b" "reference" (func (param externref (ref null $node))))
    (import "c" "two" (func (result i32 i32))))`);
  assert.deepEqual(importedFunctionTypes(module), ["7f7e7d7c>7e", ">", null, ">7f7f"]);
  const real = readFileSync(await testCoreModule("workload.c"));
  const functions = WebAssembly.Module.imports(new WebAssembly.Module(real)).filter(({ kind }) => kind === "function");
  assert.equal(importedFunctionTypes(real).length, functions.length);
  assert.ok(functions.length > 5);
});

test("a core module's types of any bytes are read or refused", async () => {
  const real = readFileSync(await testCoreModule("workload.c"));
  const head = real.subarray(0, 400);
  const changes = fc.array(fc.tuple(fc.nat(head.length - 1), fc.nat(255)), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(changes, (changed) => {
      const bytes = Uint8Array.from(head);
      for (const [at, value] of changed) bytes[at] = value;
      try {
        importedFunctionTypes(bytes);
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"), String(error));
      }
    }),
    { numRuns: 3000 },
  );
});

test("numbers of padded length are read as what they are", () => {
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

test("memory grows up to the limit and not one page further", () => {
  for (const declared of [undefined, 100]) {
    const { bytes, memories } = padMemoryLimits(memoryModule(1, declared));
    limitMemories(bytes, memories, 3 * WASM_PAGE_BYTES + 5);
    const memory = memoryOf(bytes);
    assert.equal(memory.grow(2), 1);
    assert.equal(memory.buffer.byteLength, 3 * WASM_PAGE_BYTES);
    assert.throws(() => memory.grow(1));
  }
});

test("a module's own lower maximum stays, and with no limit everything does", () => {
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

test("names that would be code in the generated JavaScript are refused, those of toolchains are not", async () => {
  const hostile = readFileSync(await testComponent("hostile-name.wat"));
  assert.throws(() => checkNames(hostile), isInvalid(/quotes or control characters/));
  for (const component of ["workload.c", "files.c", "exit-42.wat"] as const) {
    checkNames(readFileSync(await testComponent(component)));
  }
  for (const name of ["a\\\\b", "a\\nb", "a'b", 'a\\"b', "a`b", "a\\u{2028}b"]) {
    const places = [
      `(core module (func (export "${name}")))`,
      `(core module (import "${name}" "x" (func)))`,
      `(core module (import "x" "${name}" (func)))`,
      `(component (core module (func (export "${name}"))))`,
      `(core module $m (func (export "f"))) (core instance $i (instantiate $m)) (core instance (export "${name}" (func $i "f")))`,
    ];
    for (const place of places) {
      const bytes = readFileSync(await textComponent(`(component ${place})`));
      assert.throws(() => checkNames(bytes), isInvalid(/quotes or control/), place);
    }
  }
});
