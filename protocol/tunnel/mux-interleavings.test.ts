/**
 * Two ends of a tunnel over a line with random latency and rate, on virtual time, with random traffic at both: streams
 * of every lane, written and read at random paces, ended, reset, given up; messages; pings. One seed is one schedule;
 * TUNNEL_SEEDS widens, TUNNEL_SEED repeats one.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { type JoinedMuxes, joinMuxes } from "@picolet/test/support/unit/tunnel/memory-link.ts";
import { isPicoletError } from "../errors.ts";
import { millis, type Random } from "../ports.ts";
import { LANES, MAX_FRAME_BYTES } from "./frames.ts";
import type { TunnelMessage } from "./messages.ts";
import type { Mux } from "./mux.ts";
import type { IncomingStream, Lane, TunnelStream } from "./stream.ts";

const SEEDS = Number(process.env.TUNNEL_SEEDS ?? 40);
const NEVER = new AbortController().signal;
/** The largest window there is, and a block of the buffer. */
const MAX_BUFFERED = 262_144 + 1024;
/** Bounds what a mux may queue in its link: a link's buffer and a frame. */
const MAX_IN_LINK = 2 * MAX_FRAME_BYTES;

const patternAt = (stream: number, at: number): number => (stream * 37 + at * 11 + (at >> 8)) & 0xff;

/** One pair of ends and what they have received. */
class Board {
  readonly clock: VirtualClock;
  readonly random: Random;
  readonly bytesPerMs: number;
  readonly maxLatencyMs: number;
  readonly ends: JoinedMuxes;
  readonly sent = { agent: 0, hub: 0 };
  readonly got = { agent: 0, hub: 0 };
  readonly buffered = new Set<{ readonly bufferedBytes: number }>();
  readonly tasks: Promise<void>[] = [];
  finished = 0;
  reset = 0;
  rejected = 0;
  maxRtt = 0;

  constructor(seed: number) {
    this.random = seededRandom(seed);
    this.clock = new VirtualClock(undefined, this.random);
    this.bytesPerMs = 10 ** this.between(0.5, 4);
    this.maxLatencyMs = this.between(0, 500);
    const line = { bytesPerMs: this.bytesPerMs, latencyMs: () => this.between(0, this.maxLatencyMs) };
    const end = (name: "agent" | "hub") => ({
      onMessage: (message: TunnelMessage) => this.#onMessage(name, message),
      onStream: (stream: IncomingStream) => this.#onStream(stream),
    });
    this.ends = joinMuxes(this.clock, new RecordedLog(), line, { agent: end("agent"), hub: end("hub") }, NEVER);
  }

  between(least: number, most: number): number {
    return least + this.random.next() * (most - least);
  }

  #onMessage(end: "agent" | "hub", message: TunnelMessage): void {
    assert.ok(message.kind === "eventsAck" || message.kind === "drain");
    const number = message.kind === "eventsAck" ? message.sequence : message.reconnectAfterMs;
    if (message.kind !== "eventsAck") return;
    this.got[end] += 1;
    assert.equal(number, this.got[end], "messages of a lane keep their order");
  }

  #onStream(incoming: IncomingStream): void {
    const lot = this.random.next();
    if (lot < 0.1) {
      incoming.reject({ code: "not_found", message: "no" });
      return;
    }
    const stream = incoming.accept({ lot });
    this.start(this.#use(stream));
  }

  /** Failures are checked after all tasks have ended. */
  start(task: Promise<void>): void {
    task.catch(() => undefined);
    this.tasks.push(task);
  }

  /** Everything that was started, and what that started. */
  async settled(): Promise<void> {
    for (let count = -1; count !== this.tasks.length; ) {
      count = this.tasks.length;
      await Promise.all(this.tasks);
    }
  }

  /** Opens a stream, and uses it. */
  async open(mux: Mux, lane: Lane): Promise<void> {
    const abort = new AbortController();
    const isImpatient = this.random.next() < 0.1;
    if (isImpatient)
      this.clock.sleep(millis(this.between(0, 400)), NEVER).then(
        () => abort.abort(),
        () => undefined,
      );
    try {
      const stream = await mux.open("exec", { lane }, lane, isImpatient ? abort.signal : NEVER);
      await this.#use(stream);
    } catch (error) {
      assert.ok(isPicoletError(error) && ["not_found", "cancelled", "failed"].includes(error.code), String(error));
      this.rejected += 1;
    }
  }

  async #use(stream: TunnelStream): Promise<void> {
    this.buffered.add(stream as unknown as { readonly bufferedBytes: number });
    const length = Math.floor(10 ** this.between(0, 5.5));
    const resetAt = this.random.next() < 0.15 ? Math.floor(this.between(0, length)) : undefined;
    try {
      await Promise.all([this.#write(stream, length, resetAt), this.#read(stream)]);
      this.finished += 1;
    } catch (error) {
      assert.ok(isPicoletError(error) && ["failed", "cancelled"].includes(error.code), String(error));
      this.reset += 1;
    }
  }

  async #write(stream: TunnelStream, length: number, resetAt: number | undefined): Promise<void> {
    for (let at = 0; at < length; ) {
      const size = Math.min(length - at, Math.ceil(10 ** this.between(0, 5)));
      const bytes = Uint8Array.from({ length: size }, (_, index) => patternAt(stream.id, at + index));
      if (resetAt !== undefined && at >= resetAt) stream.reset({ code: "failed", message: "by lot" });
      await stream.write(bytes, NEVER);
      at += size;
      if (this.random.next() < 0.2) await this.clock.sleep(millis(this.between(0, 50)), NEVER);
    }
    stream.end();
  }

  async #read(stream: TunnelStream): Promise<void> {
    const pause = this.random.next() < 0.3 ? this.between(0, 200) : 0;
    let at = 0;
    for (let bytes = await stream.read(NEVER); bytes !== undefined; bytes = await stream.read(NEVER)) {
      for (const byte of bytes) {
        if (byte !== patternAt(stream.id, at)) assert.fail(`byte ${at} of stream ${stream.id} is not what was sent`);
        at += 1;
      }
      if (pause > 0) await this.clock.sleep(millis(pause), NEVER);
    }
  }

  async ping(mux: Mux): Promise<void> {
    try {
      this.maxRtt = Math.max(this.maxRtt, await mux.ping(NEVER));
    } catch (error) {
      assert.ok(isPicoletError(error, "resource_exhausted"), String(error));
    }
  }

  check(): void {
    const { agent, hub, agentLink, hubLink } = this.ends;
    assert.equal(agent.closed.aborted || hub.closed.aborted, false, String(agent.closed.reason ?? hub.closed.reason));
    assert.ok(Math.max(agentLink.maxBufferedBytes, hubLink.maxBufferedBytes) <= MAX_IN_LINK);
    for (const { bufferedBytes } of this.buffered) assert.ok(bufferedBytes <= MAX_BUFFERED);
  }
}

async function play(seed: number): Promise<void> {
  const board = new Board(seed);
  const { agent, hub } = board.ends;
  const steps = 60;
  for (let step = 0; step < steps; step += 1) {
    const mux = board.random.next() < 0.3 ? agent : hub;
    const lot = board.random.next();
    const lane = LANES[Math.floor(board.random.next() * LANES.length)] ?? "bulk";
    const end = mux === agent ? "hub" : "agent";
    if (lot < 0.4 && mux.streamCount < 24) board.start(board.open(mux, lane));
    else if (lot < 0.7) {
      board.sent[end] += 1;
      mux.send({ kind: "eventsAck", sequence: board.sent[end] });
    } else if (lot < 0.8)
      mux.send({ kind: "drain", reconnectAfterMs: step, reason: "x".repeat(Math.floor(board.between(0, 1024))) });
    else board.start(board.ping(mux));
    await board.clock.advance(millis(board.between(0, 100)));
    board.check();
  }
  // All comes to its end by itself, however slow the line is.
  let isDone = false;
  const done = board.settled().finally(() => {
    isDone = true;
  });
  done.catch(() => undefined);
  while (!isDone) {
    if (!(await board.clock.step())) await board.clock.settle();
    board.check();
    if (board.clock.sleeping === 0 && !isDone) {
      await board.clock.settle();
      assert.ok(isDone || board.clock.sleeping > 0, "all tasks wait, and for nothing that will come");
    }
  }
  await done;
  await board.clock.advance(millis(60_000));
  assert.deepEqual(board.got, board.sent);
  assert.equal(agent.streamCount + hub.streamCount, 0);
  // Each way: the other end's buffer and frame before it, and our own; then the line.
  const most = 2 * (MAX_IN_LINK / board.bytesPerMs + board.maxLatencyMs) + 4 * (MAX_IN_LINK / board.bytesPerMs);
  assert.ok(board.maxRtt <= most, `a ping took ${board.maxRtt} ms of ${most}`);
}

const only = process.env.TUNNEL_SEED;
const seeds = only === undefined ? Array.from({ length: SEEDS }, (_, index) => index + 1) : [Number(only)];
for (const seed of seeds) test(`a tunnel keeps its word, seed ${seed}`, () => play(seed));
