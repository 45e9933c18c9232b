import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { PicoletError } from "./errors.ts";
import { VarintReader } from "./varint-reader.ts";

class Reader extends VarintReader {
  protected override malformed(why: string): PicoletError {
    return new PicoletError("corrupt", why);
  }
}

const readerOf = (bytes: readonly number[]): Reader => new Reader(Buffer.from(bytes), 0, bytes.length);

function encode(value: bigint): number[] {
  return value < 0x80n ? [Number(value)] : [Number(value & 0x7fn) | 0x80, ...encode(value >> 7n)];
}

describe("VarintReader", () => {
  test("reads each value of 64 bits, and its low 32 bits", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (value) => {
        const reader = readerOf(encode(value));
        reader.varint64();
        assert.equal((BigInt(reader.high) << 32n) | BigInt(reader.low), value);
        assert.equal(readerOf(encode(value)).varint32(), Number(value & 0xffff_ffffn));
      }),
    );
  });

  test("refuses a varint of eleven bytes, and one that ends too early", () => {
    const long = Array.from({ length: 11 }, () => 0x80);
    for (const read of [(reader: Reader) => reader.varint32(), (reader: Reader) => reader.varint64()]) {
      assert.throws(() => read(readerOf(long)), { code: "corrupt", message: /longer than 10 bytes/ });
      assert.throws(() => read(readerOf([0x80])), { code: "corrupt", message: /ends within a field/ });
    }
  });
});
