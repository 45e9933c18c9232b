/** wasi:io/poll. Everything here is ready at once but time itself, so that waiting means sleeping. */
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

export class Pollable extends HostResource {
  /** On the monotonic clock; `undefined`: ready at any time. */
  readonly readyAt: bigint | undefined;
  readonly #poller: Poller;

  constructor(pool: HandlePool, poller: Poller, readyAt: bigint | undefined) {
    super(pool);
    this.#poller = poller;
    this.readyAt = readyAt;
  }

  ready(): boolean {
    return this.#poller.isReady(this);
  }

  block(): void {
    this.#poller.poll([this]);
  }
}

export class Poller {
  readonly #sleeper: Sleeper;
  readonly #beforeSleep: () => void;

  /** @param beforeSleep runs each time before the thread blocks. */
  constructor(sleeper: Sleeper, beforeSleep: () => void) {
    this.#sleeper = sleeper;
    this.#beforeSleep = beforeSleep;
  }

  isReady(pollable: Pollable): boolean {
    return pollable.readyAt === undefined || pollable.readyAt <= this.#sleeper.now();
  }

  /** Indexes of those that are ready, at least one. */
  poll(pollables: readonly Pollable[]): Uint32Array {
    if (pollables.length === 0) throw trap("poll of no pollables never ends");
    let ready = this.#ready(pollables);
    if (ready.length === 0) this.#beforeSleep();
    while (ready.length === 0) {
      this.#sleeper.sleep(this.#untilFirst(pollables));
      ready = this.#ready(pollables);
    }
    return Uint32Array.from(ready);
  }

  #ready(pollables: readonly Pollable[]): number[] {
    const ready: number[] = [];
    let now: bigint | undefined;
    for (const [index, { readyAt }] of pollables.entries()) {
      if (readyAt !== undefined) now ??= this.#sleeper.now();
      if (readyAt === undefined || now === undefined || readyAt <= now) ready.push(index);
    }
    return ready;
  }

  /** Milliseconds, rounded up to a microsecond so that one sleep is enough. */
  #untilFirst(pollables: readonly Pollable[]): number {
    let first: bigint | undefined;
    for (const { readyAt } of pollables) {
      if (readyAt !== undefined && (first === undefined || readyAt < first)) first = readyAt;
    }
    if (first === undefined) return 0;
    const nanoseconds = Number(first - this.#sleeper.now());
    return Math.min(Math.max(Math.ceil(nanoseconds / 1000) * 1000, 0) / NANOSECONDS_PER_MS, MAX_SLEEP_MS);
  }
}
