/**
 * Hints for any number of readers: each has a set of dirty pods, so that a slow one misses nothing and queues nothing.
 */
import type { PodUid } from "@picolet/protocol/ports.ts";

interface Reader {
  readonly dirty: Set<PodUid>;
  wake: () => void;
}

export class HintFan {
  readonly #readers = new Set<Reader>();

  hint(uid: PodUid): void {
    for (const reader of this.#readers) {
      reader.dirty.add(uid);
      reader.wake();
    }
  }

  /** Ends when `signal` aborts. */
  async *read(signal: AbortSignal): AsyncGenerator<PodUid, void> {
    const reader: Reader = { dirty: new Set(), wake: () => undefined };
    const onAbort = (): void => reader.wake();
    signal.addEventListener("abort", onAbort, { once: true });
    this.#readers.add(reader);
    try {
      while (!signal.aborted) {
        const [next] = reader.dirty;
        if (next !== undefined) {
          reader.dirty.delete(next);
          yield next;
        } else {
          const { promise, resolve } = Promise.withResolvers<void>();
          reader.wake = resolve;
          await promise;
        }
      }
    } finally {
      this.#readers.delete(reader);
      signal.removeEventListener("abort", onAbort);
    }
  }
}
