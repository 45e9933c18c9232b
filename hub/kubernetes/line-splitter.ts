import { PicoletError } from "@picolet/protocol/errors.ts";

/** Cuts a byte stream at newlines. Empty lines are left out. */
export class LineSplitter {
  readonly #maxLineBytes: number;
  #pieces: Uint8Array[] = [];
  #bytes = 0;

  constructor(maxLineBytes: number) {
    this.#maxLineBytes = maxLineBytes;
  }

  /** @throws `resource_exhausted` when a line is longer than it may be; nothing more can be read then */
  *push(chunk: Uint8Array): Generator<string> {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      this.#keep(chunk.subarray(start, end));
      start = end + 1;
      const line = this.#take();
      if (line !== "") yield line;
    }
    this.#keep(chunk.subarray(start));
  }

  /** True when the stream ended in the middle of a line. */
  get isPartial(): boolean {
    return this.#bytes > 0;
  }

  #keep(piece: Uint8Array): void {
    if (piece.length === 0) return;
    this.#bytes += piece.length;
    if (this.#bytes > this.#maxLineBytes) {
      throw new PicoletError("resource_exhausted", `cannot read a line of more than ${this.#maxLineBytes} bytes`);
    }
    this.#pieces.push(piece);
  }

  #take(): string {
    const [only] = this.#pieces;
    const whole = this.#pieces.length === 1 && only !== undefined ? only : Buffer.concat(this.#pieces);
    this.#pieces = [];
    this.#bytes = 0;
    return Buffer.from(whole.buffer, whole.byteOffset, whole.length).toString("utf8").trim();
  }
}
