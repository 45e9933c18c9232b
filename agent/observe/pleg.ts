import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import type { Clock, Log, PodUid, Random } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import type { PodObserver, PodObserverSink } from "../core/pods/pod-observer.ts";
import { RuntimeWatcher } from "./runtime-watcher.ts";

export interface PlegComponents {
  readonly adapters: readonly RuntimeAdapter[];
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly counts?: NodeCounts;
}

/**
 * The pod lifecycle event generator: reports each pod in which something may have happened. Each runtime has a watcher
 * of its own, so that one that hangs delays no other.
 */
export class Pleg implements Component, PodObserver {
  readonly name = "pleg";
  readonly #watchers: ReadonlyMap<RuntimeAdapter, RuntimeWatcher>;
  readonly #sinks = new Set<PodObserverSink>();
  readonly #health = new WatchSource<readonly RuntimeHealth[]>([]);

  constructor(components: PlegComponents) {
    const sink: PodObserverSink = {
      podChanged: (adapter, uid, why) => {
        for (const each of this.#sinks) each.podChanged(adapter, uid, why);
      },
      listed: (adapter) => {
        for (const each of this.#sinks) each.listed(adapter);
      },
    };
    const { adapters } = components;
    this.#watchers = new Map(
      adapters.map((adapter) => [
        adapter,
        new RuntimeWatcher({ ...components, adapter, sink, healthChanged: () => this.#updateHealth() }),
      ]),
    );
  }

  /**
   * The health of every runtime, in their order; empty until each has answered or failed once. Changes with `healthy`
   * only.
   */
  get health(): Watch<readonly RuntimeHealth[]> {
    return this.#health;
  }

  listing(adapter: RuntimeAdapter): ReadonlyMap<PodUid, string> | undefined {
    return this.#watchers.get(adapter)?.listing;
  }

  observe(sink: PodObserverSink): Disposable {
    this.#sinks.add(sink);
    return { [Symbol.dispose]: () => this.#sinks.delete(sink) };
  }

  expect(adapter: RuntimeAdapter, uid: PodUid): void {
    this.#watchers.get(adapter)?.expect(uid);
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([...this.#watchers.values()].map((watcher) => watcher.run(signal)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#sinks.clear();
  }

  #updateHealth(): void {
    const all = [...this.#watchers.values()].map((watcher) => watcher.health);
    const known = all.filter((each) => each !== undefined);
    if (known.length === all.length) this.#health.set(known);
  }
}
