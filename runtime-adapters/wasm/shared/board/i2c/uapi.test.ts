import assert from "node:assert/strict";
import { test } from "node:test";
import type { Operation } from "@picolet/wit/generated/picolet-board-i2c.js";
import fc from "fast-check";
import {
  bytesRead,
  encodeSmbus,
  encodeTransfer,
  isTooLarge,
  MAX_OPERATION_BYTES,
  MAX_OPERATIONS,
  supportsI2c,
} from "./uapi.ts";

const BASE = 0x7f00_1234_5000n;
const at = (): bigint => BASE;
const ALL = 0xffff_ffff;

const operation: fc.Arbitrary<Operation> = fc.oneof(
  fc.nat(300).map((val): Operation => ({ tag: "read", val })),
  fc.uint8Array({ maxLength: 300 }).map((val): Operation => ({ tag: "write", val })),
);

test("every operation is a message of its own, with bytes of its own within the memory", () => {
  const address = fc.oneof(
    fc.integer({ min: 8, max: 0x77 }),
    fc.nat(0x3ff).map((each) => each | 0x8000),
  );
  fc.assert(
    fc.property(address, fc.array(operation, { maxLength: MAX_OPERATIONS }), (device, operations) => {
      const { memory, reads } = encodeTransfer(device, operations, at);
      assert.deepEqual([memory.readBigUInt64LE(0), memory.readUInt32LE(8)], [BASE + 16n, operations.length]);
      let next = 16 + operations.length * 16;
      for (const [index, each] of operations.entries()) {
        const message = 16 + index * 16;
        const length = memory.readUInt16LE(message + 4);
        assert.equal(memory.readUInt16LE(message), device & 0x3ff);
        const flags = (each.tag === "read" ? 1 : 0) | (device >= 0x8000 ? 0x10 : 0);
        assert.equal(memory.readUInt16LE(message + 2), flags);
        assert.equal(memory.readBigUInt64LE(message + 8), BASE + BigInt(next));
        if (each.tag === "write") assert.deepEqual(new Uint8Array(memory.subarray(next, next + length)), each.val);
        else assert.equal(length, each.val);
        next += length;
      }
      assert.equal(memory.length, next);
      for (const read of reads) memory.fill(read.length % 256, read.at, read.at + read.length);
      const wanted = operations.flatMap((each) => (each.tag === "read" ? [each.val] : []));
      assert.deepEqual(
        bytesRead({ memory, reads }).map((bytes) => [bytes.length, bytes.every((byte) => byte === bytes.length % 256)]),
        wanted.map((length) => [length, true]),
      );
    }),
  );
});

test("a transfer that is too large is refused before memory is allocated", () => {
  const read = (val: number): Operation => ({ tag: "read", val });
  assert.equal(isTooLarge([read(MAX_OPERATION_BYTES)]), false);
  assert.equal(isTooLarge([read(MAX_OPERATION_BYTES + 1)]), true);
  assert.equal(isTooLarge([read(0xffff_ffff)]), true);
  assert.equal(isTooLarge([{ tag: "write", val: new Uint8Array(MAX_OPERATION_BYTES + 1) }]), true);
  assert.equal(isTooLarge(Array.from({ length: MAX_OPERATIONS }, () => read(1))), false);
  assert.equal(isTooLarge(Array.from({ length: MAX_OPERATIONS + 1 }, () => read(1))), true);
});

test("a bus of SMBus alone gets the equivalent commands", () => {
  const write = (...val: number[]): Operation => ({ tag: "write", val: Uint8Array.from(val) });
  const read = (val: number): Operation => ({ tag: "read", val });
  /** Direction, command, kind, and the bytes after the header. */
  const shown = (operations: readonly Operation[]): readonly unknown[] | undefined => {
    const encoded = encodeSmbus(operations, ALL, at);
    if (encoded === undefined) return undefined;
    const { memory, reads } = encoded;
    assert.equal(memory.readBigUInt64LE(8), BASE + 16n);
    return [memory[0], memory[1], memory.readUInt32LE(4), [...memory.subarray(16, 19)], reads];
  };
  assert.deepEqual(shown([write(7)]), [0, 7, 1, [0, 0, 0], []]);
  assert.deepEqual(shown([write(7, 8)]), [0, 7, 2, [8, 0, 0], []]);
  assert.deepEqual(shown([write(7, 8, 9)]), [0, 7, 8, [2, 8, 9], []]);
  assert.deepEqual(shown([read(1)]), [1, 0, 1, [0, 0, 0], [{ at: 16, length: 1 }]]);
  assert.deepEqual(shown([write(7), read(1)]), [1, 7, 2, [0, 0, 0], [{ at: 16, length: 1 }]]);
  assert.deepEqual(shown([write(7), read(32)]), [1, 7, 8, [32, 0, 0], [{ at: 17, length: 32 }]]);
  for (const none of [[], [write()], [read(2)], [read(1), read(1)], [write(7), read(33)], [write(7, 8), read(1)]]) {
    assert.equal(shown(none), undefined);
  }
  assert.equal(shown([write(...Array.from({ length: 34 }, () => 1))]), undefined);
  assert.deepEqual(
    [supportsI2c(1), supportsI2c(0x0ffe_0000), encodeSmbus([write(7)], 0, at)],
    [true, false, undefined],
  );
});

test("no transfer of SMBus goes beyond its memory", () => {
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 3 }), fc.nat(ALL), (operations, functions) => {
      const encoded = encodeSmbus(operations, functions, at);
      if (encoded === undefined) return;
      for (const read of encoded.reads) assert.ok(read.at + read.length <= encoded.memory.length);
      const wanted = operations.flatMap((each) => (each.tag === "read" ? [each.val] : []));
      assert.deepEqual(
        bytesRead(encoded).map(({ length }) => length),
        wanted,
      );
    }),
  );
});
