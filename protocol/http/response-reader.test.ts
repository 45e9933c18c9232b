import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { HttpResponseError, HttpResponseReader, type ResponseLimits } from "./response-reader.ts";

const STRICT: ResponseLimits = { maxHeadBytes: 16 * 1024 };
const LENIENT: ResponseLimits = { ...STRICT, maxLineBytes: 1024, wanted: new Set(["location"]), isLenient: true };

interface Read {
  readonly status: number | undefined;
  readonly body: string;
  readonly isDone: boolean;
  /** How many bytes belong to the response. */
  readonly length: number;
}

/** Reads `bytes` in pieces that end at `cuts`; each piece is overwritten afterwards. */
function read(bytes: Buffer, cuts: readonly number[] = [], ended = true, limits = STRICT): Read {
  const body: string[] = [];
  const reader = new HttpResponseReader(limits, (piece) => body.push(Buffer.from(piece).toString("latin1")));
  let from = 0;
  let length = 0;
  for (const cut of [...cuts.filter((each) => each < bytes.length).sort((a, b) => a - b), bytes.length]) {
    const piece = Buffer.from(bytes.subarray(from, cut));
    length += reader.push(piece);
    piece.fill(0xee);
    from = cut;
  }
  if (ended) reader.end();
  return { status: reader.head?.status, body: body.join(""), isDone: reader.isDone, length };
}

const everywhere = (length: number): number[] => Array.from({ length }, (_, index) => index);

const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const good: readonly (readonly [name: string, answer: string, status: number, body: string])[] = [
  ["a body of known length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"],
  ["an empty body", "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 404, ""],
  ["a body until the connection ends", "HTTP/1.0 200 OK\r\n\r\nhello", 200, "hello"],
  ["no body by its status", "HTTP/1.1 204\r\n\r\n", 204, ""],
  ["no body that is only described", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, ""],
  ["an upgrade", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 101, ""],
  ["chunks", `${chunked}5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n`, 200, "hello!"],
  ["chunks with trailers", `${chunked}A\r\n0123456789\r\n0\r\nX: y\r\nZ: z\r\n\r\n`, 200, "0123456789"],
  [
    "a head that announces another",
    "HTTP/1.1 100 Continue\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    200,
    "ok",
  ],
];

for (const [name, answer, status, body] of good) {
  test(`${name}, however it is cut`, () => {
    const bytes = Buffer.from(answer);
    const expected = { status, body, isDone: true, length: bytes.length };
    for (const limits of [STRICT, LENIENT]) {
      assert.deepEqual(read(bytes, [], true, limits), expected);
      assert.deepEqual(read(bytes, everywhere(bytes.length), true, limits), expected);
    }
    if (name.includes("until")) return;
    const followed = Buffer.from(`${answer}HTTP/1.1 500 Another\r\n\r\n`);
    assert.deepEqual(read(followed), expected, "what follows is left alone");
    assert.deepEqual(read(followed, everywhere(followed.length)), expected);
  });
}

test("the headers of the final head are kept, or those that are wanted, in their order", () => {
  const text =
    "HTTP/1.1 103 Early Hints\r\nLocation: /early\r\n\r\n" +
    "HTTP/1.1 302 Found\r\nLOCATION:  /a \r\nX-A: 1\r\nlocation: /b\r\nContent-Length: 0\r\n\r\n";
  for (const [limits, expected] of [
    [STRICT, { location: ["/a", "/b"], "x-a": ["1"], "content-length": ["0"] }],
    [LENIENT, { location: ["/a", "/b"] }],
  ] as const) {
    const reader = new HttpResponseReader(limits);
    reader.push(Buffer.from(text));
    assert.deepEqual(Object.fromEntries(reader.head?.headers ?? []), expected);
  }
});

test("a response without interest in its body ends with its head, or after so many bytes", () => {
  const bytes = Buffer.from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
  for (const [maxBodyBytes, body] of [
    [0, ""],
    [3, "hel"],
  ] as const) {
    const length = bytes.length - "hello".length + maxBodyBytes;
    const expected = { status: 200, body, isDone: true, length };
    assert.deepEqual(read(bytes, [], true, { ...STRICT, maxBodyBytes }), expected);
    assert.deepEqual(read(bytes, everywhere(bytes.length), true, { ...STRICT, maxBodyBytes }), expected);
  }
});

const head = (...lines: readonly string[]): string => ["HTTP/1.1 200 OK", ...lines, "", ""].join("\r\n");
const refused: readonly (readonly [name: string, answer: string, fault: string])[] = [
  ["another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "statusLine"],
  ["a head without end", `HTTP/1.1 200 OK\r\nX: ${"y".repeat(20_000)}`, "headTooLong"],
  ["informational heads without end", "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000), "headTooLong"],
  ["a header without a name", head(": x"), "headerName"],
  ["a negative length", head("Content-Length: -1"), "length"],
  ["an unknown encoding", head("Transfer-Encoding: gzip"), "encoding"],
  ["a chunk without a size", `${chunked}hello\r\n`, "chunkSize"],
  ["a chunk of more than an exact number", `${chunked}1234567890abc\r\n`, "chunkTooLarge"],
  ["a chunk that is longer than it says", `${chunked}2\r\nhello\r\n`, "chunkEnd"],
  ["a chunk's size without end", `${chunked}5;${"x".repeat(5000)}`, "lineTooLong"],
  ["more framing than data", `${chunked}${`1;${"x".repeat(1000)}\r\ny\r\n`.repeat(20)}`, "framingTooLong"],
  ["trailers without end", `${chunked}0\r\n${"X: y\r\n".repeat(5000)}`, "framingTooLong"],
  // Two readers may understand these in two ways.
  ["a length beside chunks", head("Content-Length: 5", "Transfer-Encoding: chunked"), "lengthAndEncoding"],
  ["two lengths", head("Content-Length: 1", "Content-Length: 2"), "twoLengths"],
  ["two equal lengths", head("Content-Length: 1", "Content-Length: 1"), "twoLengths"],
  ["two encodings", head("Transfer-Encoding: gzip", "Transfer-Encoding: chunked"), "twoEncodings"],
  ["a list of encodings", head("Transfer-Encoding: gzip, chunked"), "encoding"],
  ["a space before the colon", head("Content-Length : 5"), "headerName"],
  ["a folded header", head("X: y", " Content-Length: 5"), "headerFolded"],
  ["a bare line feed", "HTTP/1.1 200 OK\r\nX: y\nContent-Length: 5\r\n\r\n", "bareLineFeed"],
  ["a bare carriage return", head("X: y\rContent-Length: 5"), "headerValue"],
  ["a bare line feed behind a chunk", `${chunked}1\r\nx\n0\r\n\r\n`, "bareLineFeed"],
];

for (const [name, answer, fault] of refused) {
  test(`refused: ${name}`, () => {
    const bytes = Buffer.from(answer);
    const isIt = (error: unknown): boolean =>
      error instanceof HttpResponseError && isPicoletError(error, "corrupt") && error.fault === fault;
    assert.throws(() => read(bytes, [], false), isIt);
    assert.throws(() => read(bytes, everywhere(bytes.length), false), isIt);
  });
}

test("a stream of single bytes lasts for ever", () => {
  const reader = new HttpResponseReader(STRICT);
  reader.push(Buffer.from(chunked));
  const piece = Buffer.from("1\r\nx\r\n".repeat(1000));
  for (let count = 0; count < 50; count += 1) assert.equal(reader.push(piece), piece.length);
});

test("an answer that is cut short is noticed, wherever", () => {
  for (const [name, answer] of good) {
    if (name.includes("until")) continue;
    const whole = Buffer.from(answer);
    for (let length = 0; length < whole.length; length += 1) {
      assert.throws(
        () => read(whole.subarray(0, length)),
        (error) => isPicoletError(error, "unavailable"),
        `${length} bytes of ${name}`,
      );
    }
  }
});

const line = fc.oneof(
  fc.constantFrom("HTTP/1.1 200 OK", "HTTP/1.1 302 Found", "HTTP/1.1 100 Continue", "HTTP/1.0 204", "SSH-2.0"),
  fc.constantFrom("Content-Length: 5", "content-length: 0", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip"),
  fc.constantFrom("Location: /next", " folded", "hello", "X: y", "", "0", "5", "a;x", "3\r\nabc"),
  fc.string({ unit: "binary-ascii", maxLength: 20 }),
  fc.constant("z".repeat(1500)),
);
const text = fc.array(fc.tuple(line, fc.constantFrom("\r\n", "\r\n", "\r\n", "\n", "")), { maxLength: 12 });

test("any bytes are read or refused, in the same way however they are cut, within the limits", () => {
  const attempt = (bytes: Buffer, cuts: readonly number[], limits: ResponseLimits): string => {
    try {
      return JSON.stringify(read(bytes, cuts, true, limits));
    } catch (error) {
      if (error instanceof HttpResponseError) return `${error.fault} ${error.texts.join()}`;
      throw error;
    }
  };
  fc.assert(
    fc.property(
      fc.oneof(
        text.map((lines) => Buffer.from(lines.flat().join(""), "latin1")),
        text.map((lines) => Buffer.from(`HTTP/1.1 200 OK\r\n${lines.flat().join("")}`, "latin1")),
        fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes)),
      ),
      fc.array(fc.nat(200)),
      fc.constantFrom(STRICT, LENIENT, { ...STRICT, maxBodyBytes: 4 }, { ...LENIENT, maxHeadBytes: 2000 }),
      (bytes, cuts, limits) => {
        const whole = attempt(bytes, [], limits);
        assert.equal(attempt(bytes, cuts, limits), whole);
        assert.equal(attempt(bytes, everywhere(bytes.length), limits), whole);
      },
    ),
    { numRuns: 2000 },
  );
});

test("a body arrives as it was sent, in any framing and any pieces", () => {
  const body = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes));
  const framing = fc.constantFrom("length", "chunks", "close");
  fc.assert(
    fc.property(body, framing, fc.array(fc.nat(300)), fc.array(fc.nat(800)), (sent, kind, sizes, cuts) => {
      const chunks: Buffer[] = [];
      let from = 0;
      for (const size of [...sizes, sent.length]) {
        const chunk = sent.subarray(from, from + size);
        from += chunk.length;
        if (chunk.length > 0) chunks.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from("\r\n"));
      }
      const bytes = {
        length: Buffer.concat([Buffer.from(head(`Content-Length: ${sent.length}`)), sent]),
        chunks: Buffer.concat([Buffer.from(chunked), ...chunks, Buffer.from("0\r\n\r\n")]),
        close: Buffer.concat([Buffer.from(head()), sent]),
      }[kind];
      const expected = { status: 200, body: sent.toString("latin1"), isDone: true, length: bytes.length };
      for (const limits of [STRICT, LENIENT]) assert.deepEqual(read(bytes, cuts, true, limits), expected);
    }),
  );
});
