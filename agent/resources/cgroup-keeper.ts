import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodCgroups } from "./pod-cgroups.ts";
import type { ReservedCgroups } from "./reserved-cgroups.ts";

export interface CgroupKeeperComponents {
  readonly cgroups: PodCgroups;
  /** Missing: nothing is reserved. */
  readonly reserved: ReservedCgroups | undefined;
  /** The pods whose cgroups exist and are not about to change. */
  readonly pods: () => readonly DesiredPod[];
  /** Fires when there may be others. */
  readonly changes: Watch<unknown>;
  /** The connection to systemd, if it manages the cgroups; closed at the end. */
  readonly units: Disposable | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The interval at which the kubelet updates the cgroups of its QoS classes. A check reads about ten small files for
 * each pod.
 */
const INTERVAL = seconds(60);

/** Checks once a minute, while there are pods, that their cgroups have the values that were written. */
export class CgroupKeeper implements Component {
  readonly name = "cgroup keeper";
  readonly #components: CgroupKeeperComponents;
  #logged = "";

  constructor(components: CgroupKeeperComponents) {
    this.#components = components;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { pods, reserved, changes, clock } = this.#components;
    for (;;) {
      if (reserved === undefined && pods().length === 0)
        for await (const _ of changes.changes(signal)) if (pods().length > 0) break;
      await this.#check();
      await clock.sleep(INTERVAL, signal);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#components.units?.[Symbol.dispose]();
  }

  async #check(): Promise<void> {
    const { cgroups, reserved, pods, log } = this.#components;
    try {
      await reserved?.reconcile();
      await cgroups.reconcile(pods);
      this.#logged = "";
    } catch (error) {
      const message = describeError(error);
      if (message !== this.#logged) log.warn("cannot keep the cgroups of pods as they should be", { error: message });
      this.#logged = message;
    }
  }
}
