import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { connect, type TLSSocket } from "node:tls";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import fc from "fast-check";
import { bodyOf, endAnswer, MAX_DISCARDED_BYTES } from "./unread-body.ts";

const TAKEN = 64 * 1024;
const TEXT = `{"kind":"Status","message":"${"too large ".repeat(200)}"}\n`;

/** A server that reads 64 KiB of each body at most. `/at-once` reads none. */
async function serve(t: TestContext, requestTimeout = 30_000): Promise<{ server: Server; port: number }> {
  const { certificate: cert, privateKey: key } = new TlsAuthority("server").issueServer();
  const options = { cert, key, requestTimeout, headersTimeout: requestTimeout, connectionsCheckingInterval: 20 };
  const server = createServer(options, async (request, response) => {
    const size = request.url === "/at-once" ? TAKEN + 1 : await sizeOf(request);
    const isRefused = size > TAKEN;
    await endAnswer(response, isRefused ? 413 : 200, { "content-type": "application/json" }, isRefused ? TEXT : "{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { server, port: (server.address() as AddressInfo).port };
}

async function sizeOf(request: IncomingMessage): Promise<number> {
  let size = 0;
  for await (const piece of bodyOf(request)) {
    size += piece.length;
    if (size > TAKEN) break;
  }
  return size;
}

/** Sends a file. @returns the answer and behind it the status code @throws where the connection was reset */
function curl(port: number, path: string, file: string, more: readonly string[] = []): Promise<string> {
  const args = ["-sS", "-k", "-T", file, "-w", "%{http_code}", "-H", "Expect:", ...more];
  return new Promise((resolve, reject) => {
    execFile("curl", [...args, `https://127.0.0.1:${port}${path}`], (error, out) =>
      error === null ? resolve(out) : reject(error),
    );
  });
}

test("curl gets the refusal of a body of several MiB, announced or in chunks", async (t) => {
  const { port } = await serve(t);
  const folder = mkdtempSync(join(tmpdir(), "picolet-body-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "body");
  writeFileSync(file, Buffer.alloc(7 * MEBIBYTE, 65));
  for (const path of ["/", "/at-once"])
    for (const more of [[], ["-H", "Transfer-Encoding: chunked"]])
      assert.equal(await curl(port, path, file, more), `${TEXT}413`);
  writeFileSync(file, Buffer.alloc(TAKEN, 65));
  assert.equal(await curl(port, "/", file), "{}200");
});

/** A client that writes all of it before it reads. */
async function send(socket: TLSSocket, pieces: Iterable<string | Buffer>): Promise<void> {
  for (const piece of pieces) {
    if (socket.destroyed) return;
    if (!socket.write(piece)) await drained(socket);
  }
}

const drained = (socket: TLSSocket): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      socket.off("drain", done).off("close", done);
      resolve();
    };
    socket.on("drain", done).on("close", done);
  });

async function dial(port: number): Promise<TLSSocket> {
  const socket = connect({ host: "127.0.0.1", port, rejectUnauthorized: false });
  socket.on("error", () => undefined);
  await once(socket, "secureConnect");
  return socket;
}

async function received(socket: TLSSocket): Promise<string> {
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  if (!socket.closed) await once(socket, "close");
  return Buffer.concat(chunks).toString();
}

test("a body of any size and form up to the limit leaves its client the answer", async (t) => {
  const { port } = await serve(t);
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: TAKEN + 1, max: 2 * MEBIBYTE }),
      fc.integer({ min: 1, max: 200_000 }),
      fc.boolean(),
      fc.constantFrom("/", "/at-once"),
      async (size, piece, isChunked, path) => {
        using socket = asDisposable(await dial(port));
        const body = Buffer.alloc(size, 65);
        const form = isChunked ? "transfer-encoding: chunked" : `content-length: ${size}`;
        const pieces = function* (): Iterable<string | Buffer> {
          yield `PUT ${path} HTTP/1.1\r\nhost: x\r\n${form}\r\n\r\n`;
          for (let at = 0; at < size; at += piece) {
            const part = body.subarray(at, at + piece);
            yield isChunked ? Buffer.concat([Buffer.from(`${part.length.toString(16)}\r\n`), part, END]) : part;
          }
          if (isChunked) yield "0\r\n\r\n";
        };
        await send(socket.value, pieces());
        const text = await received(socket.value);
        assert.match(text, /^HTTP\/1\.1 413 /);
        assert.match(text, /\r\nconnection: close\r\n/i);
        assert.ok(text.endsWith(`\r\n\r\n${TEXT}`), text.slice(-100));
      },
    ),
    { numRuns: 25 },
  );
});

const END = Buffer.from("\r\n");

const asDisposable = (value: TLSSocket): { readonly value: TLSSocket } & Disposable => ({
  value,
  [Symbol.dispose]: () => void value.destroy(),
});

test("a body without end is cut off at the limit of bytes", async (t) => {
  const { port, server } = await serve(t);
  let taken = 0;
  server.on("request", (request) => request.on("data", (piece: Buffer) => (taken += piece.length)));
  using socket = asDisposable(await dial(port));
  const piece = Buffer.alloc(64 * 1024, 65);
  const endless = function* (): Iterable<string | Buffer> {
    yield "PUT /at-once HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n";
    for (;;) yield piece;
  };
  await send(socket.value, endless());
  assert.ok(taken > MAX_DISCARDED_BYTES && taken < MAX_DISCARDED_BYTES + MEBIBYTE, `${taken} bytes`);
});

test("a client that stops sending is cut off by the server's limit of time, with its answer", async (t) => {
  const { port } = await serve(t, 100);
  using socket = asDisposable(await dial(port));
  socket.value.write("PUT /at-once HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nthe first bytes");
  const text = await received(socket.value);
  assert.ok(text.includes(`\r\n\r\n${TEXT}`), text);
});

test("a connection without an unread body is kept", async (t) => {
  const { port } = await serve(t);
  using socket = asDisposable(await dial(port));
  let text = "";
  socket.value.on("data", (chunk: Buffer) => (text += chunk.toString()));
  for (const request of [
    "GET /at-once HTTP/1.1\r\nhost: x\r\n\r\n",
    "PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
  ]) {
    text = "";
    socket.value.write(request);
    while (!/\}\n?$/.test(text)) await once(socket.value, "data");
    assert.doesNotMatch(text, /connection: close/i);
  }
});
