import { cancelled } from "../async/abort.ts";
import { describeError, PicoletError } from "../errors.ts";
import type { Clock, Log } from "../ports.ts";
import { decodeFrame, encodeFrame, type Frame } from "./frames.ts";
import { LaneScheduler } from "./lane-scheduler.ts";
import { unpackMessage } from "./message-codec.ts";
import { MessageAssembler, MessageQueue } from "./message-queue.ts";
import { LANE_OF, type Refusal, type TunnelMessage } from "./messages.ts";
import { PendingAnswer } from "./pending.ts";
import type { IncomingStream, Lane, OpenedStream, StreamKind, StreamOpener } from "./stream.ts";
import { StreamTable, violation } from "./stream-table.ts";

/** The carrier of frames: a WebSocket of binary messages. */
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
  /** This end's role. Streams that an agent opens have odd ids, a hub's even ones. */
  readonly role: "agent" | "hub";
  /** A whole, valid message. What it throws as `invalid` ends the session as a violation by the peer. */
  readonly onMessage: (message: TunnelMessage) => void;
  readonly onStream: (incoming: IncomingStream) => void;
  /** Called once when the session has ended, by either end, right after `closed` aborted. */
  readonly onClosed?: (error: PicoletError) => void;
}

/**
 * Frames wait here, where the next one is chosen by weight, and not in the socket, where the order is fixed. As much as
 * keeps the socket busy between two turns of the event loop; with the frame on top a ping waits behind 32 KiB at most.
 */
const LINK_BUFFER_BYTES = 16_384;

/** One is usual. */
const MAX_PINGS = 8;

/** A WebSocket's close frame holds no more (RFC 6455, section 5.5). */
const MAX_CLOSE_REASON_BYTES = 123;
const CLOSE_GOING_AWAY = 1001;
const CLOSE_PROTOCOL_ERROR = 1002;

interface Ping {
  readonly number: number;
  sentAt: number | undefined;
  readonly answer: PendingAnswer<number>;
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
  #streams: StreamTable | undefined;
  readonly #closed = new AbortController();
  readonly #pings: Ping[] = [];
  /** Go with the next frame; the latest of each kind. */
  #riders: TunnelMessage[] | undefined;
  #lastPing = 0;
  #pongDue: number | undefined;
  #isPumping = false;

  bytesSent = 0;
  bytesReceived = 0;
  /** The part of `bytesReceived` that no stream's credit bounds: all but the data of streams that are not over. */
  bytesReceivedWithoutCredit = 0;
  framesSent = 0;
  framesReceived = 0;
  /** Monotonic milliseconds; of the start, before anything was received. */
  lastReceivedAt: number;

  constructor({ clock, log, link }: MuxComponents, init: MuxInit) {
    this.#clock = clock;
    this.#log = log;
    this.#link = link;
    this.#init = init;
    this.#messages = { control: new MessageQueue("control", init.role), status: new MessageQueue("status", init.role) };
    this.#assembler = new MessageAssembler(init.role === "agent" ? "hub" : "agent");
    this.lastReceivedAt = clock.monotonic();
  }

  /** Aborts when the session is over; `reason` is the PicoletError that says why. */
  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** Streams of both ends that are not over. */
  get streamCount(): number {
    return this.#streams?.size ?? 0;
  }

  /**
   * Queues a message in its lane.
   * @throws what ended the session; `resource_exhausted` when the lane's queue is full or the message too large for the
   *   peer, with nothing queued; the session goes on
   */
  send(message: TunnelMessage): void {
    if (this.closed.aborted) throw this.closed.reason;
    this.#riders = this.#riders?.filter(({ kind }) => kind !== message.kind);
    this.#enqueue(message);
    this.#pump();
  }

  /**
   * Keeps a message that replaces those of its kind before it, such as a cumulative acknowledgement, until another
   * frame is sent, and sends it right behind that one. A frame and a segment of its own would cost 80 bytes, and 52 for
   * TCP's answer.
   */
  sendWithNext(message: TunnelMessage): void {
    if (this.closed.aborted) throw this.closed.reason;
    this.#riders = [...(this.#riders ?? []).filter(({ kind }) => kind !== message.kind), message];
  }

  /** Sends now what waits for another frame. */
  sendRiders(): void {
    if (this.closed.aborted) return;
    this.#enqueueRiders();
    this.#pump();
  }

  #enqueueRiders(): void {
    const riders = this.#riders;
    this.#riders = undefined;
    for (const rider of riders ?? []) this.#enqueue(rider);
  }

  #enqueue(message: TunnelMessage): void {
    const lane = LANE_OF[message.kind];
    const queue = this.#queueOf(lane);
    queue.push(message);
    this.#scheduler.add(lane, queue);
  }

  /** Resolves when every message of the lane was handed to the link. @throws what ended the session; `cancelled` */
  flushed(lane: "control" | "status", signal: AbortSignal): Promise<void> {
    if (this.closed.aborted) return Promise.reject(this.closed.reason);
    return this.#messages[lane].flushed(signal);
  }

  async open(kind: StreamKind, params: unknown, lane: Lane, signal: AbortSignal): Promise<OpenedStream> {
    if (this.closed.aborted) throw this.closed.reason;
    return await this.#table().open(kind, params, lane, signal);
  }

  #table(): StreamTable {
    const { role, onStream } = this.#init;
    this.#streams ??= new StreamTable(this.#log, this.#scheduler, { role, onStream, pump: () => this.#pump() });
    return this.#streams;
  }

  /** @returns the round trip in milliseconds, from the moment the ping is with the link */
  ping(signal: AbortSignal): Promise<number> {
    if (this.closed.aborted) return Promise.reject(this.closed.reason);
    if (signal.aborted) return Promise.reject(cancelled("the ping"));
    if (this.#pings.length >= MAX_PINGS) {
      return Promise.reject(new PicoletError("resource_exhausted", "cannot send another ping before one is answered"));
    }
    this.#lastPing += 1;
    const answer = new PendingAnswer<number>("the ping", signal, () => {
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
      const frame = decodeFrame(bytes);
      const isCredited = frame.type === "data" && this.#streams?.has(frame.id) === true;
      if (!isCredited) this.bytesReceivedWithoutCredit += bytes.length;
      this.#handle(frame);
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
    this.#init.onClosed?.(error);
    for (const ping of [...this.#pings]) ping.answer.reject(error);
    this.#streams?.endWith(error);
    this.#messages.control.fail(error);
    this.#messages.status.fail(error);
    this.#assembler.clear();
    this.#riders = undefined;
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
        this.#enqueueRiders();
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
      default:
        this.#table().receive(frame);
    }
  }

  #handlePong(number: number): void {
    if (number > this.#lastPing) throw violation(`a pong ${number} for no ping`);
    const now = this.#clock.monotonic();
    for (const ping of [...this.#pings]) {
      if (ping.number <= number && ping.sentAt !== undefined) ping.answer.resolve(now - ping.sentAt);
    }
  }
}

/** Bounds the reason, so that it fits one frame with any text that it quotes. */
const MAX_FAREWELL_CHARACTERS = 1024;

function closeReason(text: string): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(MAX_CLOSE_REASON_BYTES));
  return text.slice(0, read);
}
