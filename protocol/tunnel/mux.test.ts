import assert from "node:assert/strict";
import { test } from "node:test";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import {
  type Ends,
  type JoinedMuxes,
  joinMuxes,
  type LineInit,
} from "@picolet/test/support/unit/tunnel/memory-link.ts";
import { isPicoletError, PicoletError } from "../errors.ts";
import { millis, seconds } from "../ports.ts";
import { decodeFrame, encodeFrame, type Frame, MAX_FRAME_BYTES } from "./frames.ts";
import type { TunnelMessage } from "./messages.ts";
import type { IncomingStream, TunnelStream } from "./stream.ts";
import { MAX_STREAMS } from "./stream-table.ts";

const never = new AbortController().signal;
const FAST: LineInit = { latencyMs: () => 10, bytesPerMs: 10_000 };

interface Pair extends JoinedMuxes {
  readonly clock: VirtualClock;
  readonly messages: TunnelMessage[];
  readonly offered: IncomingStream[];
}

/** Joins two ends. Messages that arrive are in `messages`; streams that the hub opens are in `offered`. */
function pair(line: LineInit = FAST, onStream?: (stream: IncomingStream) => void): Pair {
  const clock = new VirtualClock();
  const messages: TunnelMessage[] = [];
  const offered: IncomingStream[] = [];
  const end = {
    onMessage: (message: TunnelMessage) => void messages.push(message),
    onStream: onStream ?? ((stream: IncomingStream) => void offered.push(stream)),
  };
  const ends: Ends = { agent: end, hub: end };
  return { ...joinMuxes(clock, new RecordedLog(), line, ends, never), clock, messages, offered };
}

async function opened(
  joined: Pair,
  lane: "interactive" | "bulk" | "logs" = "interactive",
): Promise<[TunnelStream, TunnelStream]> {
  const opening = joined.hub.open("exec", { pod: "web" }, lane, never);
  await joined.clock.advance(millis(100));
  const incoming = joined.offered.at(-1);
  assert.ok(incoming);
  const there = incoming.accept({ mode: "raw" });
  await joined.clock.advance(millis(100));
  return [await opening, there];
}

const bytesOf = (length: number, seed = 1): Uint8Array =>
  Uint8Array.from({ length }, (_, index) => (index * 31 + seed) & 0xff);

async function readAll(stream: TunnelStream): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for (let next = await stream.read(never); next !== undefined; next = await stream.read(never)) chunks.push(next);
  return Buffer.concat(chunks);
}

test("messages arrive whole and in order", async () => {
  const joined = pair();
  joined.agent.send({ kind: "desiredAck", revision: 7 });
  joined.agent.send({ kind: "resync" });
  await joined.clock.advance(seconds(1));
  assert.deepEqual(joined.messages, [{ kind: "desiredAck", revision: 7 }, { kind: "resync" }]);
});

test("a message of a megabyte goes in parts, and a ping passes between them", async () => {
  const joined = pair({ latencyMs: () => 10, bytesPerMs: 100 });
  const object = { data: "x".repeat(1_000_000) };
  const upserts = [{ key: "Secret/default/big", hash: new Uint8Array(16), object }];
  const message = {
    kind: "desired",
    revision: 1,
    upserts,
    deletes: [],
    last: true,
    digest: new Uint8Array(16),
  } as const;
  joined.hub.send(message);
  const rtt = joined.hub.ping(never);
  await joined.clock.advance(seconds(1));
  // 32 KiB of the message are before it at most.
  assert.ok((await rtt) < 400, String(await rtt));
  assert.deepEqual(joined.messages, []);
  await joined.clock.advance(seconds(15));
  assert.deepEqual(joined.messages, [message]);
});

test("a stream carries bytes both ways and ends each way by itself", async () => {
  const joined = pair();
  const [here, there] = await opened(joined);
  const sent = bytesOf(300_000);
  const writing = here.write(sent, never).then(() => here.end());
  const received = readAll(there);
  await joined.clock.advance(seconds(5));
  await writing;
  assert.deepEqual(Buffer.from(await received), Buffer.from(sent));
  await there.write(bytesOf(5), never);
  there.end();
  const answer = readAll(here);
  await joined.clock.advance(seconds(1));
  assert.deepEqual(Buffer.from(await answer), Buffer.from(bytesOf(5)));
  assert.equal(joined.agent.streamCount, 0);
  assert.equal(joined.hub.streamCount, 0);
  assert.equal(here.closed.aborted, false);
});

test("the opener gets the reply, the other end the parameters", async () => {
  const joined = pair();
  const opening = joined.hub.open("kubelet", { method: "GET", path: "/pods" }, "bulk", never);
  await joined.clock.advance(seconds(1));
  assert.deepEqual(joined.offered[0]?.params, { method: "GET", path: "/pods" });
  assert.equal(joined.offered[0]?.kind, "kubelet");
  joined.offered[0]?.accept({ status: 200, contentType: "application/json" });
  await joined.clock.advance(seconds(1));
  assert.deepEqual((await opening).reply, { status: 200, contentType: "application/json" });
});

test("a rejection is what open throws, and only that", async () => {
  const joined = pair();
  const opening = joined.hub.open("exec", {}, "interactive", never);
  await joined.clock.advance(seconds(1));
  joined.offered[0]?.reject({ code: "not_found", message: "no such pod" });
  const refused = assert.rejects(
    opening,
    (error) => isPicoletError(error, "not_found") && /no such pod/.test(error.message),
  );
  await joined.clock.advance(seconds(1));
  await refused;
  assert.equal(joined.hub.closed.aborted, false);
  assert.equal(joined.hub.streamCount + joined.agent.streamCount, 0);
});

test("a reader that stops holds up its own stream and no other", async () => {
  const joined = pair();
  const [stuck, unread] = await opened(joined, "logs");
  const [lively, read] = await opened(joined, "logs");
  const blocked = unread.write(bytesOf(1_000_000), never);
  let isBlocked = true;
  blocked.then(
    () => (isBlocked = false),
    () => undefined,
  );
  const sent = bytesOf(2_000_000, 3);
  const writing = read.write(sent, never).then(() => read.end());
  const received = readAll(lively);
  await joined.clock.advance(seconds(30));
  await writing;
  assert.equal((await received).length, sent.length);
  assert.ok(isBlocked);
  assert.equal((stuck as unknown as { bufferedBytes: number }).bufferedBytes, 131_072);
});

test("while bulk floods, a status waits behind 32 KiB at most", async () => {
  const bytesPerMs = 100;
  const joined = pair({ latencyMs: () => 10, bytesPerMs });
  const [bulk, sink] = await opened(joined, "bulk");
  bulk.write(bytesOf(2_000_000), never).catch(() => undefined);
  const draining = readAll(sink);
  draining.catch(() => undefined);
  await joined.clock.advance(seconds(2));
  joined.messages.length = 0;
  joined.hub.send({ kind: "statusesAck", sequence: 1, wantFull: [] });
  await joined.clock.advance(millis(32_768 / bytesPerMs + 10));
  assert.deepEqual(joined.messages, [{ kind: "statusesAck", sequence: 1, wantFull: [] }]);
  assert.ok(joined.hubLink.maxBufferedBytes <= 2 * MAX_FRAME_BYTES, String(joined.hubLink.maxBufferedBytes));
});

test("lanes share the link by weight, and none is starved", async () => {
  const joined = pair({ latencyMs: () => 1, bytesPerMs: 1000 });
  const got = { interactive: 0, logs: 0, bulk: 0 };
  for (const lane of ["bulk", "logs", "interactive"] as const) {
    const [from, to] = await opened(joined, lane);
    from.write(new Uint8Array(60_000_000), never).catch(() => undefined);
    const count = async (): Promise<void> => {
      for (let next = await to.read(never); next !== undefined; next = await to.read(never)) got[lane] += next.length;
    };
    count().catch(() => undefined);
  }
  got.interactive = 0;
  got.logs = 0;
  got.bulk = 0;
  await joined.clock.advance(seconds(20));
  const total = got.interactive + got.logs + got.bulk;
  assert.ok(total > 18_000_000, String(total));
  for (const [lane, weight] of [
    ["interactive", 8],
    ["logs", 4],
    ["bulk", 1],
  ] as const) {
    const share = (got[lane] / total) * 13;
    assert.ok(share > weight * 0.8 && share < weight * 1.25, `${lane}: ${share} of 13`);
  }
});

test("an opener that gives up before the answer leaves nothing", async () => {
  const joined = pair();
  const abort = new AbortController();
  const opening = joined.hub.open("logs", {}, "logs", abort.signal);
  const refused = assert.rejects(opening, (error) => isPicoletError(error, "cancelled"));
  await joined.clock.advance(seconds(1));
  abort.abort();
  await joined.clock.advance(seconds(1));
  await refused;
  assert.equal(joined.offered[0]?.closed.aborted, true);
  joined.offered[0]?.accept({});
  await joined.clock.advance(seconds(1));
  assert.equal(joined.hub.streamCount + joined.agent.streamCount, 0);
  assert.equal(joined.hub.closed.aborted || joined.agent.closed.aborted, false);
});

test("a reset reaches readers and writers of both ends with its reason", async () => {
  const joined = pair();
  const [here, there] = await opened(joined);
  const fails = [
    assert.rejects(here.read(never), (error) => isPicoletError(error, "failed")),
    assert.rejects(here.write(bytesOf(1_000_000), never), (error) => isPicoletError(error, "failed")),
  ];
  await joined.clock.advance(seconds(1));
  there.reset({ code: "something_new", message: "the container is gone" });
  await joined.clock.advance(seconds(1));
  await Promise.all(fails);
  assert.match(String(here.closed.reason), /the container is gone/);
  await assert.rejects(there.read(never), /the container is gone/);
  assert.equal(joined.hub.streamCount + joined.agent.streamCount, 0);
});

test("a write that is given up half sent ends its stream, one that was not begun does not", async () => {
  const joined = pair();
  const [here, there] = await opened(joined);
  const first = here.write(bytesOf(100_000), never);
  const abort = new AbortController();
  const second = here.write(bytesOf(10), abort.signal);
  const cancelledWrite = assert.rejects(second, (error) => isPicoletError(error, "cancelled"));
  abort.abort();
  await cancelledWrite;
  here.end();
  const all = readAll(there);
  await joined.clock.advance(seconds(1));
  await first;
  assert.equal((await all).length, 100_000);

  const [other, unread] = await opened(joined);
  const again = new AbortController();
  const half = assert.rejects(other.write(bytesOf(100_000), again.signal), (error) =>
    isPicoletError(error, "cancelled"),
  );
  await joined.clock.advance(seconds(1));
  again.abort();
  await half;
  await joined.clock.advance(seconds(1));
  assert.equal(unread.closed.aborted, true);
});

test("a peer that sends byte by byte makes us keep no more than a window", async () => {
  const joined = pair();
  const [here] = await opened(joined, "bulk");
  for (let index = 0; index < 262_144; index += 1) {
    joined.hub.receive(encodeFrame({ type: "data", id: here.id, bytes: Uint8Array.of(1) }));
  }
  assert.equal((await here.read(never))?.length, 1024);
  joined.hub.receive(encodeFrame({ type: "data", id: here.id, bytes: Uint8Array.of(1) }));
  assert.match(String(joined.hub.closed.reason), /1 bytes more than stream 2 has credit for/);
});

test("the end of a session is the end of all that waits in it", async () => {
  const joined = pair();
  const [here] = await opened(joined);
  const gone = (error: unknown): boolean => isPicoletError(error, "unavailable");
  const fails = [
    assert.rejects(here.read(never), gone),
    assert.rejects(here.write(bytesOf(1_000_000), never), gone),
    assert.rejects(joined.hub.open("logs", {}, "logs", never), gone),
    assert.rejects(joined.hub.ping(never), gone),
  ];
  joined.hub.close(new PicoletError("unavailable", "the link is gone"));
  await Promise.all(fails);
  assert.ok(gone(here.closed.reason));
  assert.throws(() => joined.hub.send({ kind: "eventsAck", sequence: 1 }), gone);
  assert.deepEqual(joined.hubLink.closedWith, { code: 1001, reason: "the link is gone" });
});

test("a farewell goes before everything that is queued", async () => {
  const joined = pair({ latencyMs: () => 1, bytesPerMs: 1 });
  const [bulk] = await opened(joined, "bulk");
  bulk.write(bytesOf(200_000), never).catch(() => undefined);
  const farewell = { kind: "refusal", code: "superseded", message: "another session", retryAfterMs: 5 } as const;
  joined.hub.close(new PicoletError("unavailable", "superseded"), farewell);
  await joined.clock.advance(seconds(60));
  assert.deepEqual(joined.messages, [farewell]);
});

test("more streams than the limit are refused here, without harm to the session", async () => {
  const joined = pair();
  const openings = Array.from({ length: MAX_STREAMS.hub }, () => joined.hub.open("logs", {}, "logs", never));
  for (const each of openings) each.catch(() => undefined);
  await assert.rejects(joined.hub.open("logs", {}, "logs", never), (error) =>
    isPicoletError(error, "resource_exhausted"),
  );
  await joined.clock.advance(seconds(5));
  assert.equal(joined.offered.length, MAX_STREAMS.hub);
  assert.equal(joined.agent.closed.aborted, false);
});

test("parameters that fit no frame are refused here", async () => {
  const { hub } = pair();
  const params = { command: ["x".repeat(20_000)] };
  await assert.rejects(hub.open("exec", params, "interactive", never), (error) =>
    isPicoletError(error, "resource_exhausted"),
  );
  assert.equal(hub.streamCount, 0);
});

test("a full queue of messages refuses the next one", () => {
  const joined = pair({ latencyMs: () => 1, bytesPerMs: 0.001 });
  const fill = (): void => {
    for (let index = 0; index < 10_000; index += 1)
      joined.hub.send({ kind: "drain", reconnectAfterMs: 1, reason: "x".repeat(1000) });
  };
  assert.throws(fill, (error) => isPicoletError(error, "resource_exhausted"));
  assert.equal(joined.hub.closed.aborted, false);
});

const error = { code: "failed", message: "" };
const one = Uint8Array.of(1);
/** Stream 2 is the hub's and open, 4 is offered, 6 never was; odd ids are the agent's. */
const VIOLATIONS: readonly (readonly [name: string, frame: Exclude<Frame, { type: "message" }>, reason: RegExp])[] = [
  ["data of a stream that never was", { type: "data", id: 6, bytes: one }, /data for stream 6, which never was/],
  ["data of a stream of our own that never was", { type: "data", id: 7, bytes: one }, /stream 7, which never was/],
  ["a second accept", { type: "accept", id: 2, reply: {} }, /accept for stream 2, which is open/],
  ["a second open", { type: "open", id: 2, kind: "logs", lane: "logs", params: {} }, /open of stream 2 after 4/],
  ["an open with our id", { type: "open", id: 9, kind: "logs", lane: "logs", params: {} }, /not the peer's to give/],
  ["data before the accept", { type: "data", id: 4, bytes: one }, /stream 4, which was not accepted/],
  ["a credit of nothing", { type: "credit", id: 2, bytes: 0 }, /credit of 0 bytes/],
  ["a credit without measure", { type: "credit", id: 2, bytes: 2 ** 40 }, /credit of 1099511627776 bytes/],
  ["a pong for no ping", { type: "pong", number: 5 }, /pong 5 for no ping/],
  ["no data", { type: "data", id: 2, bytes: new Uint8Array() }, /data frame: bytes: is empty/],
  ["an answer that is not ours to get", { type: "reject", id: 2, error }, /reject for stream 2/],
];
for (const [name, frame, reason] of VIOLATIONS) {
  test(`a violation ends the session: ${name}`, async () => {
    const joined = pair();
    await opened(joined);
    joined.hub.open("logs", {}, "logs", never).catch(() => undefined);
    await joined.clock.advance(seconds(1));
    const { agent, agentLink } = joined;
    agent.receive(encodeFrame(frame));
    assert.ok(isPicoletError(agent.closed.reason, "invalid"));
    assert.match(String(agent.closed.reason), reason);
    assert.equal(agentLink.closedWith?.code, 1002);
    await joined.clock.advance(seconds(1));
    const refusal = joined.messages.at(-1);
    assert.ok(refusal?.kind === "refusal" && refusal.code === "protocol" && reason.test(refusal.message));
  });
}

const MALFORMED: readonly (readonly [name: string, hex: string])[] = [
  ["nothing", ""],
  ["an empty array", "80"],
  ["no array", "a0"],
  ["an unknown frame", "8118ff"],
  ["an unknown message", "820018ff"],
  ["a tag", "c18101"],
  ["an indefinite array", "9f00ff"],
  ["an array longer than the frame", "9affffffff00"],
  ["bytes longer than the frame", "8305025affffffff00"],
  ["a number beyond 2^53", "82091bffffffffffffffff"],
  ["bytes after the end", "82090100"],
  ["a stream 0", "820600"],
  ["a stream of a half", "8206f93800"],
  ["a word that is none", "850202000241ff"],
];
for (const [name, hex] of MALFORMED) {
  test(`a malformed frame ends the session: ${name}`, () => {
    const { agent } = pair();
    agent.receive(Buffer.from(hex, "hex"));
    assert.ok(isPicoletError(agent.closed.reason, "invalid"), String(agent.closed.reason));
  });
}

test("a frame that is too long ends the session before it is parsed", () => {
  const { agent } = pair();
  agent.receive(new Uint8Array(MAX_FRAME_BYTES + 1));
  assert.match(String(agent.closed.reason), /longer than 16384 bytes/);
});

test("frames for a stream that was closed a moment ago are passed over", async () => {
  const joined = pair();
  const [here, there] = await opened(joined);
  here.reset({ code: "cancelled", message: "enough" });
  const { id } = there;
  for (const frame of [
    { type: "data", id, bytes: one },
    { type: "credit", id, bytes: 5 },
    { type: "end", id },
    { type: "reset", id, error },
  ] as const) {
    joined.hub.receive(encodeFrame(frame));
  }
  await joined.clock.advance(seconds(1));
  assert.equal(joined.hub.closed.aborted || joined.agent.closed.aborted, false);
});

test("a flood of pings is answered by few pongs", async () => {
  const joined = pair({ latencyMs: () => 1, bytesPerMs: 0.01 });
  joined.hub.send({ kind: "drain", reconnectAfterMs: 1, reason: "x".repeat(1000) });
  for (let number = 1; number <= 20; number += 1)
    joined.hub.send({ kind: "drain", reconnectAfterMs: 1, reason: "x".repeat(1000) });
  const before = joined.hub.framesSent;
  for (let number = 1; number <= 10_000; number += 1) joined.hub.receive(encodeFrame({ type: "ping", number }));
  assert.equal(joined.hub.framesSent, before);
  await joined.clock.advance(seconds(10_000));
  assert.equal(decodeFrame(encodeFrame({ type: "pong", number: 1 })).type, "pong");
  assert.equal(joined.hub.framesSent, 22);
});

test("a large message may not be broken into by another of its lane", () => {
  const { agent } = pair();
  agent.receive(encodeFrame({ type: "part", lane: "status", isLast: false, bytes: one }));
  agent.receive(Buffer.from("83000901", "hex"));
  assert.match(String(agent.closed.reason), /before the rest of another message/);
});

test("parts without end stop at the limit of a message", () => {
  const { hub } = pair();
  const bytes = new Uint8Array(16_000);
  let parts = 0;
  while (!hub.closed.aborted && parts < 1000) {
    hub.receive(encodeFrame({ type: "part", lane: "status", isLast: false, bytes }));
    parts += 1;
  }
  assert.equal(parts, Math.floor((512 * 1024) / 16_000) + 1);
});

test("a mistake of ours is not blamed on the peer", () => {
  const clock = new VirtualClock();
  const broken = {
    onMessage: () => {
      throw new TypeError("a bug");
    },
    onStream: () => undefined,
  };
  const { agent } = joinMuxes(clock, new RecordedLog(), FAST, { agent: broken, hub: broken }, never);
  assert.throws(() => agent.receive(Buffer.from("820005", "hex")), /a bug/);
  assert.equal(agent.closed.aborted, false);
});

test("a deferred message follows the next frame, only the latest of each kind", async () => {
  const joined = pair();
  joined.hub.sendWithNext({ kind: "statusesAck", sequence: 1, wantFull: [] });
  joined.hub.sendWithNext({ kind: "eventsAck", sequence: 4 });
  joined.hub.sendWithNext({ kind: "statusesAck", sequence: 2, wantFull: [] });
  await joined.clock.advance(seconds(60));
  assert.deepEqual(joined.messages, []);
  const ping = joined.agent.ping(never);
  await joined.clock.advance(seconds(1));
  await ping;
  const acks = [
    { kind: "eventsAck", sequence: 4 },
    { kind: "statusesAck", sequence: 2, wantFull: [] },
  ];
  assert.deepEqual(joined.messages, acks);
});

test("a deferred message is replaced by one of its kind that is not deferred, and can be sent by itself", async () => {
  const joined = pair();
  joined.hub.sendWithNext({ kind: "statusesAck", sequence: 1, wantFull: [] });
  joined.hub.send({ kind: "statusesAck", sequence: 2, wantFull: ["u"] });
  joined.hub.sendWithNext({ kind: "eventsAck", sequence: 1 });
  await joined.clock.advance(seconds(1));
  assert.deepEqual(joined.messages, [{ kind: "statusesAck", sequence: 2, wantFull: ["u"] }]);
  joined.hub.sendRiders();
  await joined.clock.advance(seconds(1));
  assert.deepEqual(joined.messages.slice(1), [{ kind: "eventsAck", sequence: 1 }]);
});
