import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import {
  constants,
  createServer as createHttp2Server,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { isPicoletError, type PicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { heldMemory } from "@picolet/test/support/unit/machine/held-memory.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { GrpcClient, type GrpcMethod } from "./grpc-client.ts";
import { withPrefix } from "./grpc-messages.ts";
import { encodeHeaders } from "./hpack.ts";
import { FLAG, FRAME, frame } from "./http2-frames.ts";
import { bytes, message, string } from "./protobuf.ts";

const Text = message("Text", { text: string(1), blob: bytes(2) });
const echo: GrpcMethod<{ text?: string; blob?: Uint8Array }, { text: string; blob: Uint8Array }> = {
  path: "/test.Echo/Echo",
  request: Text,
  response: Text,
  metadata: ["x-test", "yes"],
};
const TIMEOUT_MS = 10_000;
const HEADERS = { ":status": 200, "content-type": "application/grpc" };

/** A socket in a folder of its own, and a client on it with virtual time; all of it goes with the test. */
function bench(context: TestContext, settings: { maxMessageBytes?: number } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "picolet-http2-"));
  const path = join(folder, "socket");
  const clock = new VirtualClock();
  const client = new GrpcClient({ clock }, { path, connectTimeoutMs: 1_000, ...settings });
  const servers: (Server | Http2Server)[] = [];
  const open = new Set<Socket>();
  context.after(() => {
    client[Symbol.dispose]();
    for (const socket of open) socket.destroy();
    for (const server of servers) server.close();
    rmSync(folder, { recursive: true });
  });
  const listen = async (server: Server | Http2Server): Promise<void> => {
    servers.push(server);
    server.on("connection", (socket: Socket) => open.add(socket));
    await new Promise<void>((resolve) => server.listen(path, resolve));
  };
  return {
    path,
    clock,
    client,
    /** A real gRPC-ish server on node:http2. */
    serve: async (
      onStream: (stream: ServerHttp2Stream, request: Promise<Buffer>, headers: Record<string, unknown>) => void,
      options: Parameters<typeof createHttp2Server>[0] = {},
    ): Promise<{ server: Http2Server; sessions: ServerHttp2Session[]; stop(): Promise<void> }> => {
      const server = createHttp2Server(options);
      const sessions: ServerHttp2Session[] = [];
      server.on("session", (session) => sessions.push(session));
      server.on("stream", (stream, headers) => {
        stream.on("error", () => undefined);
        const parts: Buffer[] = [];
        const request = new Promise<Buffer>((resolve) => {
          stream.on("data", (part: Buffer) => parts.push(part));
          stream.on("end", () => resolve(Buffer.concat(parts)));
        });
        onStream(stream, request, headers);
      });
      await listen(server);
      const stop = async (): Promise<void> => {
        for (const socket of open) socket.destroy();
        open.clear();
        await new Promise((resolve) => server.close(resolve));
      };
      return { server, sessions, stop };
    },
    /** Bytes as the test likes them. */
    serveRaw: async (onConnection: (socket: Socket) => void): Promise<void> => {
      const server = createServer((socket) => {
        socket.on("error", () => undefined);
        onConnection(socket);
      });
      await listen(server);
    },
  };
}

/** Answers with `body` and a status in the trailers. */
function answer(
  stream: ServerHttp2Stream,
  body: Buffer,
  trailers: Record<string, string> = { "grpc-status": "0" },
): void {
  stream.respond(HEADERS, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers(trailers));
  stream.end(body);
}

const echoBack = (stream: ServerHttp2Stream, request: Promise<Buffer>): void => {
  request.then((body) => answer(stream, body));
};
const never = new AbortController().signal;
const code = (expected: string) => (error: unknown) => isPicoletError(error) && error.code === expected;

test("a call brings its answer back, with the method's path and metadata", async (context) => {
  const { client, serve } = bench(context);
  const seen: Record<string, unknown>[] = [];
  await serve((stream, request, headers) => {
    seen.push(headers);
    echoBack(stream, request);
  });
  const reply = await client.unary(echo, { text: "grüße" }, TIMEOUT_MS, never);
  assert.equal(reply.text, "grüße");
  assert.equal(seen[0]?.[":path"], "/test.Echo/Echo");
  assert.equal(seen[0]?.["x-test"], "yes");
  assert.equal(seen[0]?.["grpc-timeout"], "10000m");
});

test("many calls at once share a connection, in any order and size", async (context) => {
  const { client, serve } = bench(context);
  const { sessions } = await serve(echoBack);
  const sizes = [0, 1, 100, 16_383, 16_384, 70_000, 300_000, 1_500_000];
  const calls = Array.from({ length: 80 }, async (_, index) => {
    const blob = Buffer.alloc(sizes[index % sizes.length] ?? 0, index);
    const reply = await client.unary(echo, { text: `call ${index}`, blob }, TIMEOUT_MS, never);
    assert.equal(reply.text, `call ${index}`);
    assert.ok(blob.equals(reply.blob));
  });
  await Promise.all(calls);
  assert.equal(sessions.length, 1);
});

test("a server with small windows, frames and tables is obeyed", async (context) => {
  const { client, serve } = bench(context);
  await serve(echoBack, { settings: { initialWindowSize: 100, maxConcurrentStreams: 3, headerTableSize: 0 } });
  const replies = Array.from({ length: 20 }, async (_, index) => {
    const blob = Buffer.alloc(20_000, index);
    assert.ok(blob.equals((await client.unary(echo, { blob }, TIMEOUT_MS, never)).blob));
  });
  await Promise.all(replies);
});

test("a status is an error with the server's words, also without a body", async (context) => {
  const { client, serve } = bench(context);
  await serve((stream, request) => {
    request.then((body) => {
      const [status = "", words = ""] = Text.decode(body, 5).text.split(" ");
      stream.respond({ ...HEADERS, "grpc-status": status, "grpc-message": words }, { endStream: true });
    });
  });
  const statuses = {
    5: "not_found",
    14: "unavailable",
    12: "unimplemented",
    2: "failed",
    6: "already_exists",
    99: "failed",
  };
  for (const [status, expected] of Object.entries(statuses)) {
    await assert.rejects(
      client.unary(echo, { text: `${status} no%20such%20%C3%BCber%25thing%zz` }, TIMEOUT_MS, never),
      (error: PicoletError) => error.code === expected && error.message === "no such über%thing%zz",
    );
  }
});

test("a deadline ends the call at both sides", async (context) => {
  const { client, clock, serve } = bench(context);
  const closed = Promise.withResolvers<number>();
  const arrived = Promise.withResolvers<void>();
  await serve((stream) => {
    arrived.resolve();
    stream.on("close", () => closed.resolve(stream.rstCode));
  });
  const call = client.unary(echo, {}, 500, never);
  const outcome = assert.rejects(call, code("deadline_exceeded"));
  await arrived.promise;
  await clock.advance(millis(499));
  await clock.advance(millis(1));
  await outcome;
  assert.equal(await closed.promise, constants.NGHTTP2_CANCEL);
});

test("a call that the other side resets when the deadline is over has met its deadline", async (context) => {
  const { client, clock, serve } = bench(context);
  const arrived = Promise.withResolvers<ServerHttp2Stream>();
  await serve(arrived.resolve);
  // The client's own timer is late.
  context.mock.method(clock, "sleep", () => new Promise<never>(() => undefined));
  const outcome = assert.rejects(client.unary(echo, {}, 500, never), code("deadline_exceeded"));
  const stream = await arrived.promise;
  await clock.advance(millis(500));
  stream.close(constants.NGHTTP2_CANCEL);
  await outcome;
});

test("an aborted signal ends the call at both sides, and one that is aborted before starts none", async (context) => {
  const { client, serve } = bench(context);
  const closed = Promise.withResolvers<number>();
  const abort = new AbortController();
  let streams = 0;
  await serve((stream) => {
    streams += 1;
    stream.on("close", () => closed.resolve(stream.rstCode));
    abort.abort();
  });
  await assert.rejects(client.unary(echo, {}, TIMEOUT_MS, abort.signal), code("cancelled"));
  assert.equal(await closed.promise, constants.NGHTTP2_CANCEL);
  await assert.rejects(client.unary(echo, {}, TIMEOUT_MS, abort.signal), code("cancelled"));
  assert.equal(streams, 1);
});

test("a dead socket fails quickly, and one that appears later is found", async (context) => {
  const { client, clock, serve } = bench(context);
  for (let attempt = 0; attempt < 5; attempt += 1) {
    await assert.rejects(client.unary(echo, {}, TIMEOUT_MS, never), code("unavailable"));
  }
  await serve(echoBack);
  await clock.advance(millis(500));
  assert.equal((await client.unary(echo, { text: "at last" }, TIMEOUT_MS, never)).text, "at last");
});

test("a socket without HTTP/2 fails within the connect time", async (context) => {
  const { client, clock, serveRaw } = bench(context);
  const connected = Promise.withResolvers<void>();
  await serveRaw(() => connected.resolve());
  const outcome = assert.rejects(client.unary(echo, {}, TIMEOUT_MS, never), code("unavailable"));
  await connected.promise;
  await clock.advance(millis(1_000));
  await outcome;
});

test("a lost connection fails every call, and the next call has a new one", async (context) => {
  const { client, clock, serve } = bench(context);
  const arrived = Promise.withResolvers<void>();
  let streams = 0;
  const first = await serve(() => {
    streams += 1;
    if (streams === 10) arrived.resolve();
  });
  const calls = Array.from({ length: 10 }, () =>
    assert.rejects(client.unary(echo, {}, TIMEOUT_MS, never), code("unavailable")),
  );
  await arrived.promise;
  await first.stop();
  await Promise.all(calls);
  await serve(echoBack);
  await clock.advance(millis(500));
  assert.equal((await client.unary(echo, { text: "again" }, TIMEOUT_MS, never)).text, "again");
});

test("after GOAWAY running calls end well, and new ones take another connection", async (context) => {
  const { client, serve } = bench(context);
  const held: ServerHttp2Stream[] = [];
  const arrived = Promise.withResolvers<void>();
  const { sessions } = await serve((stream, request) => {
    if (held.length > 0) return echoBack(stream, request);
    held.push(stream);
    arrived.resolve();
    return undefined;
  });
  const slow = client.unary(echo, {}, TIMEOUT_MS, never);
  await arrived.promise;
  sessions[0]?.close();
  const [stream] = held;
  assert.ok(stream);
  const reply = client.unary(echo, { text: "new" }, TIMEOUT_MS, never);
  answer(stream, withPrefix(Text.encode({ text: "old" })));
  assert.equal((await slow).text, "old");
  assert.equal((await reply).text, "new");
});

const uint32 = (value: number): Buffer => {
  const all = Buffer.alloc(4);
  all.writeUInt32BE(value);
  return all;
};
const SETTINGS = frame(FRAME.settings, 0, 0, Buffer.alloc(0));
const OK_HEADERS = encodeHeaders([":status", "200", "content-type", "application/grpc"]);
const OK_TRAILERS = encodeHeaders(["grpc-status", "0"]);
const reply = (stream: number, text: string): Buffer =>
  Buffer.concat([
    frame(FRAME.headers, FLAG.endHeaders, stream, OK_HEADERS),
    frame(FRAME.data, 0, stream, withPrefix(Text.encode({ text }))),
    frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, OK_TRAILERS),
  ]);

/** Answers the SETTINGS, and calls back with the stream of each request's HEADERS. */
function rawServer(socket: Socket, onRequest: (stream: number) => void): void {
  socket.write(SETTINGS);
  let input = Buffer.alloc(0);
  let begun = false;
  socket.on("data", (chunk) => {
    input = Buffer.concat([input, chunk as Buffer]);
    if (!begun && input.length >= 24) {
      input = input.subarray(24);
      begun = true;
    }
    while (begun && input.length >= 9 && input.length >= 9 + input.readUIntBE(0, 3)) {
      const type = input[3];
      const stream = input.readUInt32BE(5);
      input = input.subarray(9 + input.readUIntBE(0, 3));
      if (type === FRAME.headers) onRequest(stream);
    }
  });
}

test("a call that a dying server says it never saw goes to the next connection by itself", async (context) => {
  const { client, serveRaw } = bench(context);
  let connections = 0;
  await serveRaw((socket) => {
    connections += 1;
    const first = connections === 1;
    rawServer(socket, (stream) => {
      if (!first) socket.write(reply(stream, "from the second"));
      else socket.write(frame(FRAME.goAway, 0, 0, Buffer.concat([uint32(0), uint32(0)])));
    });
  });
  assert.equal((await client.unary(echo, {}, TIMEOUT_MS, never)).text, "from the second");
  assert.equal(connections, 2);
});

test("a stream refused is tried once more, and no further", async (context) => {
  const { client, serveRaw } = bench(context);
  let requests = 0;
  await serveRaw((socket) =>
    rawServer(socket, (stream) => {
      requests += 1;
      socket.write(
        requests % 2 === 1 || requests > 2 ? frame(FRAME.resetStream, 0, stream, uint32(7)) : reply(stream, "ok"),
      );
    }),
  );
  assert.equal((await client.unary(echo, {}, TIMEOUT_MS, never)).text, "ok");
  await assert.rejects(client.unary(echo, {}, TIMEOUT_MS, never), code("unavailable"));
  assert.equal(requests, 4);
});

const HOSTILE: Readonly<Record<string, (stream: number) => Buffer>> = {
  "a frame on a stream that was never opened": () => frame(FRAME.data, 0, 99, Buffer.from("x")),
  "a frame on an even stream": () => frame(FRAME.headers, FLAG.endHeaders, 2, OK_HEADERS),
  "a header block of rubbish": (stream) =>
    frame(FRAME.headers, FLAG.endHeaders, stream, Buffer.from([0xff, 0xff, 0xff])),
  "a window larger than there may be": () => frame(FRAME.windowUpdate, 0, 0, uint32(0x7fff_ffff)),
  "a window update of nothing": () => frame(FRAME.windowUpdate, 0, 0, uint32(0)),
  "a window update of nothing for the stream": (stream) => frame(FRAME.windowUpdate, 0, stream, uint32(0)),
  "an initial window too large": () =>
    frame(FRAME.settings, 0, 0, Buffer.concat([Buffer.from([0, 4]), uint32(0x8000_0000)])),
  "no status at all": (stream) => frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, OK_HEADERS),
  "an end without trailers": (stream) =>
    Buffer.concat([
      frame(FRAME.headers, FLAG.endHeaders, stream, OK_HEADERS),
      frame(FRAME.data, FLAG.endStream, stream, Buffer.alloc(0)),
    ]),
  "an OK with no message": (stream) =>
    Buffer.concat([
      frame(FRAME.headers, FLAG.endHeaders, stream, OK_HEADERS),
      frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, OK_TRAILERS),
    ]),
  "an OK with half a message": (stream) =>
    Buffer.concat([
      frame(FRAME.headers, FLAG.endHeaders, stream, OK_HEADERS),
      frame(FRAME.data, 0, stream, Buffer.from([0, 0, 0, 0, 9, 1])),
      frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, OK_TRAILERS),
    ]),
  "two messages": (stream) =>
    Buffer.concat([
      frame(FRAME.headers, FLAG.endHeaders, stream, OK_HEADERS),
      frame(FRAME.data, 0, stream, Buffer.concat([withPrefix(Buffer.alloc(0)), withPrefix(Buffer.alloc(0))])),
    ]),
  "a compressed message": (stream) =>
    Buffer.concat([
      frame(FRAME.headers, FLAG.endHeaders, stream, OK_HEADERS),
      frame(FRAME.data, 0, stream, Buffer.from([1, 0, 0, 0, 0])),
    ]),
  "a message that is none": (stream) =>
    Buffer.concat([
      frame(FRAME.headers, FLAG.endHeaders, stream, OK_HEADERS),
      frame(FRAME.data, 0, stream, withPrefix(Buffer.from([0x0a, 0xff]))),
    ]),
  "an HTTP error": (stream) => frame(FRAME.headers, FLAG.endHeaders, stream, encodeHeaders([":status", "503"])),
  "a reset": (stream) => frame(FRAME.resetStream, 0, stream, uint32(2)),
};

for (const [what, hostile] of Object.entries(HOSTILE)) {
  test(`${what}: the call fails, the next one works`, async (context) => {
    const { client, serveRaw } = bench(context);
    let requests = 0;
    await serveRaw((socket) =>
      rawServer(socket, (stream) => {
        requests += 1;
        socket.write(requests === 1 ? hostile(stream) : reply(stream, "fine"));
      }),
    );
    await assert.rejects(client.unary(echo, {}, TIMEOUT_MS, never), isPicoletError);
    assert.equal((await client.unary(echo, {}, TIMEOUT_MS, never)).text, "fine");
  });
}

test("any bytes from the server end in an error that is ours", async (context) => {
  const { client, clock, serveRaw } = bench(context);
  let noise = Buffer.alloc(0);
  await serveRaw((socket) =>
    rawServer(socket, () => {
      socket.write(noise);
      socket.end();
    }),
  );
  const framed = fc
    .tuple(fc.nat(10), fc.nat(255), fc.constantFrom(0, 1, 3), fc.uint8Array({ maxLength: 60 }))
    .map(([type, flags, stream, payload]) => frame(type, flags, stream, payload));
  await fc.assert(
    fc.asyncProperty(fc.array(framed, { maxLength: 12 }), async (frames) => {
      noise = Buffer.concat(frames);
      await client.unary(echo, {}, TIMEOUT_MS, never).catch((error) => assert.ok(isPicoletError(error), String(error)));
      await clock.advance(millis(500));
    }),
    { numRuns: 200 },
  );
});

test("a message larger than the limit is refused both ways", async (context) => {
  const { client, serve } = bench(context, { maxMessageBytes: 1_000 });
  await serve((stream) => answer(stream, withPrefix(Text.encode({ text: "x".repeat(2_000) }))));
  await assert.rejects(client.unary(echo, {}, TIMEOUT_MS, never), code("resource_exhausted"));
  await assert.rejects(client.unary(echo, { text: "x".repeat(2_000) }, TIMEOUT_MS, never), code("resource_exhausted"));
});

test("a stream of responses comes in order, ends, and holds its sender back while there is no reader", async (context) => {
  const { client, serve } = bench(context);
  const total = 400;
  let sent = 0;
  await serve((stream) => {
    stream.respond(HEADERS, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    const send = (): void => {
      while (sent < total) {
        sent += 1;
        if (!stream.write(withPrefix(Text.encode({ text: String(sent), blob: Buffer.alloc(10_000) })))) {
          stream.once("drain", send);
          return;
        }
      }
      stream.end();
    };
    send();
  });
  let read = 0;
  for await (const each of client.serverStream(echo, {}, undefined, never)) {
    read += 1;
    assert.equal(each.text, String(read));
    if (read === 1) {
      // Until the sender stops: there is no reader, so it cannot continue.
      for (let before = -1; before !== sent; ) {
        before = sent;
        for (let turn = 0; turn < 50; turn += 1) await new Promise(setImmediate);
      }
      assert.ok(sent < total / 2, `${sent} of ${total} were sent while one was read`);
    }
  }
  assert.equal(read, total);
});

test("a sender that does not heed the window loses the connection, and its earlier data is kept", async (context) => {
  const { client, serveRaw } = bench(context);
  const closed = Promise.withResolvers<void>();
  const piece = withPrefix(Text.encode({ blob: Buffer.alloc(16_000) }));
  await serveRaw((socket) => {
    socket.on("close", () => closed.resolve());
    rawServer(socket, (stream) => {
      socket.write(frame(FRAME.headers, FLAG.endHeaders, stream, OK_HEADERS));
      for (let count = 0; count < 80; count += 1) socket.write(frame(FRAME.data, 0, stream, piece));
    });
  });
  const responses = client.serverStream(echo, {}, undefined, never);
  await closed.promise;
  let read = 0;
  await assert.rejects(async () => {
    for await (const _ of responses) read += 1;
  }, code("unavailable"));
  assert.ok(read >= 16 && read < 50, `${read} messages`);
});

test("a window that the server changes midway counts for the streams it has", async (context) => {
  const { client, serveRaw } = bench(context);
  const window = (bytes: number): Buffer =>
    frame(FRAME.settings, 0, 0, Buffer.concat([Buffer.from([0, 4]), uint32(bytes)]));
  await serveRaw((socket) => {
    socket.write(window(0));
    let received = 0;
    socket.on("data", (chunk) => {
      received += chunk.length;
      if (received > 50_000) socket.write(reply(1, "went through"));
    });
    rawServer(socket, () => {
      setImmediate(() => {
        assert.ok(received < 500, "nothing goes into a window of nothing");
        socket.write(window(60_000));
      });
    });
  });
  const call = client.duplex(echo, TIMEOUT_MS, never);
  const replies = call.responses[Symbol.asyncIterator]();
  await call.send({ blob: Buffer.alloc(50_000) });
  assert.equal((await replies.next()).value.text, "went through");
});

test("a stream that ends within a message is no good end", async (context) => {
  const { client, serveRaw } = bench(context);
  await serveRaw((socket) =>
    rawServer(socket, (stream) =>
      socket.write(
        Buffer.concat([
          frame(FRAME.headers, FLAG.endHeaders, stream, OK_HEADERS),
          frame(FRAME.data, 0, stream, Buffer.from([0, 0, 0, 0, 9, 1])),
          frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, OK_TRAILERS),
        ]),
      ),
    ),
  );
  await assert.rejects(async () => {
    for await (const _ of client.serverStream(echo, {}, undefined, never)) assert.fail("no message is whole");
  }, code("corrupt"));
});

test("leaving a stream early resets it", async (context) => {
  const { client, serve } = bench(context);
  const closed = Promise.withResolvers<number>();
  await serve((stream) => {
    stream.respond(HEADERS);
    stream.write(withPrefix(Text.encode({ text: "one" })));
    stream.on("close", () => closed.resolve(stream.rstCode));
  });
  for await (const each of client.serverStream(echo, {}, undefined, never)) {
    assert.equal(each.text, "one");
    break;
  }
  assert.equal(await closed.promise, constants.NGHTTP2_CANCEL);
});

test("a stream both ways: each message is echoed before the next is sent, then both ends close", async (context) => {
  const { client, serve } = bench(context);
  await serve((stream) => {
    stream.respond(HEADERS, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.on("data", (part: Buffer) => stream.write(part));
    stream.on("end", () => stream.end());
  });
  const call = client.duplex(echo, TIMEOUT_MS, never);
  const replies = call.responses[Symbol.asyncIterator]();
  for (const text of ["one", "two", "three"]) {
    await call.send({ text });
    assert.equal((await replies.next()).value.text, text);
  }
  await call.send({ blob: Buffer.alloc(200_000) });
  assert.equal((await replies.next()).value.blob.length, 200_000);
  await call.endRequests();
  assert.equal((await replies.next()).done, true);
});

test("memory stays flat over tens of thousands of calls", async (context) => {
  const { client, serve } = bench(context);
  const body = withPrefix(Text.encode({ blob: Buffer.alloc(3_000) }));
  await serve((stream) => answer(stream, body));
  const run = async (calls: number): Promise<void> => {
    for (let call = 0; call < calls; call += 1) await client.unary(echo, { text: "x" }, TIMEOUT_MS, never);
  };
  await run(500);
  const before = heldMemory();
  await run(4_000);
  const after = heldMemory();
  assert.ok(after.buffers - before.buffers < 1 << 20, `${after.buffers - before.buffers} bytes more of buffers`);
  assert.ok(after.heap - before.heap < 4 << 20, `${after.heap - before.heap} bytes more of heap`);
});
