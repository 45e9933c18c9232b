/** Bodies of requests that a component makes, and of their responses: over the streams of `node:http`. */
import type { ClientRequest, IncomingMessage } from "node:http";
import { httpErrorCode } from "./error-code.ts";
import type { FieldList } from "./fields.ts";
import type { BodyListener, BodySource } from "./incoming-body.ts";
import type { BodyTarget, TargetListener } from "./outgoing-body.ts";

/** Bounds the pieces of a response that are joined. */
const JOINED_BYTES = 4096;
/** One that is larger goes in by itself. */
const SMALL_BYTES = 1024;

/**
 * Joins small pieces of one turn. A server may send each byte in a chunk of its own, and `node:http` keeps each by
 * itself: 34 MiB for the 64 KiB that it reads ahead.
 */
export function joinSmallPieces(message: IncomingMessage): void {
  const push = message.push.bind(message);
  let joined = new Uint8Array();
  let length = 0;
  const flush = (): boolean => {
    if (length === 0 || message.destroyed) return true;
    const whole = joined.subarray(0, length);
    length = 0;
    return push(whole);
  };
  message.push = (chunk: Uint8Array | null): boolean => {
    if (chunk === null || chunk.length > SMALL_BYTES) {
      flush();
      return push(chunk);
    }
    const hasRoom = length + chunk.length > JOINED_BYTES ? flush() : true;
    if (length === 0) {
      joined = new Uint8Array(JOINED_BYTES);
      process.nextTick(flush);
    }
    joined.set(chunk, length);
    length += chunk.length;
    return hasRoom;
  };
}

export class NodeBodySource implements BodySource {
  readonly #message: IncomingMessage;
  readonly #idleMs: number;
  #hasEnded = false;

  /** @param idleMs bounds the wait for a byte that the component has requested */
  constructor(message: IncomingMessage, idleMs: number) {
    this.#message = message;
    this.#idleMs = idleMs;
  }

  get available(): number {
    return this.#message.readableLength;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get trailers(): readonly string[] {
    return this.#message.rawTrailers;
  }

  take(length: number): Uint8Array | undefined {
    const available = Math.min(length, this.#message.readableLength);
    // A read without a length is needed to see the end.
    return (this.#message.read(available === 0 ? undefined : available) as Buffer | null) ?? undefined;
  }

  listen(listener: BodyListener): void {
    const message = this.#message;
    if (message.readableEnded) {
      this.#hasEnded = true;
      return;
    }
    if (message.destroyed) listener.failed({ tag: "connection-terminated" });
    message.on("readable", () => listener.changed());
    message.once("end", () => {
      this.#hasEnded = true;
      listener.changed();
    });
    message.once("error", (error) => listener.failed(httpErrorCode(error)));
    message.once("close", () => {
      if (!this.#hasEnded) listener.failed({ tag: "connection-terminated" });
    });
    message.setTimeout(this.#idleMs, () => {
      listener.failed({ tag: "connection-read-timeout" });
      message.destroy();
    });
  }

  start(): void {
    // It flows as it is read.
  }

  discard(): void {
    this.#message.removeAllListeners("readable");
    this.#message.resume();
  }
}

export class NodeBodyTarget implements BodyTarget {
  readonly #request: ClientRequest;
  readonly #announce: (length: number | undefined) => void;

  /** @param announce makes the header that announces where the body ends */
  constructor(request: ClientRequest, announce: (length: number | undefined) => void) {
    this.#request = request;
    this.#announce = announce;
  }

  get isFull(): boolean {
    return this.#request.writableNeedDrain;
  }

  listen(listener: TargetListener): void {
    this.#request.on("drain", () => listener.drained());
    this.#request.once("error", (error) => listener.failed(httpErrorCode(error)));
    this.#request.once("close", () => listener.failed({ tag: "connection-terminated" }));
  }

  begin(length: number | undefined): void {
    this.#announce(length);
  }

  write(bytes: Uint8Array): void {
    this.#request.write(bytes);
  }

  end(last: readonly Uint8Array[], trailers: FieldList | undefined): void {
    if (trailers !== undefined) this.#request.addTrailers(trailers.pairs());
    for (const each of last) this.#request.write(each);
    this.#request.end();
  }

  destroy(): void {
    this.#request.destroy();
  }
}
