import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";

/** Between two looks whether its event loop comes round. */
const PING_INTERVAL = seconds(5);
/** While it does not. */
const CHECK_INTERVAL = millis(200);

/** The process that is watched. */
export interface WatchedProcess {
  isAlive(): boolean;
  hasContainers(): boolean;
  /** CPU time of all its threads. */
  cpuMs(): number;
  /** Resolves when its event loop has come round; undefined: there is no link. */
  ping(): Promise<unknown> | undefined;
  /** It has computed for so long without coming back to its event loop. */
  stuck(): void;
}

export interface TurnWatchInit {
  /** CPU time that one component may take without its process coming back to its event loop. */
  readonly turnTimeout: Millis;
}

/** While a process has containers: one of them may keep the others from ever running. */
export class TurnWatch {
  readonly #components: { readonly clock: Clock; readonly disposed: AbortSignal };
  readonly #init: TurnWatchInit;
  readonly #process: WatchedProcess;
  #watching = false;

  constructor(
    components: { readonly clock: Clock; readonly disposed: AbortSignal },
    init: TurnWatchInit,
    process: WatchedProcess,
  ) {
    this.#components = components;
    this.#init = init;
    this.#process = process;
  }

  /** Goes on for as long as there are containers. */
  begin(): void {
    if (this.#watching) return;
    this.#watching = true;
    void this.#watched()
      .catch(ignore("the watch ends with the adapter"))
      .finally(() => {
        this.#watching = false;
      });
  }

  async #watched(): Promise<void> {
    const { clock, disposed } = this.#components;
    const { turnTimeout } = this.#init;
    const process = this.#process;
    const interval = millis(Math.min(PING_INTERVAL, turnTimeout));
    while (process.hasContainers()) {
      await clock.sleep(interval, disposed);
      const ranBefore = process.cpuMs();
      let answered = false;
      const answer = process.ping()?.then(() => {
        answered = true;
      });
      while (!answered && process.isAlive()) {
        await Promise.race([answer, clock.sleep(CHECK_INTERVAL, disposed)]);
        // Measured in its own CPU time: on a busy board, or with a CPU limit, it may just not have come round.
        if (!answered && process.cpuMs() - ranBefore >= turnTimeout) process.stuck();
      }
      if (!process.isAlive()) return;
    }
  }
}
