import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { DbusDecoder, type DbusMessage, encodeCall, MAX_MESSAGE_BYTES } from "./dbus-message.ts";

/** `PrepareForShutdown(true)` as a bus sends it, in the byte order of a big-endian machine. */
const BIG_ENDIAN_SIGNAL = Buffer.from(
  "42040001" + // signal
    "00000004" + // body
    "00000007" + // serial
    "00000037" + // fields
    "0101 6f00 00000002 2f6f 00 00000000 00".replaceAll(" ", "") + // path /o
    "0201 7300 00000003 612e62 00 00000000".replaceAll(" ", "") + // interface a.b
    "0301 7300 00000001 4d 00 000000000000".replaceAll(" ", "") + // member M
    "0801 6700 01 62 00 00".replaceAll(" ", "") + // signature b
    "00000001",
  "hex",
);

const CALL = {
  destination: "org.freedesktop.login1",
  path: "/org/freedesktop/login1",
  interface: "org.freedesktop.DBus.Properties",
  member: "Get",
  signature: "ssi",
  body: ["é", "", -1],
} as const;

test("what is encoded is decoded, wherever it is cut", () => {
  const bytes = Buffer.concat([encodeCall(CALL, 1), encodeCall({ ...CALL, signature: "", body: [] }, 2)]);
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    const decoder = new DbusDecoder();
    const messages = [...decoder.push(bytes.subarray(0, cut)), ...decoder.push(bytes.subarray(cut))];
    assert.deepEqual(
      messages.map(({ kind, serial, path, interface: from, member, body }) => [kind, serial, path, from, member, body]),
      [
        ["call", 1, CALL.path, CALL.interface, "Get", ["é", "", -1]],
        ["call", 2, CALL.path, CALL.interface, "Get", []],
      ],
    );
  }
});

test("a message of a big-endian machine", () => {
  const [message] = new DbusDecoder().push(BIG_ENDIAN_SIGNAL);
  assert.deepEqual(message, {
    kind: "signal",
    serial: 7,
    replySerial: 0,
    path: "/o",
    interface: "a.b",
    member: "M",
    errorName: "",
    sender: "",
    body: [true],
  } satisfies DbusMessage);
});

test("a message that is too long is refused before it has come", () => {
  const head = Buffer.alloc(16);
  head.set([0x6c, 2, 0, 1]);
  head.writeUInt32LE(MAX_MESSAGE_BYTES, 4);
  assert.throws(
    () => new DbusDecoder().push(head),
    (error) => isPicoletError(error, "corrupt"),
  );
});

test("a header that ends inside of one of its fields is refused", () => {
  const bytes = Buffer.from(BIG_ENDIAN_SIGNAL);
  // The last of them has a code and no value.
  bytes.writeUInt32BE(0x31, 12);
  assert.throws(
    () => new DbusDecoder().push(bytes),
    (error) => isPicoletError(error, "corrupt"),
  );
});

const decodes = (chunks: readonly Uint8Array[]): void => {
  const decoder = new DbusDecoder();
  try {
    for (const chunk of chunks) decoder.push(Buffer.from(chunk));
  } catch (error) {
    assert.ok(isPicoletError(error, "corrupt"), String(error));
  }
};

test("any bytes are read or refused as corrupt", () => {
  fc.assert(fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 5 }), decodes));
});

test("a message with anything changed in it is read or refused as corrupt", () => {
  const valid = Buffer.concat([encodeCall(CALL, 1), BIG_ENDIAN_SIGNAL]);
  const changes = fc.array(fc.tuple(fc.nat(valid.length - 1), fc.nat(255)), { minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(changes, fc.nat(valid.length), (changed, cut) => {
      const bytes = Buffer.from(valid);
      for (const [at, byte] of changed) bytes[at] = byte;
      decodes([bytes.subarray(0, cut), bytes.subarray(cut)]);
    }),
    { numRuns: 2000 },
  );
});
