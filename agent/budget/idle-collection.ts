import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { type Clock, type Millis, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

/** Nothing has happened for so long: the garbage of what happened before is all there will be. */
const QUIET = seconds(10);
/** A collection of memory costs some 60 ms here and 400 ms on a small board: 0.2 % of a core at the most. */
const MIN_INTERVAL = seconds(200);
/** The wait after a burst: what it leaves to be written and sent, mainly events, is done a minute later. */
const TAIL = seconds(75);
const CHECK_INTERVAL = seconds(60);
/** Less is not worth the time. */
const GROWTH_BYTES = 768 * KIBIBYTE;
/**
 * An agent at rest allocates some 20 KB a second, so that not more than the first of the young generation's pages, of
 * 256 KiB, is ever touched of either half. V8 itself collects when one half is full, 1 MiB, and then both stay
 * resident. Nearly nothing of what was allocated lives: 0.3 ms here, 0.006 % of a core.
 */
const YOUNG_INTERVAL = seconds(5);

export interface IdleCollectionComponents {
  /** Fires whenever the agent has worked. */
  readonly changes: Watch<unknown>;
  /** `burst`: everything that is not needed at rest goes; `rest`: what runs at rest once in a while stays compiled. */
  readonly collect: (after: "burst" | "rest") => void;
  /** Collects the young generation alone. Missing: V8 does when it is full. */
  readonly collectYoung?: () => void;
  /** In use now, in bytes. Missing: what comes to be without a burst is not collected. */
  readonly memory?: () => number;
  readonly clock: Clock;
}

export interface IdleCollectionInit {
  readonly name?: string;
  /** The time between two collections, except those after a burst. Default: 200 s. */
  readonly minInterval?: Millis;
}

/**
 * Gives memory back after a burst. V8 alone leaves the heap as large as the burst made it until it has reason to
 * collect, which on an idle node is never: 3 MiB after fifty pods were started, and 2 of what the agent does at rest.
 * And it keeps the young generation from growing at rest to what V8 allows it.
 */
export class IdleCollection implements Component {
  readonly name: string;
  readonly #minInterval: Millis;
  readonly #components: IdleCollectionComponents;
  /** The last change whose garbage has been collected. */
  #collectedFor: unknown = this;
  #collectedAt: MonotonicMs;
  /** The heap in use after the last collection. */
  #floorBytes = Number.POSITIVE_INFINITY;

  constructor(
    components: IdleCollectionComponents,
    { name = "idle collection", minInterval = MIN_INTERVAL }: IdleCollectionInit = {},
  ) {
    this.name = name;
    this.#minInterval = minInterval;
    this.#components = components;
    this.#collectedAt = components.clock.monotonic();
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#afterBursts(signal), this.#atRest(signal), this.#ofYoung(signal)]);
  }

  async #afterBursts(signal: AbortSignal): Promise<void> {
    const { changes, clock, memory } = this.#components;
    for await (const _ of changes.changes(signal)) {
      if (changes.current === this.#collectedFor) continue;
      await this.#collectWhenQuiet(signal);
      if (memory !== undefined) {
        await clock.sleep(TAIL, signal);
        if (this.#hasGrown()) await this.#collectWhenQuiet(signal);
      }
      await clock.sleep(this.#minInterval, signal);
    }
  }

  async #atRest(signal: AbortSignal): Promise<void> {
    const { clock, memory } = this.#components;
    while (memory !== undefined) {
      await clock.sleep(CHECK_INTERVAL, signal);
      if (clock.monotonic() - this.#collectedAt >= this.#minInterval && this.#hasGrown()) this.#collect("rest");
    }
  }

  async #ofYoung(signal: AbortSignal): Promise<void> {
    const { clock, collectYoung } = this.#components;
    while (collectYoung !== undefined) {
      await clock.sleep(YOUNG_INTERVAL, signal);
      collectYoung();
    }
  }

  #hasGrown(): boolean {
    return (this.#components.memory?.() ?? 0) - this.#floorBytes >= GROWTH_BYTES;
  }

  async #collectWhenQuiet(signal: AbortSignal): Promise<void> {
    const { changes, clock } = this.#components;
    for (let seen: unknown = this; seen !== changes.current; ) {
      seen = changes.current;
      await clock.sleep(QUIET, signal);
    }
    this.#collectedFor = changes.current;
    this.#collect("burst");
  }

  #collect(after: "burst" | "rest"): void {
    const { collect, memory, clock } = this.#components;
    collect(after);
    this.#collectedAt = clock.monotonic();
    this.#floorBytes = memory?.() ?? Number.POSITIVE_INFINITY;
  }
}
