/** Requests by wasi:http/outgoing-handler: real components in real processes, and servers on the loopback. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createTcpServer, type Server as TcpServer } from "node:net";
import { type TestContext, test } from "node:test";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { wasmBench } from "../support/wasm/wasm-bench.ts";

async function portOf(context: TestContext, server: Server | TcpServer): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => server.close());
  return (server.address() as { port: number }).port;
}

const answering = (context: TestContext, listener: RequestListener): Promise<number> =>
  portOf(context, createServer(listener));

/** The output of `http-client.c` for these requests, in a pod with this network. */
async function said(context: TestContext, network: string, ...args: readonly string[]): Promise<string[]> {
  const { pod } = await wasmBench(context);
  const made = await pod("http-client.c", { annotations: { "wasm.picolet.io/network": network } });
  const container = await made.start({ args });
  const { exitCode, message } = await made.exit(container.id);
  assert.equal(exitCode, 0, message);
  return made.text(container, 1);
}

test("a component asks whom its pod names, by the methods it names, and nobody else", async (context) => {
  const asked: string[] = [];
  const port = await answering(context, (request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers.host} ${request.headers["x-asked-by"]}`);
    response.end("fine");
  });
  const here = `127.0.0.1:${port}`;
  const lines = await said(
    context,
    `GET,POST http://127.0.0.1:${port}; http://*.example:80`,
    ...["GET", "http", here, "/a?b=c", "-"],
    ...["DELETE", "http", here, "/a", "-"],
    ...["GET", "http", `127.0.0.2:${port}`, "/", "-"],
    ...["GET", "http", "169.254.169.254", "/", "-"],
    ...["GET", "https", here, "/", "-"],
    ...["CONNECT", "http", here, "/", "-"],
    ...["GET", "gopher", here, "/", "-"],
    ...["GET", "http", "user@127.0.0.1", "/", "-"],
    ...["GET", "http", here, "/ x", "-"],
    ...["B D", "http", here, "/", "-"],
  );
  assert.deepEqual(lines, [
    "200 fine",
    ...["HTTP-request-denied", "HTTP-request-denied", "HTTP-request-denied", "HTTP-request-denied"],
    ...["HTTP-request-method-invalid", "HTTP-request-URI-invalid"],
    ...["refused before it was sent", "refused before it was sent", "refused before it was sent"],
  ]);
  const named = await said(context, `http://localhost:${port}`, "GET", "http", `localhost:${port}`, "/named", "-");
  assert.deepEqual(named, ["200 fine"]);
  assert.deepEqual(asked, [`GET /a?b=c ${here} component`, `GET /named localhost:${port} component`]);
});

test("bodies go both ways piece by piece", async (context) => {
  const port = await answering(context, (request, response) => {
    if (request.method === "POST") request.pipe(response);
    else response.end(Buffer.alloc(5_000_000, "x"));
  });
  const here = `127.0.0.1:${port}`;
  const lines = await said(
    context,
    `http://${here}`,
    ...["POST", "http", here, "/", "hello there"],
    ...["POST", "http", here, "/", "=3000000"],
    ...["GET", "http", here, "/", "-"],
    ...["HEAD", "http", here, "/", "-"],
  );
  assert.deepEqual(lines, ["200 hello there", "200 3000000 bytes", "200 5000000 bytes", "200 "]);
});

test("what goes wrong on the way has its error code", async (context) => {
  const silent = await answering(context, () => undefined);
  const hangsUp = await portOf(
    context,
    createTcpServer((socket) => void socket.once("data", () => socket.destroy())),
  );
  const babbles = await portOf(
    context,
    createTcpServer((socket) => void socket.once("data", () => socket.end("what?\r\n\r\n"))),
  );
  const stops = await portOf(
    context,
    createTcpServer(
      (socket) => void socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort")),
    ),
  );
  const long = await portOf(
    context,
    createTcpServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => socket.end(`HTTP/1.1 200 OK\r\nx: ${"y".repeat(100_000)}\r\n\r\n`));
    }),
  );
  const gone = await fixedPort();
  const ports = [silent, hangsUp, babbles, stops, long, gone];
  const lines = await said(
    context,
    [...ports.map((port) => `http://127.0.0.1:${port}`), `https://127.0.0.1:${babbles}`].join("; "),
    ...ports.flatMap((port) => ["GET", "http", `127.0.0.1:${port}`, "/", "-"]),
    ...["GET", "https", `127.0.0.1:${babbles}`, "/", "-"],
  );
  assert.deepEqual(lines, [
    "HTTP-response-timeout",
    "connection-terminated",
    "HTTP-protocol-error",
    "200 short connection-terminated",
    "HTTP-response-header-section-size",
    "connection-refused",
    "TLS-protocol-error",
  ]);
});
