/** The body of one request, as its connection reads it. The unread part is a bounded number of bytes. */
import type { HttpErrorCode } from "../http/error-code.ts";
import type { BodyListener, BodySource } from "../http/incoming-body.ts";

/** Callbacks of a body to its connection. */
export interface BodyReader {
  /** The component requests the first byte. */
  started(): void;
  /** There may be room for more. */
  taken(): void;
}

/**
 * Pieces that fit into this size are joined, because a client may send each byte in a chunk of its own, and each piece
 * takes about 400 bytes.
 */
const JOINED_BYTES = 4096;

export class RequestBody implements BodySource {
  readonly #reader: BodyReader;
  #chunks: Uint8Array[] = [];
  /** The larger buffer whose beginning is the last piece, where pieces were joined. */
  #joined: Uint8Array | undefined;
  #available = 0;
  #isWhole = false;
  #isStarted = false;
  #isDiscarded = false;
  #trailers: readonly string[] = [];
  #listener: BodyListener | undefined;
  #failure: HttpErrorCode | undefined;

  constructor(reader: BodyReader) {
    this.#reader = reader;
  }

  get available(): number {
    return this.#available;
  }

  get hasEnded(): boolean {
    return this.#isWhole && this.#available === 0;
  }

  get trailers(): readonly string[] {
    return this.#trailers;
  }

  /** True when all of it has arrived. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** True when nothing more of it will arrive. */
  get isOver(): boolean {
    return this.#isWhole || this.#failure !== undefined;
  }

  get isDiscarded(): boolean {
    return this.#isDiscarded;
  }

  /** True when the component reads it. */
  get isRead(): boolean {
    return this.#isStarted && !this.#isDiscarded;
  }

  take(length: number): Uint8Array | undefined {
    const [first] = this.#chunks;
    if (first === undefined) return undefined;
    const part = first.length <= length ? first : first.subarray(0, length);
    // Bytes that are given away are not written to any more.
    if (this.#chunks.length === 1) this.#joined = undefined;
    if (part === first) this.#chunks.shift();
    else this.#chunks[0] = first.subarray(length);
    this.#available -= part.length;
    this.#reader.taken();
    return part;
  }

  listen(listener: BodyListener): void {
    this.#listener = listener;
    if (this.#failure !== undefined) listener.failed(this.#failure);
  }

  start(): void {
    this.#isStarted = true;
    if (!this.#isWhole) this.#reader.started();
  }

  discard(): void {
    if (this.#isDiscarded) return;
    this.#isDiscarded = true;
    this.#chunks = [];
    this.#joined = undefined;
    this.#available = 0;
    this.#reader.taken();
  }

  /** More of it has arrived. */
  push(bytes: Uint8Array): void {
    if (this.#isDiscarded) return;
    const last = this.#chunks.at(-1);
    if (last === undefined || last.length + bytes.length > JOINED_BYTES) this.#append(bytes);
    else this.#join(last, bytes);
    this.#available += bytes.length;
    this.#listener?.changed();
  }

  #append(bytes: Uint8Array): void {
    this.#chunks.push(bytes);
    this.#joined = undefined;
  }

  #join(last: Uint8Array, bytes: Uint8Array): void {
    let joined = this.#joined;
    if (joined === undefined) {
      joined = new Uint8Array(JOINED_BYTES);
      joined.set(last);
      this.#joined = joined;
    }
    joined.set(bytes, last.length);
    this.#chunks[this.#chunks.length - 1] = joined.subarray(0, last.length + bytes.length);
  }

  /** All of it has arrived. @param trailers names and values in turn */
  complete(trailers: readonly string[]): void {
    this.#isWhole = true;
    this.#trailers = trailers;
    this.#listener?.changed();
  }

  /** It will never be whole. */
  fail(code: HttpErrorCode): void {
    if (this.#isWhole || this.#failure !== undefined) return;
    this.#failure = code;
    this.#listener?.failed(code);
  }
}
