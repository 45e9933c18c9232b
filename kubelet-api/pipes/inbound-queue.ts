import { rejectOnAbort } from "@picolet/protocol/async/abort.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

/**
 * Bounds the unread bytes of one of several channels on one connection. When it is full, the whole connection is read
 * no further, as these protocols have no window for each channel.
 */
export const MAX_UNREAD_BYTES = 256 * KIBIBYTE;

/** Wakes up all that wait for a change. */
export class Waiters {
  readonly #waiting = new Set<() => void>();

  wake(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  /** Resolves with the next `wake`; rejects as `cancelled` when `signal` aborts. */
  async next(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.add(resolve);
    try {
      await rejectOnAbort(promise, signal, "the wait for a channel");
    } finally {
      this.#waiting.delete(resolve);
    }
  }
}

/** Bytes that have come, for one reader. */
export class InboundQueue {
  readonly #pieces: Uint8Array[] = [];
  readonly #waiters = new Waiters();
  #bytes = 0;
  #ended = false;

  get ended(): boolean {
    return this.#ended;
  }

  /** Bytes of memory of their own. After the end they are dropped. */
  push(bytes: Uint8Array): void {
    if (this.#ended || bytes.length === 0) return;
    this.#pieces.push(bytes);
    this.#bytes += bytes.length;
    this.#waiters.wake();
  }

  /** No more will come; what came can still be read. */
  end(): void {
    this.#ended = true;
    this.#waiters.wake();
  }

  /** Resolves when more may be pushed. */
  async room(signal: AbortSignal): Promise<void> {
    while (this.#bytes > MAX_UNREAD_BYTES && !this.#ended) await this.#waiters.next(signal);
  }

  async read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    while (this.#pieces.length === 0 && !this.#ended) await this.#waiters.next(signal);
    const piece = this.#pieces.shift();
    this.#bytes -= piece?.length ?? 0;
    this.#waiters.wake();
    return piece;
  }
}
