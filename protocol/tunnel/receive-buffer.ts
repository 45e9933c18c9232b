/** Chunks smaller than this share a block, so that a peer that sends byte by byte makes us keep no more than bytes. */
const BLOCK_BYTES = 1024;

interface Block {
  readonly bytes: Uint8Array;
  used: number;
}

/**
 * The bytes of a stream that were received and not read yet. It keeps copies: a view would keep the socket's whole
 * buffer for a single byte. Its size is bounded by the stream's window; at most one more block is allocated.
 */
export class ReceiveBuffer {
  readonly #blocks: Block[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  push(bytes: Uint8Array): void {
    this.#length += bytes.length;
    const tail = this.#blocks.at(-1);
    const room = tail === undefined ? 0 : Math.min(tail.bytes.length - tail.used, bytes.length);
    if (tail !== undefined && room > 0) {
      tail.bytes.set(bytes.subarray(0, room), tail.used);
      tail.used += room;
    }
    if (room === bytes.length) return;
    const rest = bytes.subarray(room);
    const block = new Uint8Array(Math.max(rest.length, BLOCK_BYTES));
    block.set(rest);
    this.#blocks.push({ bytes: block, used: rest.length });
  }

  /** The oldest of it; undefined when there is none. */
  shift(): Uint8Array | undefined {
    const block = this.#blocks.shift();
    if (block === undefined) return undefined;
    this.#length -= block.used;
    return block.bytes.subarray(0, block.used);
  }

  clear(): void {
    this.#blocks.length = 0;
    this.#length = 0;
  }
}
