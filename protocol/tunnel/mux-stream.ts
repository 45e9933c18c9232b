import { cancelled } from "../async/abort.ts";
import { type ErrorCode, PicoletError } from "../errors.ts";
import { MEBIBYTE } from "../units.ts";
import { encodeFrame, type Frame, MAX_FRAME_BYTES, MAX_PAYLOAD_BYTES, type StreamFrame } from "./frames.ts";
import type { Sender } from "./lane-scheduler.ts";
import { PendingAnswer } from "./pending.ts";
import { ReceiveBuffer } from "./receive-buffer.ts";
import type { IncomingStream, Lane, OpenedStream, StreamError, StreamKind, TunnelStream } from "./stream.ts";

/**
 * Bounds how much a peer may send on a stream before it learns that some was read, and so the memory of a stream whose
 * reader stops. A stream carries at most a window a round trip: bulk over a link of 100 ms 2.5 MiB/s, a log 1.2 MiB/s,
 * more than a board's uplink. A request of a `token` has no bytes.
 */
const WINDOW_BYTES: Readonly<Record<Lane, number>> = {
  control: 16_384,
  status: 16_384,
  interactive: 65_536,
  logs: 131_072,
  bulk: 262_144,
};
/** No end grants more than its window; one that pretends to would have us count beyond what numbers hold. */
const MAX_WINDOW_BYTES = 16 * MEBIBYTE;
/**
 * Callers that wait on one stream at a time. Two are usual (standard output and error); more are a caller's mistake.
 */
const MAX_PENDING_WRITES = 16;
/** Bounds a frame's own bytes around parameters or a reply: its head, type, id, kind, lane. */
const MAX_HEAD_BYTES = 16;

/** The session's side of a stream. */
export interface StreamHost {
  /** The stream has frames to send. */
  wantsToSend(stream: MuxStream): void;
  /** Gives the id of a stream whose `open` is about to be sent. */
  assignId(stream: MuxStream): number;
  /** Neither end will send anything of it any more. */
  gone(stream: MuxStream): void;
}

type State =
  /** Opened from here: `isSent` once the peer has been asked. */
  | { readonly kind: "opening"; readonly isSent: boolean }
  /** Opened by the peer, and not answered yet. */
  | { readonly kind: "offered" }
  /** `isAnswered`: the peer knows that it was accepted. */
  | { readonly kind: "open"; readonly isAnswered: boolean }
  /** Over at this end; the peer must still be notified. */
  | { readonly kind: "refusing"; readonly how: "reject" | "reset"; readonly error: StreamError }
  | { readonly kind: "over" };

interface PendingWrite {
  readonly bytes: Uint8Array;
  /** How many of them were handed to the link. */
  sent: number;
  readonly done: PendingAnswer<void>;
}

const ERROR_CODES: ReadonlySet<string> = new Set<ErrorCode>([
  ...(["cancelled", "invalid", "not_found", "already_exists", "conflict", "unavailable", "deadline_exceeded"] as const),
  ...(["resource_exhausted", "permission_denied", "unimplemented", "corrupt", "failed", "internal"] as const),
]);

const errorOf = ({ code, message }: StreamError): PicoletError =>
  new PicoletError(ERROR_CODES.has(code) ? (code as ErrorCode) : "failed", message);

const violation = (what: string): PicoletError => new PicoletError("invalid", `cannot accept frame: ${what}`);

/**
 * One stream at one end. Everything it keeps is made when first used: most of a thousand idle ones are a few fields.
 */
export class MuxStream implements OpenedStream, IncomingStream, Sender {
  readonly kind: StreamKind;
  readonly lane: Lane;
  readonly params: unknown;
  #id: number;
  readonly #host: StreamHost;
  #state: State;
  #reply: unknown;
  #error: PicoletError | undefined;
  #closed: AbortController | undefined;
  /** Settles `opened`; only for a stream that was opened from here. */
  #opening: PendingAnswer<void> | undefined;

  #writes: PendingWrite[] | undefined;
  #sendable: number;
  #sending: "open" | "ending" | "ended" = "open";

  #received: ReceiveBuffer | undefined;
  #reader: PendingAnswer<Uint8Array | undefined> | undefined;
  #receivable: number;
  #unacknowledged = 0;
  #isPeerEnded = false;

  /** @param id 0 for one that is opened from here */
  constructor(host: StreamHost, what: { id: number; kind: StreamKind; lane: Lane; params: unknown }) {
    this.#host = host;
    this.#id = what.id;
    this.kind = what.kind;
    this.lane = what.lane;
    this.params = what.params;
    this.#state = what.id === 0 ? { kind: "opening", isSent: false } : { kind: "offered" };
    this.#sendable = WINDOW_BYTES[what.lane];
    this.#receivable = WINDOW_BYTES[what.lane];
  }

  get id(): number {
    return this.#id;
  }

  get reply(): unknown {
    return this.#reply;
  }

  get closed(): AbortSignal {
    if (this.#closed === undefined) {
      this.#closed = new AbortController();
      if (this.#error !== undefined) this.#closed.abort(this.#error);
    }
    return this.#closed.signal;
  }

  /** Bytes that were received and not read. */
  get bufferedBytes(): number {
    return this.#received?.length ?? 0;
  }

  /** Asks the peer. @throws what it refuses with; `cancelled`; what ends the session */
  async opened(signal: AbortSignal): Promise<void> {
    this.#opening = new PendingAnswer<void>("the stream", signal, () => {
      this.#opening = undefined;
      if (signal.aborted) this.#give({ code: "cancelled", message: "the opener gave up" });
    });
    const { promise } = this.#opening;
    this.#host.wantsToSend(this);
    await promise;
  }

  accept(reply: unknown): TunnelStream {
    if (this.#state.kind === "over" || this.#state.kind === "refusing") return this;
    if (this.#state.kind !== "offered") throw new PicoletError("internal", "cannot accept a stream twice");
    checkSize({ type: "accept", id: this.#id, reply });
    this.#reply = reply;
    this.#state = { kind: "open", isAnswered: false };
    this.#host.wantsToSend(this);
    return this;
  }

  reject(error: StreamError): void {
    if (this.#state.kind === "offered") this.#refuse("reject", error);
  }

  reset(error: StreamError): void {
    this.#give(error);
  }

  write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(cancelled("the write"));
    if (this.#error !== undefined) return Promise.reject(this.#error);
    if (this.#sending !== "open") return Promise.reject(new PicoletError("invalid", "cannot write to an ended stream"));
    if (bytes.length === 0) return Promise.resolve();
    this.#writes ??= [];
    if (this.#writes.length >= MAX_PENDING_WRITES) {
      return Promise.reject(new PicoletError("resource_exhausted", "cannot write to a stream that many write to"));
    }
    const done = new PendingAnswer<void>("the write", signal, () => {
      this.#writes = this.#writes?.filter((each) => each !== write);
      if (signal.aborted) this.#giveUpWrite(write);
    });
    const write: PendingWrite = { bytes, sent: 0, done };
    this.#writes.push(write);
    if (this.#sendable > 0) this.#host.wantsToSend(this);
    return done.promise;
  }

  /** Half a write cannot be taken back: the peer could not know what is missing, so the stream ends with it. */
  #giveUpWrite(write: PendingWrite): void {
    const isPartial = write.sent > 0 && write.sent < write.bytes.length;
    if (isPartial) this.#give({ code: "cancelled", message: "the writer gave up in the middle" });
    else if (this.#sending === "ending") this.#host.wantsToSend(this);
  }

  end(): void {
    if (this.#sending !== "open" || this.#error !== undefined) return;
    this.#sending = "ending";
    this.#host.wantsToSend(this);
  }

  read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    if (signal.aborted) return Promise.reject(cancelled("the read"));
    const bytes = this.#takeReceived();
    if (bytes !== undefined) return Promise.resolve(bytes);
    if (this.#error !== undefined) return Promise.reject(this.#error);
    if (this.#isPeerEnded) return Promise.resolve(undefined);
    if (this.#reader !== undefined) {
      return Promise.reject(new PicoletError("internal", "cannot read a stream twice at the same time"));
    }
    this.#reader = new PendingAnswer("the read", signal, () => {
      this.#reader = undefined;
    });
    return this.#reader.promise;
  }

  /** Credit is given in halves of the window: a frame for each read would cost as much as what it allows. */
  #takeReceived(): Uint8Array | undefined {
    const bytes = this.#received?.shift();
    if (bytes === undefined) return undefined;
    this.#unacknowledged += bytes.length;
    if (this.#owesCredit) this.#host.wantsToSend(this);
    return bytes;
  }

  get #owesCredit(): boolean {
    return !this.#isPeerEnded && this.#unacknowledged >= WINDOW_BYTES[this.lane] / 2;
  }

  nextFrame(): Uint8Array | undefined {
    switch (this.#state.kind) {
      case "opening": {
        if (this.#state.isSent) return undefined;
        this.#state = { kind: "opening", isSent: true };
        this.#id = this.#host.assignId(this);
        return encodeFrame({ type: "open", id: this.#id, kind: this.kind, lane: this.lane, params: this.params });
      }
      case "refusing": {
        const { how, error } = this.#state;
        this.#over();
        return encodeFrame({ type: how, id: this.#id, error });
      }
      case "open": {
        if (this.#state.isAnswered) return this.#nextOfOpen();
        this.#state = { kind: "open", isAnswered: true };
        return encodeFrame({ type: "accept", id: this.#id, reply: this.#reply });
      }
      case "offered":
      case "over":
        return undefined;
    }
  }

  #nextOfOpen(): Uint8Array | undefined {
    if (this.#owesCredit) {
      const bytes = this.#unacknowledged;
      this.#unacknowledged = 0;
      this.#receivable += bytes;
      return encodeFrame({ type: "credit", id: this.#id, bytes });
    }
    const write = this.#writes?.[0];
    if (write !== undefined) return this.#sendable > 0 ? this.#nextData(write) : undefined;
    if (this.#sending !== "ending") return undefined;
    this.#sending = "ended";
    const frame = encodeFrame({ type: "end", id: this.#id });
    if (this.#isPeerEnded) this.#over();
    return frame;
  }

  #nextData(write: PendingWrite): Uint8Array {
    const length = Math.min(write.bytes.length - write.sent, this.#sendable, MAX_PAYLOAD_BYTES);
    const frame = encodeFrame({
      type: "data",
      id: this.#id,
      bytes: write.bytes.subarray(write.sent, write.sent + length),
    });
    write.sent += length;
    this.#sendable -= length;
    if (write.sent === write.bytes.length) write.done.resolve(undefined);
    return frame;
  }

  /** A frame of the peer's for this stream. @throws `invalid` for what the peer may not send now */
  receive(frame: StreamFrame): void {
    switch (this.#state.kind) {
      case "refusing":
      case "over":
        return; // They crossed.
      case "opening":
        this.#receiveAnswer(frame);
        return;
      case "offered":
      case "open":
        this.#receiveOfOpen(frame);
    }
  }

  #receiveAnswer(frame: StreamFrame): void {
    switch (frame.type) {
      case "accept":
        this.#reply = frame.reply;
        this.#state = { kind: "open", isAnswered: true };
        this.#opening?.resolve(undefined);
        return;
      case "reject":
      case "reset":
        this.#fail(errorOf(frame.error));
        this.#over();
        return;
      default:
        throw violation(`${frame.type} for stream ${frame.id}, which was not accepted`);
    }
  }

  #receiveOfOpen(frame: StreamFrame): void {
    if (frame.type === "reset") {
      this.#fail(errorOf(frame.error));
      this.#over();
      return;
    }
    if (this.#state.kind !== "open") throw violation(`${frame.type} for stream ${frame.id}, which was not accepted`);
    switch (frame.type) {
      case "data":
        this.#receiveData(frame.bytes);
        return;
      case "end":
        if (this.#isPeerEnded) throw violation(`a second end of stream ${frame.id}`);
        this.#isPeerEnded = true;
        this.#reader?.resolve(undefined);
        if (this.#sending === "ended") this.#over();
        return;
      case "credit":
        this.#sendable += frame.bytes;
        if (frame.bytes === 0 || this.#sendable > MAX_WINDOW_BYTES) {
          throw violation(`a credit of ${frame.bytes} bytes for stream ${frame.id}`);
        }
        if (this.#writes !== undefined && this.#writes.length > 0) this.#host.wantsToSend(this);
        return;
      default:
        throw violation(`${frame.type} for stream ${frame.id}, which is open`);
    }
  }

  #receiveData(bytes: Uint8Array): void {
    if (this.#isPeerEnded) throw violation(`data after the end of stream ${this.#id}`);
    this.#receivable -= bytes.length;
    if (this.#receivable < 0) throw violation(`${-this.#receivable} bytes more than stream ${this.#id} has credit for`);
    this.#received ??= new ReceiveBuffer();
    this.#received.push(bytes);
    if (this.#reader === undefined) return;
    this.#reader.resolve(this.#takeReceived());
  }

  /** The session has ended. */
  endWith(error: PicoletError): void {
    this.#fail(error);
    this.#state = { kind: "over" };
  }

  #give(error: StreamError): void {
    switch (this.#state.kind) {
      case "opening":
        // The peer never received the stream, so it need not learn of its end.
        if (this.#state.isSent) this.#refuse("reset", error);
        else {
          this.#fail(errorOf(error));
          this.#over();
        }
        return;
      case "offered":
      case "open":
        this.#refuse("reset", error);
        return;
      case "refusing":
      case "over":
        return;
    }
  }

  #refuse(how: "reject" | "reset", error: StreamError): void {
    this.#state = { kind: "refusing", how, error };
    this.#fail(errorOf(error));
    this.#host.wantsToSend(this);
  }

  #over(): void {
    this.#state = { kind: "over" };
    this.#host.gone(this);
  }

  /** Callers that wait here get the error; received bytes that were not read are dropped. */
  #fail(error: PicoletError): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    this.#received?.clear();
    this.#reader?.reject(error);
    this.#opening?.reject(error);
    for (const write of this.#writes ?? []) write.done.reject(error);
    this.#writes = undefined;
    this.#closed?.abort(error);
  }
}

/** @throws `resource_exhausted` when it does not fit a frame */
export function checkSize(frame: Extract<Frame, { readonly type: "open" | "accept" }>): void {
  const length = encodeFrame(frame).length;
  if (length > MAX_FRAME_BYTES - MAX_HEAD_BYTES) {
    throw new PicoletError(
      "resource_exhausted",
      `cannot ${frame.type} a stream with ${length} bytes of parameters: ${MAX_FRAME_BYTES - MAX_HEAD_BYTES} fit`,
    );
  }
}
