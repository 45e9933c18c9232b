/** wasi:random, from the kernel: opening /dev/urandom costs less memory than loading Node's crypto. */
import { closeSync, openSync, readSync } from "node:fs";
import { trap } from "../resources/handles.ts";

/** Bounds the bytes of one call, because the interface returns all of them at once. */
const MAX_RANDOM_BYTES = 1_048_576;

export class RandomBytes {
  #fd: number | undefined;

  take(length: bigint): Uint8Array {
    if (length > BigInt(MAX_RANDOM_BYTES)) throw trap(`more than ${MAX_RANDOM_BYTES} random bytes at once`);
    const bytes = new Uint8Array(Number(length));
    this.#fd ??= openSync("/dev/urandom", "r");
    for (let done = 0; done < bytes.length; ) done += readSync(this.#fd, bytes, done, bytes.length - done, null);
    return bytes;
  }

  u64(): bigint {
    return new DataView(this.take(8n).buffer).getBigUint64(0);
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
  }
}
