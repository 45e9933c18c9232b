import { type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { retryDelay } from "../plan/retry-delay.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";

/** When the next round of one pod's worker is due, and what breaks one off. */
export class WorkerRounds {
  readonly #ports: Pick<WorkerPorts, "log" | "events" | "random">;
  readonly #alarm: Alarm;
  /** In a row. */
  #broken = 0;
  #round: JoinedSignal | undefined;

  constructor(ports: Pick<WorkerPorts, "log" | "events" | "random" | "clock">) {
    this.#ports = ports;
    this.#alarm = new Alarm(ports.clock);
  }

  /** The next one is due after `wait`, if it is not due before. */
  dueIn(wait: Millis): void {
    this.#alarm.set(wait);
  }

  /** Until something is due. @throws `cancelled` alone */
  due(signal: AbortSignal): Promise<void> {
    return this.#alarm.ring(signal);
  }

  /** Whatever is under way is dropped. */
  breakOff(): void {
    this.#round?.abort();
  }

  /** @param signal of the worker. @throws `cancelled` alone, when `signal` aborts */
  async run(
    desired: () => DesiredPod,
    round: (signal: AbortSignal) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    using joined = joinSignals(signal);
    this.#round = joined;
    try {
      await round(joined.signal);
      this.#broken = 0;
    } catch (error) {
      if (signal.aborted) throw error;
      if (!isCancelled(error)) this.#broke(desired(), error);
    } finally {
      this.#round = undefined;
    }
  }

  /** A fault of ours that this pod has brought to light is no reason to leave the others alone. */
  #broke(desired: DesiredPod, error: unknown): void {
    const { log, events, random } = this.#ports;
    this.#broken += 1;
    // One that says what is wrong needs none.
    const isTold = isPicoletError(error) && error.code !== "internal";
    const stack = error instanceof Error && !isTold ? { stack: error.stack ?? "" } : {};
    log.error("cannot go on with a pod for now", { pod: desired.uid, error: describeError(error), ...stack });
    events.record(desired, "Warning", "FailedSync", `error syncing pod: ${describeError(error)}`);
    this.#alarm.set(retryDelay(this.#broken, random));
  }
}
