/** The client against any peer that may listen on the socket. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import fc from "fast-check";
import { AgentClient } from "./agent-client.ts";
import { EXIT_UNREACHABLE, exitCodeOf } from "./exit-codes.ts";

/** Short, because one test waits for it; the others never do. */
const TIMEOUT = millis(30);

async function serve(t: TestContext, answer: (socket: Socket, request: string) => void): Promise<AgentClient> {
  const directory = mkdtempSync(join(tmpdir(), "picolet-client-"));
  const socketPath = join(directory, "s");
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("data", (bytes) => answer(socket, bytes.toString()));
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  t.after(() => {
    for (const each of sockets) each.destroy();
    server.close();
    rmSync(directory, { recursive: true });
  });
  return new AgentClient({ socketPath, timeout: seconds(20) });
}

const ok = (body: string): string => `HTTP/1.1 200 OK\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

const unreachable = (message: RegExp) => (error: unknown) =>
  exitCodeOf(error) === EXIT_UNREACHABLE && message.test(describeError(error));

test("a question and its answer", async (t) => {
  const requests: string[] = [];
  const client = await serve(t, (socket, request) => {
    requests.push(request);
    socket.end(ok('{"a":1}'));
  });
  assert.deepEqual(await client.get("/v1/x"), { a: 1 });
  assert.deepEqual(await client.post("/v1/y", { b: "\u00e9" }, seconds(1)), { a: 1 });
  assert.deepEqual(requests, [
    "GET /v1/x HTTP/1.1\r\nHost: picolet\r\nConnection: close\r\n\r\n",
    'POST /v1/y HTTP/1.1\r\nHost: picolet\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{"b":"\u00e9"}',
  ]);
});

test("the agent's own errors keep their code and words", async (t) => {
  const body = JSON.stringify({ error: { code: "not_found", message: 'pod "x" not found' } });
  const client = await serve(t, (socket) =>
    socket.end(`HTTP/1.1 404 Not Found\r\nContent-Length: ${body.length}\r\n\r\n${body}`),
  );
  const isIt = (error: unknown): boolean => isPicoletError(error, "not_found") && error.message === 'pod "x" not found';
  await assert.rejects(client.get("/"), isIt);
  await assert.rejects(client.stream("/"), isIt);
  await assert.rejects(client.lines("/").next(), isIt);
});

test("lines come as they are complete, and the last says what went wrong", async (t) => {
  const client = await serve(t, (socket) => {
    socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    const text = '{"n":"\u00e9"}\n{"n":2}\n{"type":"ERROR","error":{"code":"corrupt","message":"broken"}}\n';
    for (const byte of Buffer.from(text)) socket.write(Buffer.of(0x31, 0x0d, 0x0a, byte, 0x0d, 0x0a));
    socket.end("0\r\n\r\n");
  });
  const lines = client.lines("/");
  assert.deepEqual((await lines.next()).value, { n: "\u00e9" });
  assert.deepEqual((await lines.next()).value, { n: 2 });
  await assert.rejects(lines.next(), (error) => isPicoletError(error, "corrupt") && error.message === "broken");
});

for (const [name, answer, message] of [
  ["another protocol", "220 mail.example.com ESMTP\r\n\r\n", /is not picolet: the answer is no HTTP/],
  ["no JSON", ok("<html>"), /is not picolet: no JSON/],
  ["an error of another kind", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\n{}", /is not picolet: status 502/],
  ["an end before the answer", "", /ended early/],
  ["an end within the head", "HTTP/1.1 200 OK\r\nConte", /ended early/],
] as const) {
  test(`not our agent: ${name}`, async (t) => {
    const client = await serve(t, (socket) => socket.end(answer));
    await assert.rejects(client.get("/"), unreachable(message));
    const lines = name === "no JSON" ? /is not picolet: an unfinished line/ : message;
    await assert.rejects(drain(client.lines("/")), unreachable(lines));
  });
}

test("an answer cut short in its body is an error of its own, for it may have been right so far", async (t) => {
  const client = await serve(t, (socket) => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"));
  await assert.rejects(client.get("/"), (error) => isPicoletError(error, "unavailable") && exitCodeOf(error) === 1);
});

test("an agent that hangs is given up after the timeout, before the head and within the body", async (t) => {
  for (const beginning of ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"]) {
    const { get } = await serve(t, (socket) => socket.write(beginning)).then((client) => hasty(client));
    await assert.rejects(get(), unreachable(/does not answer within 0.03 s/));
  }
});

/** The same server, asked with little patience. */
function hasty(client: AgentClient): { readonly get: () => Promise<unknown> } {
  return { get: () => client.post("/", {}, TIMEOUT) };
}

test("no socket, a dead one, and what is none", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "picolet-client-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const ask = (name: string): Promise<unknown> =>
    new AgentClient({ socketPath: join(directory, name), timeout: seconds(20) }).get("/");
  await assert.rejects(ask("none"), unreachable(/there is no socket .*\/none\n.*systemctl start picolet/s));
  writeFileSync(join(directory, "file"), "");
  await assert.rejects(ask("file"), unreachable(/no process listens/));
  await assert.rejects(ask("file/below"), unreachable(/there is no socket/));
  await assert.rejects(ask("x".repeat(200)), unreachable(/cannot talk to the agent|there is no socket/));
});

test("to any answer the client ends with a value or an error of ours", async (t) => {
  let answer: Buffer = Buffer.alloc(0);
  const client = await serve(t, (socket) => socket.end(answer));
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 50 }).map((bytes) => Buffer.from(bytes)),
    fc
      .constantFrom(
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 500 No\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 7\r\n",
        "\r\n",
        "7\r\n",
        '{"a":1}',
        '{"error":{"code":"invalid","message":"x"}}',
        "\n",
        "0\r\n\r\n",
      )
      .map((text) => Buffer.from(text)),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(piece), async (pieces) => {
      answer = Buffer.concat(pieces);
      const isOurs = (error: unknown): void => assert.ok(isPicoletError(error), String(error));
      await client.get("/").catch(isOurs);
      await drain(client.lines("/")).catch(isOurs);
    }),
    { numRuns: 200 },
  );
});

async function drain(lines: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of lines);
}
