import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { HttpResponseReader } from "./http-response.ts";

interface Read {
  readonly status: number | undefined;
  readonly body: string;
  readonly done: boolean;
}

function read(bytes: Buffer, cuts: readonly number[] = [], ended = true): Read {
  const reader = new HttpResponseReader();
  const body: Buffer[] = [];
  let from = 0;
  for (const cut of [...cuts.filter((each) => each < bytes.length).sort((a, b) => a - b), bytes.length]) {
    body.push(...reader.push(bytes.subarray(from, cut)));
    from = cut;
  }
  if (ended) reader.end();
  return { status: reader.head?.status, body: Buffer.concat(body).toString(), done: reader.done };
}

const everywhere = (length: number): number[] => Array.from({ length }, (_, index) => index);

const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const good: readonly (readonly [name: string, answer: string, status: number, body: string])[] = [
  ["a body of known length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"],
  ["an empty body", "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 404, ""],
  ["a body until the connection ends", "HTTP/1.0 200 OK\r\n\r\nhello", 200, "hello"],
  ["no body by its status", "HTTP/1.1 204\r\n\r\n", 204, ""],
  ["chunks", `${chunked}5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n`, 200, "hello!"],
  ["chunks with trailers", `${chunked}A\r\n0123456789\r\n0\r\nX: y\r\nZ: z\r\n\r\n`, 200, "0123456789"],
  [
    "a head that announces another",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    200,
    "ok",
  ],
  ["what follows the answer is dropped", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more", 200, "ok"],
];

for (const [name, answer, status, body] of good) {
  test(`${name}, however it is cut`, () => {
    const bytes = Buffer.from(answer);
    assert.deepEqual(read(bytes), { status, body, done: true });
    assert.deepEqual(read(bytes, everywhere(bytes.length)), { status, body, done: true });
  });
}

for (const [name, answer] of [
  ["another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n"],
  ["a head without end", `HTTP/1.1 200 OK\r\nX: ${"y".repeat(20_000)}`],
  ["a header without a name", "HTTP/1.1 200 OK\r\n: x\r\n\r\n"],
  ["a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"],
  ["an unknown encoding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"],
  ["a chunk without a size", `${chunked}hello\r\n`],
  ["a chunk of more than 4 GiB", `${chunked}123456789\r\n`],
  ["a chunk that is longer than it says", `${chunked}2\r\nhello\r\n`],
  ["a chunk's size without end", `${chunked}5;${"x".repeat(300)}`],
] as const) {
  test(`refused: ${name}`, () => {
    const bytes = Buffer.from(answer);
    assert.throws(
      () => read(bytes, [], false),
      (error) => isPicoletError(error, "corrupt"),
    );
    assert.throws(
      () => read(bytes, everywhere(bytes.length), false),
      (error) => isPicoletError(error, "corrupt"),
    );
  });
}

test("an answer that is cut short is noticed, wherever", () => {
  for (const [, answer, , body] of good) {
    const whole = Buffer.from(answer);
    if (!/content-length|transfer-encoding/i.test(answer) || answer.includes("and more")) continue;
    for (let length = 0; length < whole.length; length += 1) {
      assert.throws(
        () => read(whole.subarray(0, length)),
        (error) => isPicoletError(error, "unavailable"),
        `${length} bytes of ${JSON.stringify(body)}`,
      );
    }
  }
});

test("garbage is refused or read, and nothing else", () => {
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    fc
      .constantFrom(
        "HTTP/1.1 200 OK\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\n",
        "\r\n",
        "3\r\nabc\r\n",
        "0\r\n",
      )
      .map((text) => Buffer.from(text)),
  );
  fc.assert(
    fc.property(fc.array(piece), fc.array(fc.nat(200)), (pieces, cuts) => {
      const bytes = Buffer.concat(pieces);
      const attempt = (some: readonly number[]): string => {
        try {
          return JSON.stringify(read(bytes, some));
        } catch (error) {
          if (isPicoletError(error, "corrupt") || isPicoletError(error, "unavailable")) return error.code;
          throw error;
        }
      };
      assert.equal(attempt(cuts), attempt([]), "independent of the cuts");
    }),
  );
});
