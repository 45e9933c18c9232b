import { cancelled } from "../async/abort.ts";
import { describeError, PicoletError } from "../errors.ts";
import type { Clock, Log } from "../ports.ts";
import { decodeFrame, encodeFrame, type Frame, type StreamFrame } from "./frames.ts";
import { LaneScheduler } from "./lane-scheduler.ts";
import { unpackMessage } from "./message-codec.ts";
import { MessageAssembler, MessageQueue } from "./message-queue.ts";
import { LANE_OF, type Refusal, type TunnelMessage } from "./messages.ts";
import { checkSize, MuxStream, type StreamHost } from "./mux-stream.ts";
import { Pending } from "./pending.ts";
import type { IncomingStream, Lane, OpenedStream, StreamKind, StreamOpener } from "./stream.ts";

/** What carries the frames: a WebSocket of binary messages. */
export interface Link {
  /** Takes the bytes over. May call `drained` at once. */
  send(bytes: Uint8Array): void;
  /** Sent and not yet with the operating system. */
  readonly bufferedBytes: number;
  /** A WebSocket close code and a reason of at most 123 bytes. May be called when it is closed already. */
  close(code: number, reason: string): void;
}

export interface MuxComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly link: Link;
}

export interface MuxInit {
  /** Which end this is. Streams that an agent opens have odd ids, a hub's even ones. */
  readonly role: "agent" | "hub";
  /** A whole, valid message. What it throws as `invalid` ends the session as a violation by the peer. */
  readonly onMessage: (message: TunnelMessage) => void;
  readonly onStream: (incoming: IncomingStream) => void;
}

/**
 * Frames wait here, where the next one is chosen by weight, and not in the socket, where the order is fixed. As much as
 * keeps the socket busy between two turns of the event loop; with the frame on top a ping waits behind 32 KiB at most.
 */
const LINK_BUFFER_BYTES = 16_384;

/**
 * Streams that one end may have open. A hub opens one for each log that is followed and each session of a user on this
 * node; an agent one for each token it renews, at most as many as it has workers at it. Beyond it `open` fails at the
 * opener; a peer that does not heed it loses its session.
 */
export const MAX_STREAMS: Readonly<Record<"agent" | "hub", number>> = { agent: 32, hub: 256 };

/** One is usual. */
const MAX_PINGS = 8;

/** A WebSocket's close frame holds no more (RFC 6455, section 5.5). */
const MAX_CLOSE_REASON_BYTES = 123;
const CLOSE_GOING_AWAY = 1001;
const CLOSE_PROTOCOL_ERROR = 1002;

interface Ping {
  readonly number: number;
  sentAt: number | undefined;
  readonly answer: Pending<number>;
}

/**
 * One session of the tunnel at either end: messages, streams and pings over one link, chosen by the weight of their
 * lanes. It starts no timer. All memory it holds is bounded: see MAX_STREAMS, WINDOW_BYTES, MAX_QUEUED_BYTES.
 */
export class Mux implements StreamOpener {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #link: Link;
  readonly #init: MuxInit;
  readonly #scheduler = new LaneScheduler();
  readonly #messages: Record<"control" | "status", MessageQueue>;
  readonly #assembler: MessageAssembler;
  readonly #streams = new Map<number, MuxStream>();
  /** Opened from here; of these, those without an id are in no map yet. */
  readonly #own = new Set<MuxStream>();
  readonly #host: StreamHost;
  readonly #closed = new AbortController();
  readonly #pings: Ping[] = [];
  #lastPing = 0;
  #pongDue: number | undefined;
  #lastOwnId: number;
  #lastPeerId: number;
  #isPumping = false;

  bytesSent = 0;
  bytesReceived = 0;
  framesSent = 0;
  framesReceived = 0;
  /** Monotonic milliseconds; of the start, before anything was received. */
  lastReceivedAt: number;

  constructor({ clock, log, link }: MuxComponents, init: MuxInit) {
    this.#clock = clock;
    this.#log = log;
    this.#link = link;
    this.#init = init;
    this.#lastOwnId = init.role === "agent" ? -1 : 0;
    this.#lastPeerId = init.role === "agent" ? 0 : -1;
    this.#messages = { control: new MessageQueue("control", init.role), status: new MessageQueue("status", init.role) };
    this.#assembler = new MessageAssembler(init.role === "agent" ? "hub" : "agent");
    this.#host = {
      wantsToSend: (stream) => {
        this.#scheduler.add(stream.lane, stream);
        this.#pump();
      },
      assignId: (stream) => {
        this.#lastOwnId += 2;
        this.#streams.set(this.#lastOwnId, stream);
        return this.#lastOwnId;
      },
      gone: (stream) => this.#forget(stream),
    };
    this.lastReceivedAt = clock.monotonic();
  }

  /** Aborts when the session is over; `reason` is the PicoletError that says why. */
  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** Streams of both ends that are not over. */
  get streamCount(): number {
    return this.#streams.size;
  }

  /**
   * Queues a message in its lane.
   * @throws what ended the session; `resource_exhausted` when the lane's queue is full or the message too large for the
   *   peer, with nothing queued; the session goes on
   */
  send(message: TunnelMessage): void {
    if (this.closed.aborted) throw this.closed.reason;
    const lane = LANE_OF[message.kind];
    const queue = this.#queueOf(lane);
    queue.push(message);
    this.#scheduler.add(lane, queue);
    this.#pump();
  }

  /** Resolves when every message of the lane was handed to the link. @throws what ended the session; `cancelled` */
  flushed(lane: "control" | "status", signal: AbortSignal): Promise<void> {
    if (this.closed.aborted) return Promise.reject(this.closed.reason);
    return this.#messages[lane].flushed(signal);
  }

  async open(kind: StreamKind, params: unknown, lane: Lane, signal: AbortSignal): Promise<OpenedStream> {
    if (this.closed.aborted) throw this.closed.reason;
    const limit = MAX_STREAMS[this.#init.role];
    if (this.#own.size >= limit) {
      throw new PicoletError("resource_exhausted", `cannot open more than ${limit} streams`, { retryable: true });
    }
    checkSize({ type: "open", id: 1, kind, lane, params });
    const stream = new MuxStream(this.#host, { id: 0, kind, lane, params });
    this.#own.add(stream);
    await stream.opened(signal);
    return stream;
  }

  /** @returns the round trip in milliseconds, from the moment the ping is with the link */
  ping(signal: AbortSignal): Promise<number> {
    if (this.closed.aborted) return Promise.reject(this.closed.reason);
    if (signal.aborted) return Promise.reject(cancelled("the ping"));
    if (this.#pings.length >= MAX_PINGS) {
      return Promise.reject(new PicoletError("resource_exhausted", "cannot send another ping before one is answered"));
    }
    this.#lastPing += 1;
    const answer = new Pending<number>("the ping", signal, () => {
      this.#pings.splice(this.#pings.indexOf(ping), 1);
    });
    const ping: Ping = { number: this.#lastPing, sentAt: undefined, answer };
    this.#pings.push(ping);
    this.#pump();
    return answer.promise;
  }

  /** The link has room again. */
  drained(): void {
    this.#pump();
  }

  /** One binary WebSocket message. A violation of the protocol ends the session; this never throws one. */
  receive(bytes: Uint8Array): void {
    if (this.closed.aborted) return;
    this.bytesReceived += bytes.length;
    this.framesReceived += 1;
    this.lastReceivedAt = this.#clock.monotonic();
    try {
      this.#handle(decodeFrame(bytes));
    } catch (error) {
      if (!(error instanceof PicoletError) || error.code !== "invalid") throw error;
      const message = describeError(error);
      this.close(error, { kind: "refusal", code: "protocol", message, retryAfterMs: 0 });
    }
  }

  /**
   * Ends the session and every stream of it with `error`, then closes the link. Once; what comes later is ignored.
   * @param farewell sent before everything that is still queued, which is dropped
   */
  close(error: PicoletError, farewell?: Refusal): void {
    if (this.closed.aborted) return;
    if (farewell !== undefined) this.#sayFarewell(farewell);
    this.#closed.abort(error);
    for (const ping of [...this.#pings]) ping.answer.reject(error);
    for (const stream of new Set([...this.#own, ...this.#streams.values()])) stream.endWith(error);
    this.#streams.clear();
    this.#own.clear();
    this.#messages.control.fail(error);
    this.#messages.status.fail(error);
    this.#assembler.clear();
    const code = error.code === "invalid" || error.code === "corrupt" ? CLOSE_PROTOCOL_ERROR : CLOSE_GOING_AWAY;
    this.#link.close(code, closeReason(describeError(error)));
  }

  #sayFarewell(farewell: Refusal): void {
    const queue = new MessageQueue("control", this.#init.role);
    queue.push({ ...farewell, message: farewell.message.slice(0, MAX_FAREWELL_CHARACTERS) });
    const frame = queue.nextFrame();
    if (frame !== undefined) this.#transmit(frame);
  }

  #queueOf(lane: Lane): MessageQueue {
    if (lane === "control" || lane === "status") return this.#messages[lane];
    throw new PicoletError("internal", `cannot send messages in the lane ${lane}`);
  }

  #transmit(frame: Uint8Array): void {
    this.bytesSent += frame.length;
    this.framesSent += 1;
    this.#link.send(frame);
  }

  #pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    try {
      while (!this.closed.aborted && this.#link.bufferedBytes < LINK_BUFFER_BYTES) {
        const frame = this.#nextUrgent() ?? this.#scheduler.next();
        if (frame === undefined) return;
        this.#transmit(frame);
      }
    } finally {
      this.#isPumping = false;
    }
  }

  /** Pings and pongs go before all lanes. Of several pongs only the last is sent: it answers those before it. */
  #nextUrgent(): Uint8Array | undefined {
    if (this.#pongDue !== undefined) {
      const number = this.#pongDue;
      this.#pongDue = undefined;
      return encodeFrame({ type: "pong", number });
    }
    const ping = this.#pings.find((each) => each.sentAt === undefined);
    if (ping === undefined) return undefined;
    ping.sentAt = this.#clock.monotonic();
    return encodeFrame({ type: "ping", number: ping.number });
  }

  #handle(frame: Frame): void {
    switch (frame.type) {
      case "message":
        this.#init.onMessage(this.#assembler.whole(unpackMessage(frame.message)));
        return;
      case "part": {
        const message = this.#assembler.part(frame.lane, frame.bytes, frame.isLast);
        if (message !== undefined) this.#init.onMessage(message);
        return;
      }
      case "ping":
        this.#pongDue = frame.number;
        this.#pump();
        return;
      case "pong":
        this.#handlePong(frame.number);
        return;
      case "open":
        this.#handleOpen(frame);
        return;
      default:
        this.#handleOfStream(frame);
    }
  }

  #handlePong(number: number): void {
    if (number > this.#lastPing) throw violation(`a pong ${number} for no ping`);
    const now = this.#clock.monotonic();
    for (const ping of [...this.#pings]) {
      if (ping.number <= number && ping.sentAt !== undefined) ping.answer.resolve(now - ping.sentAt);
    }
  }

  #handleOpen(frame: Extract<Frame, { readonly type: "open" }>): void {
    const { id, kind, lane, params } = frame;
    if (this.#isOwnId(id)) throw violation(`an open of stream ${id}, whose id is not the peer's to give`);
    if (id <= this.#lastPeerId) throw violation(`an open of stream ${id} after ${this.#lastPeerId}`);
    const limit = MAX_STREAMS[this.#init.role === "agent" ? "hub" : "agent"];
    if (this.#streams.size - this.#openedHere() >= limit) throw violation(`more than ${limit} open streams`);
    this.#lastPeerId = id;
    const stream = new MuxStream(this.#host, { id, kind, lane, params });
    this.#streams.set(id, stream);
    this.#init.onStream(stream);
  }

  #openedHere(): number {
    let count = 0;
    for (const stream of this.#own) if (stream.id !== 0) count += 1;
    return count;
  }

  #handleOfStream(frame: Exclude<StreamFrame, { readonly type: "open" }>): void {
    const stream = this.#streams.get(frame.id);
    if (stream !== undefined) {
      stream.receive(frame);
      return;
    }
    const last = this.#isOwnId(frame.id) ? this.#lastOwnId : this.#lastPeerId;
    if (frame.id > last) throw violation(`${frame.type} for stream ${frame.id}, which never was`);
    this.#log.debug("a frame crossed the end of its stream", { stream: frame.id, type: frame.type });
  }

  #isOwnId(id: number): boolean {
    return (id % 2 === 1) === (this.#init.role === "agent");
  }

  #forget(stream: MuxStream): void {
    this.#scheduler.remove(stream.lane, stream);
    this.#own.delete(stream);
    if (stream.id !== 0) this.#streams.delete(stream.id);
  }
}

/** So that it fits one frame, whatever it quotes. */
const MAX_FAREWELL_CHARACTERS = 1024;

const violation = (what: string): PicoletError => new PicoletError("invalid", `cannot accept frame: ${what}`);

function closeReason(text: string): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(MAX_CLOSE_REASON_BYTES));
  return text.slice(0, read);
}
