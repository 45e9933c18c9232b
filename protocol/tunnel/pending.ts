import { cancelled } from "../async/abort.ts";
import type { PicoletError } from "../errors.ts";

/** An answer that a caller waits for until its signal aborts. It settles once; later answers are ignored. */
export class PendingAnswer<T> {
  readonly promise: Promise<T>;
  readonly #settle: (finish: () => void) => void;
  readonly #resolve: (value: T) => void;
  readonly #reject: (error: PicoletError) => void;

  /**
   * @param what for the message of `cancelled`: "the ping"
   * @param onSettled called once, before the waiting caller continues
   */
  constructor(what: string, signal: AbortSignal, onSettled: (pending: PendingAnswer<T>) => void) {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.promise = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    const giveUp = (): void => this.reject(cancelled(what));
    let isSettled = false;
    this.#settle = (finish) => {
      if (isSettled) return;
      isSettled = true;
      signal.removeEventListener("abort", giveUp);
      onSettled(this);
      finish();
    };
    signal.addEventListener("abort", giveUp, { once: true });
    if (signal.aborted) queueMicrotask(giveUp);
  }

  resolve(value: T): void {
    this.#settle(() => this.#resolve(value));
  }

  reject(error: PicoletError): void {
    this.#settle(() => this.#reject(error));
  }
}
