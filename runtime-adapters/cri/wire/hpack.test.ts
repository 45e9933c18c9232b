import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { encodeHeaders, HpackDecoder } from "./hpack.ts";
import { decodeHuffman } from "./huffman.ts";

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(/\s/g, ""), "hex");

/** RFC 7541, C.4 and C.6: with Huffman codes, on one context each. */
const EXAMPLES: readonly (readonly (readonly [block: string, headers: readonly string[]])[])[] = [
  [
    [
      "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
      [":method", "GET", ":scheme", "http", ":path", "/", ":authority", "www.example.com"],
    ],
    [
      "8286 84be 5886 a8eb 1064 9cbf",
      [":method", "GET", ":scheme", "http", ":path", "/", ":authority", "www.example.com", "cache-control", "no-cache"],
    ],
    [
      "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
      [
        ":method",
        "GET",
        ":scheme",
        "https",
        ":path",
        "/index.html",
        ":authority",
        "www.example.com",
        "custom-key",
        "custom-value",
      ],
    ],
  ],
  [
    ["400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", ["custom-key", "custom-header"]],
    ["040c 2f73 616d 706c 652f 7061 7468", [":path", "/sample/path"]],
    ["1008 7061 7373 776f 7264 0673 6563 7265 74", ["password", "secret"]],
    ["be", ["custom-key", "custom-header"]],
  ],
];

test("the examples of RFC 7541 are decoded", () => {
  for (const example of EXAMPLES) {
    const decoder = new HpackDecoder();
    for (const [block, headers] of example) assert.deepEqual(decoder.decode(hex(block)), headers);
  }
});

test("encoded headers are decoded again", () => {
  const name = fc.constantFrom(":path", ":method", ":authority", "content-type", "x-a", "grpc-timeout");
  const value = fc.string({ unit: "binary-ascii", maxLength: 300 });
  fc.assert(
    fc.property(fc.array(fc.tuple(name, value)), (pairs) => {
      assert.deepEqual(new HpackDecoder().decode(encodeHeaders(pairs.flat())), pairs.flat());
    }),
  );
});

test("the dynamic table forgets its oldest entries, and one too large empties it", () => {
  const decoder = new HpackDecoder();
  const insert = (name: string, value: string): Buffer =>
    Buffer.concat([Buffer.from([0x40, name.length]), Buffer.from(name), length(value.length), Buffer.from(value)]);
  decoder.decode(insert("first", "1".repeat(2020)));
  decoder.decode(insert("second", "2".repeat(2020)));
  assert.equal(decoder.decode(hex("be"))[0], "second");
  assert.throws(() => decoder.decode(hex("bf")), { code: "corrupt" }, "the first has gone");
  decoder.decode(insert("huge", "3".repeat(5000)));
  assert.throws(() => decoder.decode(hex("be")), { code: "corrupt" }, "none is left");
});

test("the table's size may shrink and grow back at a block's beginning only, never beyond the limit", () => {
  const decoder = new HpackDecoder();
  decoder.decode(hex("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572"));
  assert.deepEqual(decoder.decode(hex("20 3fe1 1f 82")), [":method", "GET"]);
  assert.throws(() => decoder.decode(hex("be")), { code: "corrupt" });
  assert.throws(() => new HpackDecoder().decode(hex("82 20")), { code: "corrupt" });
  assert.throws(() => new HpackDecoder().decode(hex("3f ff ff 7f")), { code: "corrupt" });
});

test("a list that a few bytes blow up is refused", () => {
  const value = Buffer.concat([hex("4001 61"), length(3000), Buffer.alloc(3000, "v")]);
  const bomb = Buffer.concat([value, Buffer.alloc(1000, 0xbe)]);
  assert.throws(() => new HpackDecoder().decode(bomb), { code: "resource_exhausted" });
});

test("wrong padding and the end-of-string code are refused", () => {
  assert.equal(decodeHuffman(hex("f1e3c2e5f23a6ba0ab90f4ff"), 0, 12), "www.example.com");
  for (const wrong of ["ff", "ffff", "ffffffff", "00", "f1e3c2e5f23a6ba0ab90f4fe"]) {
    const bytes = hex(wrong);
    if (wrong === "00") assert.throws(() => decodeHuffman(bytes, 0, 1), { code: "corrupt" });
    else if (wrong !== "ff") assert.throws(() => decodeHuffman(bytes, 0, bytes.length), { code: "corrupt" }, wrong);
  }
});

test("no bytes at all make the decoder fail in another way than it says", () => {
  const blocks = fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 5 });
  fc.assert(
    fc.property(blocks, (noise) => {
      const decoder = new HpackDecoder();
      try {
        for (const block of noise) decoder.decode(Buffer.from(block));
      } catch (error) {
        assert.ok(error instanceof PicoletError, String(error));
      }
    }),
    { numRuns: 5000 },
  );
});

function length(value: number): Buffer {
  if (value < 127) return Buffer.from([value]);
  const bytes = [127];
  let rest = value - 127;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Buffer.from([...bytes, rest]);
}
