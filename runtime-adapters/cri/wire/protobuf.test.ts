import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import {
  bigInt64,
  bool,
  bytes,
  double,
  type InputOf,
  int32,
  int32s,
  int64,
  int64s,
  message,
  nanosecondTime,
  nested,
  repeated,
  string,
  stringMap,
  strings,
  uint32,
  uint64,
} from "./protobuf.ts";

const Inner = message("Inner", { name: string(1), count: uint32(2) });
const Everything = message("Everything", {
  text: string(1),
  flag: bool(2),
  small: int32(3),
  unsigned: uint32(4),
  long: int64(5),
  unsignedLong: uint64(6),
  exact: bigInt64(7),
  ratio: double(8),
  blob: bytes(9),
  inner: nested(10, Inner),
  names: strings(11),
  codes: int32s(12),
  ids: int64s(13),
  inners: repeated(14, Inner),
  labels: stringMap(15),
  at: nanosecondTime(4000),
});

const text = fc.string({ unit: "grapheme", maxLength: 300 });
const inner = fc.record({ name: text, count: fc.nat(0xffff_ffff) }, { noNullPrototype: true });
const everything: fc.Arbitrary<Required<InputOf<typeof Everything>>> = fc.record({
  text,
  flag: fc.boolean(),
  small: fc.integer(),
  unsigned: fc.nat(0xffff_ffff),
  long: fc.maxSafeInteger(),
  unsignedLong: fc.maxSafeNat(),
  exact: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  ratio: fc.double({ noNaN: true }).map((value) => (value === 0 ? 0 : value)),
  blob: fc.uint8Array({ maxLength: 200 }),
  inner: fc.option(inner, { nil: undefined }),
  names: fc.array(text),
  codes: fc.array(fc.integer()),
  ids: fc.array(fc.maxSafeInteger()),
  inners: fc.array(inner),
  labels: fc.dictionary(text, text).map((each) => new Map(Object.entries(each))),
  at: fc.integer({ min: -4_000_000_000_000, max: 9_000_000_000_000 }),
});

test("encoded messages are decoded again", () => {
  fc.assert(
    fc.property(everything, (value) => {
      const decoded = Everything.decode(Everything.encode(value));
      assert.deepEqual({ ...decoded, blob: [...decoded.blob] }, { ...value, blob: [...(value.blob ?? [])] });
    }),
  );
});

test("a missing field has its zero value, and a zero value takes no bytes", () => {
  assert.equal(Everything.encode({ text: "", flag: false, long: 0, names: [], labels: new Map() }).length, 0);
  const decoded = Everything.decode(Buffer.alloc(0));
  assert.equal(decoded.text, "");
  assert.equal(decoded.inner, undefined);
  assert.deepEqual(decoded.names, []);
  assert.equal(decoded.labels.size, 0);
});

test("the bytes are those of the specification's examples", () => {
  const Test1 = message("Test1", { a: int32(1) });
  assert.deepEqual([...Test1.encode({ a: 150 })], [0x08, 0x96, 0x01]);
  const Test2 = message("Test2", { b: string(2) });
  assert.deepEqual([...Test2.encode({ b: "testing" })], [0x12, 0x07, ...Buffer.from("testing")]);
  const Test3 = message("Test3", { c: nested(3, Test1) });
  assert.deepEqual([...Test3.encode({ c: { a: 150 } })], [0x1a, 0x03, 0x08, 0x96, 0x01]);
  const Test5 = message("Test5", { f: int32s(6) });
  assert.deepEqual([...Test5.encode({ f: [3, 270, 86942] })], [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
  assert.deepEqual([...Test1.encode({ a: -2 })], [0x08, 0xfe, ...Array(8).fill(0xff), 0x01]);
});

test("unpacked lists are read like packed ones, and both may be mixed", () => {
  const Codes = message("Codes", { codes: int32s(1) });
  assert.deepEqual(Codes.decode(Buffer.from([0x08, 1, 0x0a, 2, 2, 3, 0x08, 4])).codes, [1, 2, 3, 4]);
});

test("a lean descriptor skips unnamed fields of every wire type", () => {
  const Lean = message("Lean", { text: string(1), labels: stringMap(15, ["app"]) });
  fc.assert(
    fc.property(everything, (value) => {
      const labels = new Map([...(value.labels ?? []), ["app", "yes"], ["zebra", "no"]]);
      const decoded = Lean.decode(Everything.encode({ ...value, labels }));
      assert.deepEqual(decoded, { text: value.text, labels: new Map([["app", "yes"]]) });
    }),
  );
});

test("a field of another wire type than declared is skipped", () => {
  const Texts = message("Texts", { value: string(1) });
  const Numbers = message("Numbers", { value: int32(1) });
  assert.equal(Texts.decode(Numbers.encode({ value: 7 })).value, "");
  assert.equal(Numbers.decode(Texts.encode({ value: "seven" })).value, 0);
});

test("nanoseconds become milliseconds, rounded down, exactly", () => {
  const Raw = message("Time", { at: bigInt64(1) });
  const Time = message("Time", { at: nanosecondTime(1) });
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 62n), max: 2n ** 63n - 1n }), (at) => {
      const floor = at >= 0n || at % 1_000_000n === 0n ? at / 1_000_000n : at / 1_000_000n - 1n;
      assert.equal(BigInt(Time.decode(Raw.encode({ at })).at), floor);
    }),
  );
});

test("an integer that no double holds is refused rather than changed", () => {
  assert.throws(() => Everything.encode({ long: 2 ** 60 }), /as an integer/);
  assert.throws(() => Everything.encode({ long: 1.5 }), /as an integer/);
});

test("nesting, elements and size have limits", () => {
  let bomb = Buffer.alloc(0);
  const Chain: { decode(bytes: Buffer): unknown } = (() => {
    let chain = message("Chain", { text: string(2) });
    for (let depth = 0; depth < 40; depth += 1) chain = message("Chain", { text: string(2), next: nested(1, chain) });
    return chain;
  })();
  for (let depth = 0; depth < 30; depth += 1) {
    bomb = Buffer.from(
      message("Link", { next: bytes(1) }).encode({ next: bomb.length === 0 ? Buffer.from([0x12, 0]) : bomb }),
    );
  }
  assert.throws(() => Chain.decode(bomb), { code: "corrupt" });
  const Many = message("Many", { inners: repeated(1, Inner) });
  assert.throws(() => Many.decode(Buffer.alloc(600_000, Buffer.from([0x0a, 0]))), { code: "resource_exhausted" });
  assert.throws(() => Everything.encode({ text: "x".repeat(17 * 1024 * 1024) }), { code: "resource_exhausted" });
});

test("no bytes at all make the decoder fail in another way than it says", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (noise) =>
      onlyPicoletErrors(() => Everything.decode(Buffer.from(noise))),
    ),
    { numRuns: 3000 },
  );
});

test("a message with any byte changed or any tail cut off does no harm", () => {
  fc.assert(
    fc.property(everything, fc.nat(), fc.integer({ min: 0, max: 255 }), fc.nat(), (value, at, byte, cut) => {
      const encoded = Everything.encode(value);
      if (encoded.length === 0) return;
      const changed = Buffer.from(encoded);
      changed[at % changed.length] = byte;
      onlyPicoletErrors(() => Everything.decode(changed));
      onlyPicoletErrors(() => Everything.decode(encoded, 0, cut % encoded.length));
    }),
  );
});

function onlyPicoletErrors(run: () => void): void {
  try {
    run();
  } catch (error) {
    assert.ok(error instanceof PicoletError, String(error));
  }
}
