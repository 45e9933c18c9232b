import { type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";

/** The timer and the signal of one worker's rounds. */
export class WorkerRounds {
  readonly #alarm: Alarm;
  #round: JoinedSignal | undefined;

  constructor(clock: Clock) {
    this.#alarm = new Alarm(clock);
  }

  /** The next round is due in `wait` at the latest. */
  dueIn(wait: Millis): void {
    this.#alarm.set(wait);
  }

  /** Resolves when a round is due. @throws `cancelled` alone */
  due(signal: AbortSignal): Promise<void> {
    return this.#alarm.ring(signal);
  }

  /** Cancels the round that is under way. */
  breakOff(): void {
    this.#round?.abort();
  }

  /** @param life of the worker. @throws what the round throws */
  async run(round: (signal: AbortSignal) => Promise<void>, life: AbortSignal): Promise<void> {
    using joined = joinSignals(life);
    this.#round = joined;
    try {
      await round(joined.signal);
    } finally {
      this.#round = undefined;
    }
  }
}
