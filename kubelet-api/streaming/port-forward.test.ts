import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect as connectTo, createServer, type Server, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { pipePair } from "@picolet/test/support/unit/streaming/memory-pipe.ts";
import fc from "fast-check";
import { type BytePipe, SocketPipe } from "../pipes/byte-pipe.ts";
import { forwardPorts } from "./port-forward.ts";
import type { SpdyHeaders } from "./spdy/header-block.ts";
import { SpdyConnection } from "./spdy/spdy-connection.ts";
import type { SpdyStream } from "./spdy/spdy-stream.ts";

const NEVER = new AbortController().signal;

/** A client of forwarded ports, whose connections go to `listener` where they ask for its port. */
async function forwarded(t: TestContext, listener: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  const accepted: Socket[] = [];
  const made: Socket[] = [];
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    accepted.push(socket);
    // Its other end is gone: with allowHalfOpen it is not closed by that.
    for (const event of ["end", "error", "close"]) socket.once(event, () => sockets.delete(socket));
    listener(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const connect = async (wanted: number): Promise<BytePipe> => {
    if (wanted !== port) throw new PicoletError("not_found", `pod "web" is not served on port ${wanted}`);
    const socket = connectTo({ port, host: "127.0.0.1", allowHalfOpen: true });
    made.push(socket);
    await once(socket, "connect");
    return new SocketPipe(socket);
  };
  const clock = new VirtualClock();
  const { one, other } = pipePair();
  const client = new SpdyConnection(one, { role: "client" });
  const running = client.run(NEVER);
  const serving = forwardPorts({ clock, connect }, other, NEVER);
  t.after(async () => {
    client[Symbol.dispose]();
    await Promise.all([running, serving]);
    assert.equal(clock.sleeping, 0, "nothing waits any more");
    for (const socket of sockets) await gone(socket);
    for (const socket of accepted) socket.destroy();
    server.close();
    await once(server, "close");
  });
  const open = (headers: SpdyHeaders): Promise<SpdyStream> => client.open(headers, NEVER);
  return { port, clock, open, client, serving, made };
}

/** Until the other end is not there any more. */
const gone = (socket: Socket): Promise<unknown> =>
  socket.readableEnded || socket.destroyed
    ? Promise.resolve()
    : Promise.race([once(socket.resume(), "end"), once(socket, "close")]).catch(() => undefined);

const headersOf = (type: string, port: number, requestid?: string): SpdyHeaders => ({
  streamtype: type,
  port: String(port),
  ...(requestid === undefined ? {} : { requestid }),
});

async function all(stream: SpdyStream): Promise<string> {
  const pieces: Uint8Array[] = [];
  for (let piece = await stream.read(NEVER); piece !== undefined; piece = await stream.read(NEVER)) pieces.push(piece);
  return Buffer.concat(pieces).toString("latin1");
}

test("each pair of streams is a connection of its own, in any order, half-closed either way", async (t) => {
  const { port, open } = await forwarded(t, (socket) => socket.pipe(socket));
  const talk = async (index: number): Promise<void> => {
    const order = index % 2 === 0 ? ["data", "error"] : ["error", "data"];
    const streams = await Promise.all(order.map((type) => open(headersOf(type, port, String(index)))));
    const [data, error] = (index % 2 === 0 ? streams : streams.toReversed()) as [SpdyStream, SpdyStream];
    error.end();
    const text = randomBytes(100_000).toString("hex");
    const answer = all(data);
    await data.write(Buffer.from(text), NEVER);
    data.end();
    assert.equal(await answer, text);
    assert.equal(await all(error), "");
  };
  await Promise.all(Array.from({ length: 8 }, (_, index) => talk(index)));
  // As clients did before requests had numbers.
  const [error, data] = [await open(headersOf("error", port)), await open(headersOf("data", port))];
  await data.write(Buffer.from("one"), NEVER);
  data.end();
  assert.deepEqual([await all(data), await all(error)], ["one", ""]);
});

test("a server that ends first has still all that the client has to say", async (t) => {
  const heard = Promise.withResolvers<string>();
  const { port, open } = await forwarded(t, (socket) => {
    let text = "";
    socket.end("done");
    socket.on("data", (piece) => {
      text += piece;
    });
    socket.on("end", () => heard.resolve(text));
  });
  const [, data] = [await open(headersOf("error", port, "0")), await open(headersOf("data", port, "0"))];
  assert.equal(await all(data), "done");
  await data.write(Buffer.from("and more"), NEVER);
  data.end();
  assert.equal(await heard.promise, "and more");
});

test("an error is sent on the stream for errors, and the others go on", async (t) => {
  const { port, open } = await forwarded(t, (socket) => socket.pipe(socket));
  const [error, data] = [await open(headersOf("error", 9, "0")), await open(headersOf("data", 9, "0"))];
  assert.equal(await all(error), 'error forwarding port 9: pod "web" is not served on port 9');
  assert.equal(await all(data), "");
  const [, next] = [await open(headersOf("error", port, "1")), await open(headersOf("data", port, "1"))];
  next.end();
  assert.equal(await all(next), "");
});

test("who gives a stream up, or goes, leaves no connection behind", async (t) => {
  const connected: Socket[] = [];
  const { port, open, client, serving, made } = await forwarded(t, (socket) => {
    connected.push(socket);
    socket.write("hello");
  });
  for (const id of ["0", "1"]) {
    const [, data] = [await open(headersOf("error", port, id)), await open(headersOf("data", port, id))];
    assert.equal(String(await data.read(NEVER)), "hello");
    if (id === "0") data.reset();
  }
  const [given, left] = connected as [Socket, Socket];
  await gone(given);
  // Not half-closed: a server that has nothing to say would keep it for ever.
  assert.deepEqual(
    made.map((socket) => socket.destroyed),
    [true, false],
  );
  assert.ok(!left.readableEnded && !left.destroyed);
  client[Symbol.dispose]();
  await serving;
  await gone(left);
});

test("a stream whose other one does not come is reset after 30 seconds", async (t) => {
  const { port, open, clock } = await forwarded(t, (socket) => socket.end());
  const alone = await open(headersOf("data", port, "7"));
  await clock.settle();
  await clock.advance(seconds(29));
  assert.ok(!alone.isReset);
  const reset = all(alone);
  await clock.advance(seconds(2));
  assert.equal(await reset, "");
  assert.ok(alone.isReset);
});

test("streams that belong to no connection are reset, with any headers", async (t) => {
  const { port, open } = await forwarded(t, (socket) => socket.pipe(socket));
  const first = await open(headersOf("error", port, "x"));
  const second = await open(headersOf("error", port, "x"));
  assert.equal(await all(second), "");
  assert.ok(second.isReset, "two of a kind");
  assert.ok(!first.isReset);
  const word = fc.stringMatching(/^[!-~]{0,80}$/);
  const headers = fc.record(
    {
      streamtype: fc.oneof(fc.constantFrom("data", "error", "stdin"), word),
      port: fc.oneof(fc.constantFrom("0", "-1", "65536", "1e3", "080", " 80", "99999"), word),
      requestid: fc.oneof(word, fc.constant("y".repeat(65))),
    },
    { requiredKeys: [] },
  );
  await fc.assert(
    fc.asyncProperty(headers, async (given) => {
      fc.pre(!/^[1-9]\d{0,4}$/.test(given.port ?? "") || Number(given.port) > 65_535);
      const stream = await open(given).catch(() => undefined);
      if (stream === undefined) return;
      assert.equal(await all(stream), "");
      assert.ok(stream.isReset);
    }),
    { numRuns: 60 },
  );
});
