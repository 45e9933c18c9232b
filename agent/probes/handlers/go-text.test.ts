import assert from "node:assert/strict";
import { test } from "node:test";
import { connectionError, dialError, goQuote, goSeconds, joinHostPort } from "./go-text.ts";

const QUOTED: readonly (readonly [given: string | Uint8Array, quoted: string])[] = [
  ["plain text", '"plain text"'],
  ['say "no"\\', '"say \\"no\\"\\\\"'],
  ["a\tb\r\n\u0007\u0000", '"a\\tb\\r\\n\\a\\x00"'],
  ["grüße ☃ 😀", '"grüße ☃ 😀"'],
  ["zero\u200bwidth \u{e0001}", '"zero\\u200bwidth \\U000e0001"'],
  [Buffer.from("0000064e", "hex"), '"\\x00\\x00\\x06N"'],
  [Buffer.from([0xff, 0x41, 0xfe]), '"\\xffA\\xfe"'],
  [Buffer.from("grün"), '"grün"'],
];

test("texts are quoted as Go quotes them", () => {
  for (const [given, quoted] of QUOTED) assert.equal(goQuote(given), quoted);
});

test("durations and addresses are written as Go writes them", () => {
  assert.deepEqual([1, 59, 60, 150, 3600, 3661].map(goSeconds), ["1s", "59s", "1m0s", "2m30s", "1h0m0s", "1h1m1s"]);
  assert.equal(joinHostPort("10.0.0.1", 80), "10.0.0.1:80");
  assert.equal(joinHostPort("fd00::1", 80), "[fd00::1]:80");
});

test("what the system says of a connection is said as Go says it", () => {
  const error = (code: string, syscall: string): NodeJS.ErrnoException =>
    Object.assign(new Error("something"), { code, syscall });
  const ends = { localAddress: "10.0.0.2", localPort: 4000, host: "10.0.0.1", port: 80 };
  assert.equal(
    dialError(error("ECONNREFUSED", "connect"), "10.0.0.1", 80),
    "dial tcp 10.0.0.1:80: connect: connection refused",
  );
  assert.equal(
    dialError(error("EHOSTUNREACH", "connect"), "fd00::1", 80),
    "dial tcp [fd00::1]:80: connect: no route to host",
  );
  assert.equal(dialError(error("ENOTFOUND", "queryA"), "nowhere", 80), "dial tcp: lookup nowhere: no such host");
  assert.equal(dialError(error("ETIMEOUT", "queryA"), "nowhere", 80), "dial tcp: lookup nowhere: something");
  assert.equal(dialError(error("EODD", "connect"), "10.0.0.1", 80), "dial tcp 10.0.0.1:80: connect: something");
  assert.equal(
    connectionError(error("ECONNRESET", "read"), ends),
    "read tcp 10.0.0.2:4000->10.0.0.1:80: read: connection reset by peer",
  );
  assert.equal(
    connectionError(error("EPIPE", "write"), ends),
    "write tcp 10.0.0.2:4000->10.0.0.1:80: write: broken pipe",
  );
});
