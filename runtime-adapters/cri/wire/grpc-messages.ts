import { PicoletError } from "@picolet/protocol/errors.ts";

const PREFIX_BYTES = 5;
/** A larger one is given back to the system after use. A relist of 100 pods fits. */
const MAX_SPARE_BYTES = 256 * 1024;

/**
 * The buffer in which messages that come in several reads are put together, kept from one to the next: a fresh one for
 * every relist would be garbage outside the V8 heap, which V8 is slow to notice.
 */
export class SpareBuffer {
  #spare: Buffer | undefined;

  take(size: number): Buffer {
    const spare = this.#spare;
    this.#spare = undefined;
    if (spare !== undefined && spare.length >= size) return spare;
    return Buffer.allocUnsafeSlow(Math.max(size, Math.min(MAX_SPARE_BYTES, 2 ** Math.ceil(Math.log2(size)))));
  }

  giveBack(buffer: Buffer): void {
    if (buffer.length <= MAX_SPARE_BYTES && buffer.length >= (this.#spare?.length ?? 0)) this.#spare = buffer;
  }
}

/** Cuts a response's bytes into its length-prefixed messages. */
export class MessageAssembler {
  readonly #spare: SpareBuffer;
  readonly #maxMessageBytes: number;
  readonly #onMessage: (bytes: Buffer, start: number, end: number) => void;
  #prefixFilled = 0;
  #compressed = 0;
  #body: Buffer | undefined;
  #bodyFilled = 0;
  #bodyLength = 0;

  /** @param onMessage the bytes are valid during the call only. */
  constructor(
    spare: SpareBuffer,
    maxMessageBytes: number,
    onMessage: (bytes: Buffer, start: number, end: number) => void,
  ) {
    this.#spare = spare;
    this.#maxMessageBytes = maxMessageBytes;
    this.#onMessage = onMessage;
  }

  /** Whether the bytes so far end within a message. */
  get midway(): boolean {
    return this.#prefixFilled > 0;
  }

  /** @throws `corrupt`, `resource_exhausted`, and what `onMessage` throws. */
  feed(piece: Buffer): void {
    let position = 0;
    while (position < piece.length) {
      if (this.#prefixFilled < PREFIX_BYTES) {
        this.#prefixByte(piece[position] ?? 0);
        position += 1;
        if (this.#prefixFilled < PREFIX_BYTES) continue;
        this.#begin();
        if (this.#bodyLength === 0) this.#deliver(piece, position, position);
        continue;
      }
      const wanted = this.#bodyLength - this.#bodyFilled;
      const available = piece.length - position;
      if (this.#bodyFilled === 0 && available >= wanted) this.#deliver(piece, position, position + wanted);
      else this.#collect(piece, position, position + Math.min(wanted, available));
      position += Math.min(wanted, available);
    }
  }

  /** Gives back what an unfinished message holds. */
  abandon(): void {
    if (this.#body !== undefined) this.#spare.giveBack(this.#body);
    this.#body = undefined;
  }

  /** One byte of flags, then four of the length, the highest first. */
  #prefixByte(byte: number): void {
    if (this.#prefixFilled === 0) {
      this.#compressed = byte;
      this.#bodyLength = 0;
    } else this.#bodyLength = this.#bodyLength * 256 + byte;
    this.#prefixFilled += 1;
  }

  #begin(): void {
    if (this.#compressed !== 0)
      throw new PicoletError("corrupt", "cannot use a compressed message: none was asked for");
    if (this.#bodyLength > this.#maxMessageBytes) {
      const sizes = `${this.#bodyLength} bytes, more than ${this.#maxMessageBytes}`;
      throw new PicoletError("resource_exhausted", `cannot receive a message of ${sizes}`);
    }
  }

  #collect(piece: Buffer, start: number, end: number): void {
    this.#body ??= this.#spare.take(this.#bodyLength);
    piece.copy(this.#body, this.#bodyFilled, start, end);
    this.#bodyFilled += end - start;
    if (this.#bodyFilled < this.#bodyLength) return;
    const body = this.#body;
    this.#body = undefined;
    this.#deliver(body, 0, this.#bodyLength);
    this.#spare.giveBack(body);
  }

  #deliver(bytes: Buffer, start: number, end: number): void {
    this.#prefixFilled = 0;
    this.#bodyFilled = 0;
    this.#onMessage(bytes, start, end);
  }
}

/** Length-prefixed message: not compressed, its length, itself. */
export function withPrefix(message: Uint8Array): Buffer {
  const whole = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  whole[0] = 0;
  whole.writeUInt32BE(message.length, 1);
  whole.set(message, PREFIX_BYTES);
  return whole;
}
