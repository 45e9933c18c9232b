import type { WriteSlots } from "@picolet/hub-core/fairness/write-slots.ts";
import type { TimerWheel } from "@picolet/hub-core/timer-wheel.ts";
import { ignoreCancelled } from "@picolet/protocol/async/abort.ts";
import { type BackoffPolicy, backoffDelay, EQUAL_JITTER } from "@picolet/protocol/async/backoff.ts";
import type { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Log, type LogFields, type Millis, millis, type Random, seconds } from "@picolet/protocol/ports.ts";

/** The reports of one kind that wait to be written. */
export interface UpstreamQueue<T> {
  /** All items in the queue; undefined when it is empty. They stay in the queue. */
  peek(): T | undefined;
  write(batch: T, signal: AbortSignal): Promise<void>;
  /** The number of objects of `batch` that count against the node's rate. */
  costOf(batch: T): number;
  /** `batch` is written: it leaves the queue. */
  written(batch: T): void;
}

/** @param mayWait until there is something else to send */
export type Acknowledge<T> = (ack: T, mayWait: boolean) => void;

export interface UpstreamComponents {
  readonly random: Random;
  readonly log: Log;
  readonly node: string;
  readonly wheel: TimerWheel;
  /** Shared by the whole fleet. */
  readonly slots: WriteSlots;
}

/** A hub that was cut off from its API server must not come back to all sessions at once. */
const RETRY: BackoffPolicy = { first: seconds(1), max: seconds(30), jitter: EQUAL_JITTER };

/**
 * Writes what is in a queue, one batch at a time, until it is empty; then it rests. A batch that cannot be written is
 * tried again, together with what has come meanwhile, as long as the session lives.
 */
export class UpstreamWriter<T> {
  readonly #components: UpstreamComponents;
  readonly #what: string;
  readonly #queue: UpstreamQueue<T>;
  readonly #pace: RateLimits;
  readonly #signal: AbortSignal;
  #running: Promise<void> | undefined;

  /**
   * @param what for the log: "statuses"
   * @param pace how many objects each node may write; one that has written more waits, without a slot
   */
  constructor(
    components: UpstreamComponents,
    what: string,
    queue: UpstreamQueue<T>,
    pace: RateLimits,
    signal: AbortSignal,
  ) {
    this.#components = components;
    this.#what = what;
    this.#queue = queue;
    this.#pace = pace;
    this.#signal = signal;
  }

  /** There is something in the queue. */
  poke(): void {
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
      if (this.#queue.peek() !== undefined && !this.#signal.aborted) this.poke();
    });
  }

  /** Resolves when nothing is being written. */
  async settled(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    let failures = 0;
    for (let batch = this.#queue.peek(); batch !== undefined && !this.#signal.aborted; batch = this.#queue.peek()) {
      if (!(await this.#paced(this.#queue.costOf(batch)))) continue;
      const problem = await this.#attempt(batch);
      if (problem === undefined) {
        if (failures > 0) this.#components.log.info("the API server takes it again", { ...this.#fields, failures });
        failures = 0;
        this.#queue.written(batch);
      } else if (!isCancelled(problem)) {
        if (failures === 0) {
          const fields = { ...this.#fields, error: describeError(problem) };
          this.#components.log.warn("cannot write to the API server, will try again", fields);
        }
        failures += 1;
        await this.#sleep(backoffDelay(RETRY, failures, this.#components.random.next()));
      }
    }
  }

  get #fields(): LogFields {
    return { node: this.#components.node, what: this.#what };
  }

  async #attempt(batch: T): Promise<unknown> {
    try {
      const { slots, node } = this.#components;
      await slots.run(node, () => this.#queue.write(batch, this.#signal), this.#signal);
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** @returns false when it had to wait: the queue may hold something else by now */
  async #paced(cost: number): Promise<boolean> {
    const wait = this.#pace.take(this.#components.node, cost);
    if (wait === 0) return true;
    await this.#sleep(millis(wait));
    return false;
  }

  async #sleep(delay: Millis): Promise<void> {
    await this.#components.wheel.sleep(delay, this.#signal).catch(ignoreCancelled);
  }
}
