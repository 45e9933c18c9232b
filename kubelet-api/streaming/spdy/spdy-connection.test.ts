import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { type TestContext, test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { pipePair } from "@picolet/test/support/unit/streaming/memory-pipe.ts";
import type { BytePipe } from "../../pipes/byte-pipe.ts";
import { MAX_UNREAD_BYTES } from "../../pipes/inbound-queue.ts";
import { HeaderPacker } from "./header-block.ts";
import { MAX_STREAMS, SpdyConnection } from "./spdy-connection.ts";
import {
  dataFrame,
  pingFrame,
  RESET,
  type SpdyFrame,
  SpdyFrameReader,
  synReplyFrame,
  synStreamFrame,
  windowUpdateFrame,
} from "./spdy-frames.ts";
import type { SpdyStream } from "./spdy-stream.ts";

const NEVER = new AbortController().signal;

async function readAll(stream: SpdyStream): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for (let piece = await stream.read(NEVER); piece !== undefined; piece = await stream.read(NEVER)) pieces.push(piece);
  return Buffer.concat(pieces);
}

const turns = async (count: number): Promise<void> => {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

/** A client and a server of ours; the server hands over the streams that are opened. */
function connected(t: TestContext, onStream: (stream: SpdyStream) => void) {
  const { one, other, sockets } = pipePair();
  const client = new SpdyConnection(one, { role: "client" });
  const server = new SpdyConnection(other, { role: "server", onStream });
  const running = [client.run(NEVER), server.run(NEVER)];
  t.after(async () => {
    client[Symbol.dispose]();
    server[Symbol.dispose]();
    await Promise.all(running);
  });
  return { client, server, sockets };
}

/** The other side of one connection, frame by frame. */
class Peer {
  readonly #pipe: BytePipe;
  readonly #reader = new SpdyFrameReader();
  readonly #frames: SpdyFrame[] = [];
  readonly packer = new HeaderPacker();

  constructor(pipe: BytePipe) {
    this.#pipe = pipe;
  }

  send(...frames: readonly Uint8Array[]): Promise<void> {
    return this.#pipe.write(Buffer.concat(frames), NEVER);
  }

  async next(): Promise<SpdyFrame | undefined> {
    for (;;) {
      const frame = this.#frames.shift();
      if (frame !== undefined) return frame;
      const bytes = await this.#pipe.read(NEVER);
      if (bytes === undefined) return undefined;
      for (const each of this.#reader.push(Buffer.from(bytes))) this.#frames.push(each);
    }
  }

  synStream(id: number): Buffer {
    return synStreamFrame(id, this.packer.pack({ streamtype: "stdin" }));
  }
}

function withPeer(t: TestContext, role: "client" | "server", onStream?: (stream: SpdyStream) => void) {
  const { one, other } = pipePair();
  const connection = new SpdyConnection(one, { role, ...(onStream === undefined ? {} : { onStream }) });
  const running = connection.run(NEVER);
  t.after(async () => {
    connection[Symbol.dispose]();
    await running;
  });
  return { connection, peer: new Peer(other) };
}

const settingsFrame = (window: number): Buffer => {
  const frame = Buffer.from([0x80, 3, 0, 4, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0]);
  frame.writeUInt32BE(window, 16);
  return frame;
};

test("streams carry bytes both ways and are closed by halves", async (t) => {
  const { client, server } = connected(t, async (stream) => {
    assert.equal(stream.headers.name, "ünï");
    const all = await readAll(stream);
    await stream.write(all, NEVER);
    stream.end();
  });
  const contents = Array.from({ length: 8 }, () => randomBytes(300 * KIBIBYTE));
  const answers = contents.map(async (content) => {
    const stream = await client.open({ name: "ünï" }, NEVER);
    await stream.write(content, NEVER);
    stream.end();
    return await readAll(stream);
  });
  for (const [index, answer] of (await Promise.all(answers)).entries())
    assert.ok(answer.equals(contents[index] ?? answer));
  await turns(5);
  assert.equal(client.streams + server.streams, 0);
});

test("a reader that stops holds up its writer, and what is held is bounded", async (t) => {
  const accepted = Promise.withResolvers<SpdyStream>();
  const { client } = connected(t, (stream) => accepted.resolve(stream));
  const stream = await client.open({}, NEVER);
  let written = 0;
  const writing = (async () => {
    for (; written < 4096 * KIBIBYTE; written += 32 * KIBIBYTE) await stream.write(Buffer.alloc(32 * KIBIBYTE), NEVER);
    stream.end();
  })();
  await turns(300);
  assert.ok(written <= MAX_UNREAD_BYTES + 192 * KIBIBYTE, `${written} bytes were taken`);
  assert.equal((await readAll(await accepted.promise)).length, 4096 * KIBIBYTE);
  await writing;
});

test("the end of the connection ends every stream; what came before can be read", async (t) => {
  const accepted = Promise.withResolvers<SpdyStream>();
  const { client, sockets } = connected(t, (stream) => accepted.resolve(stream));
  const stream = await client.open({}, NEVER);
  await stream.write(Buffer.from("last words"), NEVER);
  const far = await accepted.promise;
  await turns(3);
  sockets[0].destroy();
  assert.equal((await readAll(far)).toString(), "last words");
  await assert.rejects(far.write(Buffer.from("x"), NEVER), (error) => isPicoletError(error, "unavailable"));
  await assert.rejects(client.open({}, NEVER), (error) => isPicoletError(error, "unavailable"));
});

test("an unwanted stream is refused", async (t) => {
  const { client } = connected(t, (stream) => stream.reset());
  // It was accepted and reset at once, or reset before: both leave nothing.
  const stream = await client.open({}, NEVER).catch(() => undefined);
  assert.equal(stream === undefined ? undefined : await stream.read(NEVER), undefined);
  const { connection, peer } = withPeer(t, "server");
  await peer.send(peer.synStream(1));
  const frame = await peer.next();
  assert.ok(frame?.kind === "rstStream" && frame.status === RESET.refusedStream);
  assert.equal(connection.streams, 0);
});

test("windows are heeded and given back once the peer shows that it knows of them", async (t) => {
  const accepted = Promise.withResolvers<SpdyStream>();
  const { peer } = withPeer(t, "server", (stream) => accepted.resolve(stream));
  await peer.send(settingsFrame(10), peer.synStream(1));
  assert.equal((await peer.next())?.kind, "synReply");
  const stream = await accepted.promise;
  const writing = stream.write(Buffer.from("0123456789abcdef"), NEVER);
  const first = await peer.next();
  assert.ok(first?.kind === "data" && Buffer.from(first.bytes).toString() === "0123456789");
  await peer.send(windowUpdateFrame(1, 4));
  const second = await peer.next();
  assert.ok(second?.kind === "data" && Buffer.from(second.bytes).toString() === "abcd");
  await peer.send(windowUpdateFrame(1, 100));
  assert.equal((await peer.next())?.kind, "data");
  await writing;
  await peer.send(dataFrame(1, true, Buffer.alloc(40 * KIBIBYTE)));
  assert.equal((await readAll(stream)).length, 40 * KIBIBYTE);
  const updates = [await peer.next(), await peer.next()].map((frame) =>
    frame?.kind === "windowUpdate" ? frame.id : -1,
  );
  assert.deepEqual(updates.sort(), [0, 1]);
});

test("a peer without windows is sent none, and its reading is the only limit", async (t) => {
  const accepted = Promise.withResolvers<SpdyStream>();
  const { peer } = withPeer(t, "server", (stream) => accepted.resolve(stream));
  await peer.send(peer.synStream(1), dataFrame(1, true, Buffer.alloc(200 * KIBIBYTE)));
  const stream = await accepted.promise;
  assert.equal((await readAll(stream)).length, 200 * KIBIBYTE);
  const writing = stream.write(Buffer.alloc(200 * KIBIBYTE), NEVER).then(() => stream.end());
  let got = 0;
  for (let frame = await peer.next(); got < 200 * KIBIBYTE && frame !== undefined; frame = await peer.next()) {
    assert.ok(frame.kind === "synReply" || frame.kind === "data");
    if (frame.kind === "data") got += frame.bytes.length;
  }
  await writing;
});

test("pings are answered; one who sends them and reads nothing is not read for ever", async (t) => {
  const { peer } = withPeer(t, "server", () => undefined);
  await peer.send(pingFrame(7));
  const answer = await peer.next();
  assert.ok(answer?.kind === "ping" && answer.id === 7);
  let sent = 0;
  const flood = Buffer.concat(Array.from({ length: 1000 }, () => pingFrame(9)));
  const sending = (async () => {
    for (; sent < 200; sent += 1) await peer.send(flood);
  })();
  sending.catch(() => undefined);
  await turns(500);
  assert.ok(sent < 30, `${sent} thousand pings were taken`);
});

test("what breaks the rules ends the connection", async (t) => {
  const packer = new HeaderPacker();
  for (const frames of [
    [Buffer.from([0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1])],
    // Ids of the wrong side, and such that go back.
    [synStreamFrame(2, packer.pack({}))],
    [synStreamFrame(5, new HeaderPacker().pack({})), synStreamFrame(3, Buffer.of())],
    [synStreamFrame(1, Buffer.from("no zlib at all"))],
  ]) {
    const { connection, peer } = withPeer(t, "server", () => undefined);
    await peer.send(...frames);
    while ((await peer.next().catch(() => undefined)) !== undefined);
    assert.ok(connection.closed.aborted);
  }
});

test("a peer may not open streams without end", async (t) => {
  const { connection, peer } = withPeer(t, "server", () => undefined);
  const all = Array.from({ length: MAX_STREAMS + 1 }, (_, index) => peer.synStream(1 + index * 2));
  const sending = peer.send(...all);
  let refused: SpdyFrame | undefined;
  for (let replies = 0; refused === undefined; replies += 1) {
    assert.ok(replies <= MAX_STREAMS);
    const frame = await peer.next();
    if (frame?.kind === "rstStream") refused = frame;
  }
  assert.equal(refused.kind === "rstStream" ? refused.status : 0, RESET.refusedStream);
  assert.equal(connection.streams, MAX_STREAMS);
  await sending;
});

test("opening ends when the connection does, when it is refused, and when it is given up", async (t) => {
  const { connection, peer } = withPeer(t, "client");
  const refused = connection.open({}, NEVER);
  const syn = await peer.next();
  assert.ok(syn?.kind === "synStream" && syn.id === 1);
  await peer.send(Buffer.from([0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 3]));
  await assert.rejects(refused, (error) => isPicoletError(error, "unavailable"));
  const stop = new AbortController();
  const givenUp = connection.open({}, stop.signal);
  await peer.next();
  stop.abort();
  await assert.rejects(givenUp, (error) => isPicoletError(error, "cancelled"));
  assert.equal((await peer.next())?.kind, "rstStream");
  const accepted = connection.open({}, NEVER);
  await peer.next();
  await peer.send(synReplyFrame(5, peer.packer.pack({})));
  assert.equal((await accepted).id, 5);
  const lost = connection.open({}, NEVER);
  connection[Symbol.dispose]();
  await assert.rejects(lost, (error) => isPicoletError(error));
});
