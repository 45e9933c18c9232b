import { wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";

/** Pods of which something may have changed, each once: no longer than there are pods. */
export class HintQueue {
  readonly #pending = new Set<PodUid>();
  #wake: (() => void) | undefined;

  add(uid: PodUid): void {
    this.#pending.add(uid);
    this.#wake?.();
  }

  /** For one reader. Ends when `signal` aborts. */
  async *take(signal: AbortSignal): AsyncGenerator<PodUid> {
    while (!signal.aborted) {
      const [next] = this.#pending;
      if (next === undefined) await this.#change(signal);
      else {
        this.#pending.delete(next);
        yield next;
      }
    }
  }

  #change(signal: AbortSignal): Promise<void> {
    return wokenOrAborted(signal, (wake) => {
      this.#wake = wake;
      return () => {
        this.#wake = undefined;
      };
    });
  }
}
