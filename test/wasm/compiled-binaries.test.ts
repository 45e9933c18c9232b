/** The readers of WebAssembly binaries, on what compilers make. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parse } from "@bytecodealliance/jco-transpile/wasm-tools";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import {
  type ComponentShape,
  readComponentShape,
  refuseAsync,
} from "@picolet/runtime-wasm/shared/binary/component-shape.ts";
import { importedFunctionTypes } from "@picolet/runtime-wasm/shared/binary/function-types.ts";
import { exportsRun, ungrantedImports } from "@picolet/runtime-wasm/shared/grants/import-grants.ts";
import { checkNames } from "@picolet/runtime-wasm/transpile/component-names.ts";
import { textComponent, textFile } from "@picolet/test/support/unit/wasm/text-components.ts";
import { testComponent, testCoreModule } from "@picolet/test/support/wasm/components.ts";
import fc from "fast-check";

const shapeOf = (bytes: Uint8Array): ComponentShape =>
  readComponentShape((offset, length) => bytes.subarray(offset, offset + length), bytes.length);

const isInvalid = (text: RegExp) => (error: unknown) => isPicoletError(error, "invalid") && text.test(error.message);

test("a C program's imports are all granted, and it can be run", async () => {
  const { imports, exports } = shapeOf(readFileSync(await testComponent("workload.c")));
  assert.ok(imports.length > 10);
  assert.deepEqual(ungrantedImports(imports), []);
  assert.equal(exportsRun(exports), true);
});

test("a core module is refused with the way to make a component of it", async () => {
  const module = readFileSync(await testCoreModule("workload.c"));
  assert.throws(() => shapeOf(module), isInvalid(/core module.*wasm-tools component new.*componentNew/));
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

test("names that would be code in the generated JavaScript are refused, those of toolchains are not", async () => {
  const hostile = readFileSync(await textFile("hostile-name.wat"));
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
