import type { Component } from "../../protocol/async/component.ts";
import type { Watch } from "../../protocol/async/watch.ts";
import { isCancelled } from "../../protocol/errors.ts";
import { type Clock, type Millis, seconds } from "../../protocol/ports.ts";

/** Nothing has happened for so long: the garbage of what happened before is all there will be. */
const QUIET = seconds(10);
/** A collection of memory costs some 30 ms here and 200 ms on a small board: 0.1 % of a core at the most. */
const MIN_INTERVAL = seconds(200);

export interface IdleCollectionInit {
  readonly name?: string;
  /** Between two collections. Default: 200 s. */
  readonly minInterval?: Millis;
}

/**
 * Gives memory back after a burst. V8 alone leaves the heap as large as the burst made it until it has reason to
 * collect, which on an idle node is never: 3 MiB after fifty pods were started.
 */
export class IdleCollection implements Component {
  readonly name: string;
  readonly #minInterval: Millis;
  readonly #changes: Watch<unknown>;
  readonly #collect: () => void;
  readonly #clock: Clock;
  /** The last change whose garbage has been collected. */
  #collectedFor: unknown = this;

  /** @param components `changes`: fires whenever the agent has worked; `collect`: of memory, a full, compacting collection */
  constructor(
    components: { readonly changes: Watch<unknown>; readonly collect: () => void; readonly clock: Clock },
    { name = "idle collection", minInterval = MIN_INTERVAL }: IdleCollectionInit = {},
  ) {
    this.name = name;
    this.#minInterval = minInterval;
    this.#changes = components.changes;
    this.#collect = components.collect;
    this.#clock = components.clock;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      for await (const _ of this.#changes.changes(signal)) await this.#collectWhenQuiet(signal);
    } catch (error) {
      if (!isCancelled(error)) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is held.
  }

  async #collectWhenQuiet(signal: AbortSignal): Promise<void> {
    if (this.#changes.current === this.#collectedFor) return;
    for (let seen: unknown; seen !== this.#changes.current; ) {
      seen = this.#changes.current;
      await this.#clock.sleep(QUIET, signal);
    }
    this.#collectedFor = this.#changes.current;
    this.#collect();
    await this.#clock.sleep(this.#minInterval, signal);
  }
}
