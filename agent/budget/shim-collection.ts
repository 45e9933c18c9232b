import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, seconds } from "@picolet/protocol/ports.ts";
import { IdleCollection } from "./idle-collection.ts";

/** Bounds CPU: a scan of all processes takes about 10 ms on a small board. */
const MIN_INTERVAL = seconds(30);
/** A shim is ended only when it is old, by which time nothing else may happen on the node. */
const MAX_INTERVAL = seconds(900);

export interface ShimCollectionComponents {
  readonly cri: { endLeakedShims(signal: AbortSignal): Promise<readonly number[]> };
  /** Fires whenever the agent has worked. */
  readonly changes: Watch<unknown>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Ends containerd's shims that no runtime reaches any more: after each event that may leave one, and now and then. */
export class ShimCollection implements Component {
  readonly name = "collection of lost shims";
  readonly #components: ShimCollectionComponents;
  readonly #alarm: Alarm;
  readonly #afterBursts: IdleCollection;

  constructor(components: ShimCollectionComponents) {
    const { changes, clock } = components;
    this.#components = components;
    this.#alarm = new Alarm(clock);
    const collect = (): void => this.#alarm.set(millis(0));
    this.#afterBursts = new IdleCollection({ changes, collect, clock }, { minInterval: MIN_INTERVAL });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { log } = this.#components;
    const collect = async (): Promise<void> => {
      for (;;) {
        this.#alarm.set(MAX_INTERVAL);
        await this.#alarm.ring(signal);
        const pids = await this.#components.cri.endLeakedShims(signal);
        if (pids.length > 0) log.info("ended shims that containerd has lost", { pids });
      }
    };
    const collecting = async (): Promise<void> => {
      while (!signal.aborted) {
        await collect().catch((error: unknown) => {
          if (!isCancelled(error)) log.warn("cannot find lost shims", { error: describeError(error) });
        });
      }
    };
    await Promise.all([this.#afterBursts.run(signal), collecting()]);
  }
}
