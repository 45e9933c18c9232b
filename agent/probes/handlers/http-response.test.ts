import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HttpResponse, MAX_BODY_BYTES } from "./http-response.ts";

/** Reads a response in pieces of that size, then closes it. @returns its status, location and body, or the error */
function read(text: string, size = text.length): string {
  const response = new HttpResponse();
  const bytes = Buffer.from(text, "latin1");
  const scratch = Buffer.alloc(Math.max(1, size));
  try {
    for (let position = 0; position < bytes.length && !response.isDone; position += size) {
      const count = bytes.copy(scratch, 0, position, position + size);
      response.feed(scratch.subarray(0, count));
      // Overwrites the input, so that a view kept of it would show.
      scratch.fill(0xee);
    }
    const early = response.isDone ? "" : " by closing";
    response.end();
    return (
      `${response.status}${response.location === "" ? "" : ` -> ${response.location}`} ${response.body}`.trim() + early
    );
  } catch (error) {
    return `${response.status === undefined ? "" : `${response.status} `}${(error as Error).message}`;
  }
}

const BROKEN = "net/http: HTTP/1.x transport connection broken: ";
const CASES: readonly (readonly [what: string, text: string, result: string])[] = [
  ["a length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "200"],
  ["a body of a redirect", "HTTP/1.1 302 Found\r\nLocation:  /x \r\nContent-Length: 2\r\n\r\nokmore", "302 -> /x ok"],
  ["bare line feeds", "HTTP/1.0 302 Found\nlocation: /x\ncontent-length: 2\n\nok", "302 -> /x ok"],
  ["no reason", "HTTP/1.1 204 \r\n\r\n", "204"],
  ["not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n", "304"],
  ["an upgrade", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "101"],
  ["until it is closed", "HTTP/1.1 300 Choices\r\n\r\nsome text", "300 some text by closing"],
  [
    "chunks",
    "HTTP/1.1 300 X\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
    "300 abc0123456789",
  ],
  [
    "informational ones first",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "200",
  ],
  ["a continued header", "HTTP/1.1 200 OK\r\nX: a\r\n  b\r\nContent-Length: 0\r\n\r\n", "200"],
  ["lengths that agree", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\nx", "200"],
  [
    "chunks before a length",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "200",
  ],
  ["nothing", "", "EOF"],
  ["half a status", "HTTP/1.1 2", `${BROKEN}unexpected EOF`],
  ["half a head", "HTTP/1.1 200 OK\r\nContent-", `${BROKEN}unexpected EOF`],
  ["half a body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "200 unexpected EOF"],
  ["half a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "200 unexpected EOF"],
  [
    "HTTP/2",
    "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\n",
    `${BROKEN}malformed HTTP response "\\x00\\x00\\x06\\x04\\x00\\x00\\x00\\x00\\x00\\x00"`,
  ],
  ["SSH", "SSH-2.0-OpenSSH_9.2p1\r\n", `${BROKEN}malformed HTTP response "SSH-2.0-OpenSSH_9.2p1"`],
  ["a mail server", "220 mail.example ESMTP\r\n", `${BROKEN}malformed HTTP status code "mail.example"`],
  ["another version", "HTTP/x 200 OK\r\n\r\n", `${BROKEN}malformed HTTP version "HTTP/x"`],
  [
    "a header without colon",
    "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    `${BROKEN}malformed MIME header: missing colon: "nonsense"`,
  ],
  [
    "a header that goes on from nowhere",
    "HTTP/1.1 200 OK\r\n X: y\r\n\r\n",
    `${BROKEN}malformed MIME header initial line: " X: y"`,
  ],
  ["a length that is none", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", `${BROKEN}bad Content-Length "-1"`],
  [
    "two lengths",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    `${BROKEN}http: message cannot contain multiple Content-Length headers; got ["1" "2"]`,
  ],
  [
    "another coding",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    `${BROKEN}unsupported transfer encoding: "gzip"`,
  ],
  [
    "two codings",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
    `${BROKEN}too many transfer encodings: ["gzip" "chunked"]`,
  ],
  [
    "a chunk without size",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "200 invalid byte in chunk length",
  ],
  [
    "a chunk of more than there is",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffff\r\n",
    "200 http chunk length too large",
  ],
  [
    "a chunk longer than it says",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    "200 malformed chunked encoding",
  ],
];

for (const [what, text, result] of CASES) {
  test(`${what}: ${result.slice(0, 60)}`, () => {
    for (const size of [text.length, 1, 2, 7])
      assert.equal(read(text, Math.max(1, size)), result, `in pieces of ${size}`);
  });
}

test("a body is read and kept up to its limit", () => {
  const endless = `HTTP/1.1 307 X\r\nLocation: /\r\n\r\n${"y".repeat(MAX_BODY_BYTES + 5000)}`;
  assert.equal(read(endless, 777), `307 -> / ${"y".repeat(MAX_BODY_BYTES)}`);
  assert.equal(read(`HTTP/1.1 200 X\r\n\r\n${"y".repeat(MAX_BODY_BYTES)}`), "200");
});

test("heads, lines and framing without end fail", () => {
  const headers = `HTTP/1.1 200 OK\r\n${`X-Header: ${"y".repeat(1000)}\r\n`.repeat(1100)}`;
  assert.equal(read(headers, 4096), `${BROKEN}net/http: server response headers exceeded 262144 bytes; aborted`);
  const one = `HTTP/1.1 200 OK\r\nX-Header: ${"y".repeat(300_000)}`;
  assert.equal(read(one, 4096), `${BROKEN}net/http: server response headers exceeded 262144 bytes; aborted`);
  const informational = "HTTP/1.1 100 Continue\r\n\r\n".repeat(50_000);
  assert.equal(read(informational, 4096), `${BROKEN}net/http: server response headers exceeded 262144 bytes; aborted`);
  assert.match(read("x".repeat(9000), 100), /malformed HTTP response "x{1024}"$/);
  const chunks = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${`1;${"y".repeat(4000)}\r\nx\r\n`.repeat(300)}`;
  assert.equal(read(chunks, 4096), "200 chunked encoding contains too much non-data");
  const size = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${"0".repeat(9000)}`;
  assert.equal(read(size, 4096), "200 header line too long");
});

test("a header longer than a line may be is skipped, unless it is needed", () => {
  const long = "y".repeat(9000);
  assert.equal(read(`HTTP/1.1 200 OK\r\nX-Long: ${long}\r\nContent-Length: 0\r\n\r\n`, 1000), "200");
  assert.match(
    read(`HTTP/1.1 302 OK\r\nLocation: ${long}\r\n\r\n`, 1000),
    /a header Location is longer than 8192 bytes$/,
  );
});

test("no bytes at all make it fail in another way than it says, however they are cut", () => {
  const line = fc.oneof(
    fc.constantFrom(
      "HTTP/1.1 200 OK",
      "HTTP/1.1 302 Found",
      "HTTP/1.1 100 Continue",
      "Content-Length: 5",
      "",
      "0",
      "5",
      "a;x",
    ),
    fc.constantFrom("Transfer-Encoding: chunked", "Location: /next", "Location: http://[", " folded", "hello", "X: y"),
    fc.string({ unit: "binary-ascii", maxLength: 20 }),
  );
  const text = fc.array(fc.tuple(line, fc.constantFrom("\r\n", "\n", "")), { maxLength: 12 });
  fc.assert(
    fc.property(text, fc.integer({ min: 1, max: 9 }), (lines, size) => {
      const all = lines.map(([each, end]) => each + end).join("");
      const whole = read(all, Math.max(1, all.length));
      // An error that is thrown in the middle is the same wherever the pieces end.
      assert.equal(read(all, size), whole);
    }),
    { numRuns: 5000 },
  );
});
