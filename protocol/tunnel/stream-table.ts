import { PicoletError } from "../errors.ts";
import type { Log } from "../ports.ts";
import type { Frame, StreamFrame } from "./frames.ts";
import type { LaneScheduler } from "./lane-scheduler.ts";
import { checkSize, MuxStream, type StreamHost } from "./mux-stream.ts";
import type { IncomingStream, Lane, OpenedStream, StreamKind } from "./stream.ts";

/**
 * Streams that one end may have open. A hub opens one for each log that is followed and each session of a user on this
 * node; an agent one for each token it renews, at most as many as it has workers at it. Beyond it `open` fails at the
 * opener; a peer that does not heed it loses its session.
 */
export const MAX_STREAMS: Readonly<Record<"agent" | "hub", number>> = { agent: 32, hub: 256 };

export interface StreamTableInit {
  readonly role: "agent" | "hub";
  readonly onStream: (incoming: IncomingStream) => void;
  /** There are frames to send. */
  readonly pump: () => void;
}

/** The streams of one session. Made with the first of them: most sessions of a large fleet have none. */
export class StreamTable {
  readonly #log: Log;
  readonly #scheduler: LaneScheduler;
  readonly #init: StreamTableInit;
  readonly #streams = new Map<number, MuxStream>();
  /** Opened from here; of these, those without an id are in no map yet. */
  readonly #own = new Set<MuxStream>();
  readonly #host: StreamHost;
  #lastOwnId: number;
  #lastPeerId: number;

  constructor(log: Log, scheduler: LaneScheduler, init: StreamTableInit) {
    this.#log = log;
    this.#scheduler = scheduler;
    this.#init = init;
    this.#lastOwnId = init.role === "agent" ? -1 : 0;
    this.#lastPeerId = init.role === "agent" ? 0 : -1;
    this.#host = {
      wantsToSend: (stream) => {
        scheduler.add(stream.lane, stream);
        init.pump();
      },
      assignId: (stream) => {
        this.#lastOwnId += 2;
        this.#streams.set(this.#lastOwnId, stream);
        return this.#lastOwnId;
      },
      gone: (stream) => this.#forget(stream),
    };
  }

  /** The number of streams of both ends that are not over. */
  get size(): number {
    return this.#streams.size;
  }

  /** True for a stream that is not over. */
  has(id: number): boolean {
    return this.#streams.has(id);
  }

  /** @see StreamOpener.open */
  async open(kind: StreamKind, params: unknown, lane: Lane, signal: AbortSignal): Promise<OpenedStream> {
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

  /** @throws `invalid` for what the peer may not send now */
  receive(frame: StreamFrame): void {
    if (frame.type === "open") {
      this.#receiveOpen(frame);
      return;
    }
    const stream = this.#streams.get(frame.id);
    if (stream !== undefined) {
      stream.receive(frame);
      return;
    }
    const last = this.#isOwnId(frame.id) ? this.#lastOwnId : this.#lastPeerId;
    if (frame.id > last) throw violation(`${frame.type} for stream ${frame.id}, which never was`);
    this.#log.debug("a frame crossed the end of its stream", { stream: frame.id, type: frame.type });
  }

  #receiveOpen({ id, kind, lane, params }: Extract<Frame, { readonly type: "open" }>): void {
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

  #isOwnId(id: number): boolean {
    return (id % 2 === 1) === (this.#init.role === "agent");
  }

  #forget(stream: MuxStream): void {
    this.#scheduler.remove(stream.lane, stream);
    this.#own.delete(stream);
    if (stream.id !== 0) this.#streams.delete(stream.id);
  }

  /** The session has ended. */
  endWith(error: PicoletError): void {
    for (const stream of new Set([...this.#own, ...this.#streams.values()])) stream.endWith(error);
    this.#streams.clear();
    this.#own.clear();
  }
}

export const violation = (what: string): PicoletError => new PicoletError("invalid", `cannot accept frame: ${what}`);
