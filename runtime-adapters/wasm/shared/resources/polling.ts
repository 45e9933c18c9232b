/**
 * wasi:io/poll. A component waits for a `Readiness`, and the `Waiter` decides how: a component that uses files and
 * clocks alone blocks its thread (`BlockingWaiter`), one with a network gives the thread to the event loop
 * (`event-loop.ts`).
 */
import { type HandlePool, HostResource, trap } from "./handles.ts";

const NANOSECONDS_PER_MS = 1_000_000;
/** A sleep is cut into pieces of this length, so that its number stays exact. */
const MAX_SLEEP_MS = 3_600_000;

export interface Sleeper {
  /** Nanoseconds of the monotonic clock. */
  now(): bigint;
  /** Blocks the thread. */
  sleep(milliseconds: number): void;
}

/** An event that may still have to happen. */
export interface Readiness {
  /** On the monotonic clock: when time alone makes it ready. */
  readonly at?: bigint | undefined;
  ready(): boolean;
  /**
   * Calls `wake` once when it may have become ready. Missing where only time makes it ready.
   * @returns a function that cancels the wait
   */
  onReady?(wake: () => void): () => void;
}

/** An operation that has been started and takes time. */
export interface StartedOperation<R> extends Readiness {
  /** Once it is ready. Throws as the host function does that has begun it. */
  result(): R;
}

export interface Waiter {
  /** The operation of the host function that is under way, kept from its first attempt to those after a wait. */
  begun?: unknown;
  /** Nanoseconds of the monotonic clock. */
  now(): bigint;
  /**
   * Called when none of `wanted` is ready. Returns when one of them may be. On an event loop it throws `WouldBlock`
   * instead. The host function that called it must have changed nothing before, because it is called again with the
   * same arguments once one of them is ready.
   */
  wait(wanted: readonly Readiness[]): void;
}

/**
 * Goes up to where the component's stack can be set aside. An Error, for the glue takes anything else for a result, but
 * not made as one: writing the stack down would cost more than the call.
 */
export class WouldBlock {
  readonly wanted: readonly Readiness[];

  constructor(wanted: readonly Readiness[]) {
    this.wanted = wanted;
  }
}
Object.setPrototypeOf(WouldBlock.prototype, Error.prototype);

export class Pollable extends HostResource {
  /** `undefined`: ready at any time. */
  readonly readiness: Readiness | undefined;
  readonly #poller: Poller;

  constructor(pool: HandlePool, poller: Poller, readiness: Readiness | undefined) {
    super(pool);
    this.#poller = poller;
    this.readiness = readiness;
  }

  ready(): boolean {
    return this.readiness === undefined || this.readiness.ready();
  }

  block(): void {
    this.#poller.poll([this]);
  }
}

export class Poller {
  readonly #waiter: Waiter;
  readonly #beforeWait: () => void;

  /** @param beforeWait runs each time before the component waits. */
  constructor(waiter: Waiter, beforeWait: () => void) {
    this.#waiter = waiter;
    this.#beforeWait = beforeWait;
  }

  now(): bigint {
    return this.#waiter.now();
  }

  timer(at: bigint): Readiness {
    return { at, ready: () => at <= this.#waiter.now() };
  }

  /** Indexes of those that are ready, at least one. */
  poll(pollables: readonly Pollable[]): Uint32Array {
    if (pollables.length === 0) throw trap("poll of no pollables never ends");
    for (let first = true; ; first = false) {
      const ready = pollables.flatMap((each, index) => (each.ready() ? [index] : []));
      if (ready.length > 0) return Uint32Array.from(ready);
      if (first) this.#beforeWait();
      this.#waiter.wait(pollables.flatMap(({ readiness }) => readiness ?? []));
    }
  }

  /**
   * Starts the operation, waits for it and returns its result. When the host function is called again after the wait,
   * it continues.
   */
  finish<R>(begin: () => StartedOperation<R>): R {
    this.#waiter.begun ??= begin();
    const begun = this.#waiter.begun as StartedOperation<R>;
    this.until(begun);
    return begun.result();
  }

  /** Waits until `readiness` is ready. */
  until(readiness: Readiness): void {
    if (readiness.ready()) return;
    this.#beforeWait();
    while (!readiness.ready()) this.#waiter.wait([readiness]);
  }
}

/** Time is all that can be waited for: everything else here is a file, which is ready at once. */
export class BlockingWaiter implements Waiter {
  readonly #sleeper: Sleeper;

  constructor(sleeper: Sleeper) {
    this.#sleeper = sleeper;
  }

  now(): bigint {
    return this.#sleeper.now();
  }

  wait(wanted: readonly Readiness[]): void {
    const first = earliest(wanted);
    if (first === undefined) throw trap("the component waits for what never comes");
    this.#sleeper.sleep(millisecondsUntil(first, this.#sleeper.now()));
  }
}

/** The first of the times at which one of them is ready. */
export function earliest(wanted: readonly Readiness[]): bigint | undefined {
  let first: bigint | undefined;
  for (const { at } of wanted) if (at !== undefined && (first === undefined || at < first)) first = at;
  return first;
}

/** Rounded up to a microsecond, so that one sleep is enough. */
export function millisecondsUntil(at: bigint, now: bigint): number {
  const nanoseconds = Number(at - now);
  return Math.min(Math.max(Math.ceil(nanoseconds / 1000) * 1000, 0) / NANOSECONDS_PER_MS, MAX_SLEEP_MS);
}
