import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPicoletError } from "../errors.ts";
import {
  DerReader,
  der,
  derInteger,
  derOf,
  derOid,
  derSequence,
  derTime,
  derUtf8,
  oidText,
  stringOf,
  TAG,
} from "./der.ts";
import { decodeBase64, encodeBase64, encodePem, MAX_PEM_CHARACTERS, parsePem } from "./pem.ts";

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

test("values are written as X.690 has them", () => {
  assert.equal(hex(derOid("1.2.840.113549.1.1.11")), "06092a864886f70d01010b");
  assert.equal(hex(derOid("2.5.29.15")), "0603551d0f");
  assert.equal(hex(derInteger(Uint8Array.of(0, 0, 0x80))), "02020080");
  assert.equal(hex(derInteger(Uint8Array.of(0))), "020100");
  assert.equal(hex(derTime(Date.UTC(2049, 11, 31, 23, 59, 59))), "170d3439313233313233353935395a");
  assert.equal(hex(derTime(Date.UTC(2050, 0, 1))), "180f32303530303130313030303030305a");
  assert.equal(hex(der(TAG.octetString, new Uint8Array(200))).slice(0, 6), "0481c8");
  assert.equal(hex(der(TAG.octetString, new Uint8Array(70_000))).slice(0, 10), "0483011170");
});

test("written values are read again", () => {
  const arcs = fc.tuple(fc.integer({ min: 0, max: 2 }), fc.nat(39), fc.array(fc.nat(), { maxLength: 8 }));
  fc.assert(
    fc.property(arcs, fc.string(), fc.uint8Array({ maxLength: 300 }), ([first, second, rest], text, bytes) => {
      const oid = [first, second, ...rest].join(".");
      const reader = derOf(derSequence(derOid(oid), derUtf8(text), der(TAG.octetString, bytes)), TAG.sequence, "it");
      assert.equal(reader.oid("oid"), oid);
      assert.equal(stringOf(reader.next()), text.toWellFormed());
      assert.deepEqual(Buffer.from(reader.next().content), Buffer.from(bytes));
      reader.end("it");
    }),
  );
});

const MALFORMED: readonly (readonly [what: string, bytes: string])[] = [
  ["no length", "30"],
  ["a length without its bytes", "3082"],
  ["an indefinite length", "30800000"],
  ["a length longer than it has to be", "04810100"],
  ["a length with a leading zero", "0482008000"],
  ["a length of five bytes", "04850000000001"],
  ["content that is cut off", "0405aabb"],
  ["a tag of several bytes", "1f8101"],
];

for (const [what, bytes] of MALFORMED) {
  test(`${what} is refused`, () => {
    assert.throws(() => new DerReader(Buffer.from(bytes, "hex")).next(), { code: "invalid" });
  });
}

test("object identifiers that are cut off, padded or too large are refused", () => {
  for (const bytes of ["", "80", "2a80", "2a8001", "2affffffffffffffffffff7f"]) {
    assert.throws(() => oidText(Buffer.from(bytes, "hex")), { code: "invalid" }, bytes);
  }
});

test("strings hold what their kind may hold", () => {
  const read = (tag: number, text: string): string | undefined =>
    stringOf(new DerReader(der(tag, Buffer.from(text))).next());
  assert.equal(read(TAG.printableString, "system:nodes"), "system:nodes");
  assert.equal(read(TAG.printableString, "a*b"), undefined);
  assert.equal(read(TAG.ia5String, "a*b"), "a*b");
  assert.equal(read(TAG.ia5String, "a\0b"), undefined);
  assert.equal(stringOf(new DerReader(der(TAG.utf8String, Uint8Array.of(0xff))).next()), undefined);
  assert.equal(read(0x1e, "bmp"), undefined);
});

test("any bytes are read or refused, never worse", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      const reader = new DerReader(bytes);
      try {
        while (!reader.atEnd) {
          const item = reader.next();
          assert.ok(item.content.length <= bytes.length);
          if (item.tag === TAG.oid) oidText(item.content);
          stringOf(item);
        }
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"));
      }
    }),
    { numRuns: 2000 },
  );
});

test("PEM keeps its content, with any text around it", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ minLength: 1, maxLength: 200 }), { maxLength: 5 }), (all) => {
      const text = all
        .map((bytes) => `subject=x\r\n${encodePem("CERTIFICATE", bytes).replaceAll("\n", "\r\n")}`)
        .join("");
      assert.deepEqual(
        parsePem(text).map(({ der: bytes }) => Buffer.from(bytes)),
        all.map((bytes) => Buffer.from(bytes)),
      );
    }),
  );
});

test("any text is parsed as PEM or refused", () => {
  const line = fc.constantFrom(
    "-----BEGIN A-----",
    "-----END A-----",
    "-----END B-----",
    "AAAA",
    "A",
    "====",
    "\0",
    "",
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(line).map((lines) => lines.join("\n")),
      ),
      (text) => {
        try {
          parsePem(text);
        } catch (error) {
          assert.ok(isPicoletError(error, "invalid"));
        }
      },
    ),
  );
  assert.throws(() => parsePem("x".repeat(MAX_PEM_CHARACTERS + 1)), { code: "invalid" });
  assert.throws(() => parsePem(encodePem("A", Uint8Array.of(1)).repeat(40)), /too many/);
});

test("base64 is what Node makes of it, and nothing laxer", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 20_000 }), (bytes) => {
      const text = encodeBase64(bytes);
      assert.equal(text, Buffer.from(bytes).toString("base64"));
      assert.deepEqual(Buffer.from(decodeBase64(text)), Buffer.from(bytes));
    }),
    { numRuns: 30 },
  );
  for (const text of ["A", "AA", "AAA", "A===", "AA A", "AA==AA==", "AAA\n", "AA_-"]) {
    assert.throws(() => decodeBase64(text), { code: "invalid" }, text);
  }
});
