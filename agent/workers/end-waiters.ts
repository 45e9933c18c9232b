import { cancelled } from "@picolet/protocol/async/abort.ts";

/** Who waits until nothing of a pod runs any more. */
export class EndWaiters {
  /** One for each caller that ends the pod: the evictor, the node's shutdown. */
  readonly #waiting = new Set<() => void>();
  #isOver = false;

  /** As it was seen last. */
  get isOver(): boolean {
    return this.#isOver;
  }

  settle(isOver: boolean): void {
    this.#isOver = isOver;
    if (!isOver) return;
    for (const tell of this.#waiting) tell();
    this.#waiting.clear();
  }

  /** @throws `cancelled` alone */
  wait(signal: AbortSignal): Promise<void> {
    if (this.#isOver) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        this.#waiting.delete(tell);
        reject(cancelled("the wait for a pod's end"));
      };
      const tell = (): void => {
        signal.removeEventListener("abort", giveUp);
        resolve();
      };
      this.#waiting.add(tell);
      signal.addEventListener("abort", giveUp, { once: true });
      if (signal.aborted) giveUp();
    });
  }
}
