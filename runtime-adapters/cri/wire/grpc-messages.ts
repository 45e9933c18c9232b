import { PicoletError } from "@picolet/protocol/errors.ts";

const PREFIX_BYTES = 5;
/**
 * Frees the memory of a buffer that lies outside the V8 heap, since V8 is slow to notice such garbage. A relist of 50
 * pods takes 100 KB; a buffer that is kept for the next one would stay resident.
 */
function free(buffer: Buffer<ArrayBuffer>): void {
  buffer.buffer.transfer(0);
}

/** Cuts a response's bytes into its length-prefixed messages. */
export class MessageAssembler {
  readonly #maxMessageBytes: number;
  readonly #onMessage: (bytes: Buffer, start: number, end: number) => void;
  #prefixFilled = 0;
  #compressed = 0;
  #body: Buffer<ArrayBuffer> | undefined;
  #bodyFilled = 0;
  #bodyLength = 0;

  /** @param onMessage the bytes are valid during the call only. */
  constructor(maxMessageBytes: number, onMessage: (bytes: Buffer, start: number, end: number) => void) {
    this.#maxMessageBytes = maxMessageBytes;
    this.#onMessage = onMessage;
  }

  /** True when the bytes so far end within a message. */
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
    if (this.#body !== undefined) free(this.#body);
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
    this.#body ??= Buffer.allocUnsafeSlow(this.#bodyLength);
    piece.copy(this.#body, this.#bodyFilled, start, end);
    this.#bodyFilled += end - start;
    if (this.#bodyFilled < this.#bodyLength) return;
    const body = this.#body;
    this.#body = undefined;
    this.#deliver(body, 0, this.#bodyLength);
    free(body);
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
