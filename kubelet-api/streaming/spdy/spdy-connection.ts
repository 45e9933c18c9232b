import { joinSignals, onAbort } from "@picolet/protocol/async/abort.ts";
import { ignore, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { BytePipe } from "../../pipes/byte-pipe.ts";
import { HeaderPacker, HeaderUnpacker, type SpdyHeaders } from "./header-block.ts";
import {
  dataFrame,
  goAwayFrame,
  pingFrame,
  RESET,
  rstStreamFrame,
  type SpdyFrame,
  SpdyFrameReader,
  synReplyFrame,
  synStreamFrame,
  windowUpdateFrame,
} from "./spdy-frames.ts";
import { SpdyStream, type StreamLink } from "./spdy-stream.ts";

/** The draft's, for streams and for the connection. */
const DEFAULT_WINDOW_BYTES = 64 * KIBIBYTE;
const MAX_WINDOW_BYTES = 0x7fff_ffff;
/** Consumed bytes are given back when they are half of the window. */
const GIVE_BACK_BYTES = DEFAULT_WINDOW_BYTES / 2;
/**
 * Bounds the peer's streams: `kubectl port-forward` takes two for each connection through it. A further one is refused.
 */
export const MAX_STREAMS = 512;
/**
 * Bounds answers to pings and the like that wait to be sent; at more of them the hub stops reading from a peer that
 * reads none.
 */
const MAX_WAITING_FRAMES = 64;
const LAST_STREAM_ID = 0x7fff_ffff;

export interface SpdyConnectionInit {
  /** The end that accepted the upgrade is the server. */
  readonly role: "client" | "server";
  /**
   * Called for a stream of the peer. The owner must reset one that it does not want. Undefined: no stream is accepted.
   */
  readonly onStream?: (stream: SpdyStream) => void;
}

interface Opening {
  readonly resolve: () => void;
  readonly reject: (error: PicoletError) => void;
}

/**
 * One SPDY/3.1 connection over any pipe, from the moment after the upgrade.
 *
 * Flow control is for a peer that shows that it knows of it, by SETTINGS or WINDOW_UPDATE. Go's spdystream (containerd,
 * kubelet, kubectl) does not: it leaves back-pressure to TCP, and closes with what it has not read, which makes TCP
 * throw away what we have not read yet. So nothing is sent to it unasked.
 */
export class SpdyConnection implements Disposable, StreamLink {
  readonly #pipe: BytePipe;
  readonly #init: SpdyConnectionInit;
  readonly #life = joinSignals();
  readonly #streams = new Map<number, SpdyStream>();
  readonly #opening = new Map<number, Opening>();
  readonly #packer = new HeaderPacker();
  readonly #unpacker = new HeaderUnpacker();
  /** Frames go out one after the other, headers in the order in which they were packed. */
  #lastWrite: Promise<void> = Promise.resolve();
  #waitingFrames = 0;
  #nextId: number;
  #lastGoodId = 0;
  #peerHeedsWindows = false;
  #initialSendWindow = DEFAULT_WINDOW_BYTES;
  #sendWindow = DEFAULT_WINDOW_BYTES;
  #consumed = 0;
  readonly #consumedOf = new Map<number, number>();

  constructor(pipe: BytePipe, init: SpdyConnectionInit) {
    this.#pipe = pipe;
    this.#init = init;
    this.#nextId = init.role === "client" ? 1 : 2;
  }

  /** Aborts when the connection is over. */
  get closed(): AbortSignal {
    return this.#life.signal;
  }

  get streams(): number {
    return this.#streams.size;
  }

  /** Reads until the peer ends the connection, it breaks, `signal` aborts or it is disposed of. Never throws. */
  async run(signal: AbortSignal): Promise<void> {
    using _end = onAbort(signal, () => this.#end(new PicoletError("cancelled", "the connection was ended here")));
    try {
      await this.#read();
      this.#end(new PicoletError("unavailable", "the other side ended the connection"));
    } catch (error) {
      const reason = isPicoletError(error)
        ? error
        : new PicoletError("internal", "the connection failed", { cause: error });
      this.#end(reason);
    }
  }

  /** Resolves when the peer has accepted it. @throws `unavailable` when it did not, or the connection is gone. */
  async open(headers: SpdyHeaders, signal: AbortSignal): Promise<SpdyStream> {
    const id = this.#nextId;
    if (this.closed.aborted || id > LAST_STREAM_ID) throw new PicoletError("unavailable", "the connection is gone");
    this.#nextId += 2;
    const stream = this.#add(id, headers);
    const opened = Promise.withResolvers<void>();
    this.#opening.set(id, opened);
    using _reset = onAbort(signal, () => stream.reset());
    try {
      await Promise.all([this.#send(() => synStreamFrame(id, this.#packer.pack(headers))), opened.promise]);
      return stream;
    } finally {
      this.#opening.delete(id);
    }
  }

  /** Says goodbye, after everything that was written, and closes the pipe's writing side. */
  async finish(): Promise<void> {
    await this.#send(() => goAwayFrame(this.#lastGoodId)).catch(
      ignore("the connection is lost, and nothing is left to say"),
    );
    this.#pipe.end();
  }

  [Symbol.dispose](): void {
    this.#end(new PicoletError("cancelled", "the connection was ended here"));
  }

  async sendData(stream: SpdyStream, fin: boolean, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    const ready = (): boolean => !this.#peerHeedsWindows || (stream.sendWindow > 0 && this.#sendWindow > 0);
    let rest = bytes;
    do {
      if (rest.length > 0) await stream.untilSendable(ready, signal);
      const room = this.#peerHeedsWindows ? Math.min(stream.sendWindow, this.#sendWindow) : rest.length;
      const piece = rest.subarray(0, Math.max(room, 0));
      rest = rest.subarray(piece.length);
      stream.sendWindow -= piece.length;
      this.#sendWindow -= piece.length;
      await this.#send(() => dataFrame(stream.id, fin && rest.length === 0, piece));
    } while (rest.length > 0);
    if (fin) this.#forgetIfOver(stream);
  }

  sendReset(stream: SpdyStream, status: number): void {
    this.#streams.delete(stream.id);
    this.#consumedOf.delete(stream.id);
    this.#opening.get(stream.id)?.reject(new PicoletError("cancelled", "the stream was given up"));
    this.#sendSoon(() => rstStreamFrame(stream.id, status));
  }

  consumed(stream: SpdyStream, bytes: number): void {
    this.#giveBack(bytes);
    if (!this.#streams.has(stream.id)) return;
    const ofStream = (this.#consumedOf.get(stream.id) ?? 0) + bytes;
    const isDue = this.#isDue(ofStream);
    if (isDue) this.#sendSoon(() => windowUpdateFrame(stream.id, ofStream));
    this.#consumedOf.set(stream.id, isDue ? 0 : ofStream);
  }

  async #read(): Promise<void> {
    const reader = new SpdyFrameReader();
    for (;;) {
      const bytes = await this.#pipe.read(this.closed);
      if (bytes === undefined) return;
      for (const frame of reader.push(bytes)) {
        await this.#take(frame);
        if (this.#waitingFrames > MAX_WAITING_FRAMES) await this.#lastWrite;
      }
    }
  }

  async #take(frame: SpdyFrame): Promise<void> {
    switch (frame.kind) {
      case "synStream":
        return this.#takeStream(frame.id, frame.fin, await this.#unpacker.unpack(frame.block));
      case "synReply":
        await this.#unpacker.unpack(frame.block);
        this.#opening.get(frame.id)?.resolve();
        return this.#takeData(frame.id, new Uint8Array(0), frame.fin);
      case "headers":
        await this.#unpacker.unpack(frame.block);
        return this.#takeData(frame.id, new Uint8Array(0), frame.fin);
      case "data":
        // A copy: the piece shares the memory of all that was read together, however long its reader takes.
        return this.#takeData(frame.id, Uint8Array.prototype.slice.call(frame.bytes), frame.fin);
      case "rstStream":
        return this.#takeReset(frame.id, frame.status);
      case "ping":
        // Our own are odd for a client, even for a server; we send none.
        if (frame.id % 2 !== this.#nextId % 2) this.#sendSoon(() => pingFrame(frame.id));
        return;
      case "goAway":
        // No new streams; those at hand go on until the peer closes.
        return;
      case "settings":
        return this.#takeInitialWindow(frame.initialWindow);
      case "windowUpdate":
        return this.#takeWindow(frame.id, frame.delta);
    }
  }

  #takeStream(id: number, fin: boolean, headers: SpdyHeaders): void {
    if (id % 2 === this.#nextId % 2 || id <= this.#lastGoodId) {
      throw new PicoletError("corrupt", `the other side may not open stream ${id}`);
    }
    this.#lastGoodId = id;
    const { onStream } = this.#init;
    if (onStream === undefined || this.#streams.size >= MAX_STREAMS) {
      this.#sendSoon(() => rstStreamFrame(id, RESET.refusedStream));
      return;
    }
    const stream = this.#add(id, headers);
    this.#sendSoon(() => synReplyFrame(id, this.#packer.pack({})));
    if (fin) void stream.receive(new Uint8Array(0), true, this.closed).catch(ignore("the connection is over"));
    onStream(stream);
  }

  async #takeData(id: number, bytes: Uint8Array, fin: boolean): Promise<void> {
    const stream = this.#streams.get(id);
    if (stream === undefined) {
      // Under way when it was reset here; the connection's window is given back all the same.
      if (bytes.length > 0) this.#giveBack(bytes.length);
      return;
    }
    await stream.receive(bytes, fin, this.closed);
    this.#forgetIfOver(stream);
  }

  #isDue(bytes: number): boolean {
    return this.#peerHeedsWindows && bytes >= GIVE_BACK_BYTES;
  }

  #giveBack(bytes: number): void {
    this.#consumed += bytes;
    if (!this.#isDue(this.#consumed)) return;
    const delta = this.#consumed;
    this.#consumed = 0;
    this.#sendSoon(() => windowUpdateFrame(0, delta));
  }

  #takeReset(id: number, status: number): void {
    const reason = new PicoletError("unavailable", `the other side reset the stream (${status})`);
    this.#opening.get(id)?.reject(reason);
    this.#streams.get(id)?.close(reason);
    this.#streams.delete(id);
    this.#consumedOf.delete(id);
  }

  #takeInitialWindow(window: number | undefined): void {
    if (window === undefined) return;
    this.#peerHeedsWindows = true;
    for (const stream of this.#streams.values()) stream.sendWindow += window - this.#initialSendWindow;
    this.#initialSendWindow = window;
    this.#wakeAll();
  }

  #takeWindow(id: number, delta: number): void {
    this.#peerHeedsWindows = true;
    const stream = this.#streams.get(id);
    if (id === 0) this.#sendWindow = Math.min(this.#sendWindow + delta, MAX_WINDOW_BYTES);
    else if (stream !== undefined) stream.sendWindow = Math.min(stream.sendWindow + delta, MAX_WINDOW_BYTES);
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const stream of this.#streams.values()) stream.wake();
  }

  #add(id: number, headers: SpdyHeaders): SpdyStream {
    const stream = new SpdyStream(this, id, headers);
    stream.sendWindow = this.#initialSendWindow;
    this.#streams.set(id, stream);
    return stream;
  }

  #forgetIfOver(stream: SpdyStream): void {
    if (!stream.over) return;
    this.#streams.delete(stream.id);
    this.#consumedOf.delete(stream.id);
  }

  /** @param make called when its turn has come. Resolves when the pipe can take more. */
  #send(make: () => Buffer): Promise<void> {
    const written = this.#lastWrite.then(() => this.#pipe.write(make(), this.closed));
    this.#lastWrite = written.catch(ignore("its caller gets the error, and the next write fails too"));
    return written;
  }

  /** Sends small frames without waiting. */
  #sendSoon(make: () => Buffer): void {
    this.#waitingFrames += 1;
    const sent = (): void => {
      this.#waitingFrames -= 1;
    };
    this.#send(make).then(sent, sent);
  }

  #end(reason: PicoletError): void {
    if (this.closed.aborted) return;
    this.#life.abort(reason);
    for (const opening of this.#opening.values()) opening.reject(reason);
    for (const stream of this.#streams.values()) stream.close(reason);
    this.#streams.clear();
    this.#unpacker[Symbol.dispose]();
    this.#pipe.destroy();
  }
}
