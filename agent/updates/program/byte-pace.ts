import { type Clock, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";

/** Holds a transfer within a number of bytes a second, over all connections that share it. */
export class BytePace {
  readonly #clock: Pick<Clock, "monotonic" | "sleep">;
  readonly #bytesPerSecond: number;
  /** When the bytes so far would have been there at exactly that rate. */
  #paidUntil: MonotonicMs;

  /** @param bytesPerSecond 0: no limit */
  constructor(clock: Pick<Clock, "monotonic" | "sleep">, bytesPerSecond: number) {
    this.#clock = clock;
    this.#bytesPerSecond = bytesPerSecond;
    this.#paidUntil = clock.monotonic();
  }

  /** Resolves when the next bytes may be read. A time without transfer saves up nothing. */
  async passed(bytes: number, signal: AbortSignal): Promise<void> {
    if (this.#bytesPerSecond === 0) return;
    const now = this.#clock.monotonic();
    const from = Math.max(this.#paidUntil, now);
    this.#paidUntil = (from + (bytes / this.#bytesPerSecond) * 1000) as MonotonicMs;
    const wait = this.#paidUntil - now;
    if (wait > 0) await this.#clock.sleep(millis(wait), signal);
  }
}
