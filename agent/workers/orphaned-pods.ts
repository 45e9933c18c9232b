/**
 * Identifies pods that a runtime has and the store does not know, because the store was lost or an earlier agent died
 * between two steps.
 */

import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type PodUid, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import { retryDelay } from "../plan/retry-delay.ts";

/** Bounds one inspection. New pods of the runtime wait for it, because an orphan may have their name. */
const TIMEOUT = seconds(10);
/** After failing inspections for this long an orphan is given up, and new pods start beside it. */
const PATIENCE = seconds(120);

export interface OrphanedPodsComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
}

export class OrphanedPods {
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Log;
  readonly #counts: NodeCounts | undefined;
  readonly #adopt: (found: DesiredPod) => void;
  /** Pods that were logged, so that each is logged once. At most those that the runtimes list. */
  readonly #warned = new Set<PodUid>();

  /** @param adopt called for each pod whose manifest is found */
  constructor(components: OrphanedPodsComponents, adopt: (found: DesiredPod) => void) {
    this.#clock = components.clock;
    this.#random = components.random;
    this.#log = components.log;
    this.#adopt = adopt;
    this.#counts = components.counts;
  }

  /** Resolves when each is identified or given up. @throws `cancelled` alone */
  async identify(adapter: RuntimeAdapter, uids: readonly PodUid[], signal: AbortSignal): Promise<void> {
    await Promise.all(uids.map((uid) => this.#identifyOne(adapter, uid, signal)));
  }

  async #identifyOne(adapter: RuntimeAdapter, uid: PodUid, signal: AbortSignal): Promise<void> {
    const began = this.#clock.monotonic();
    const inspect = (deadline: AbortSignal) => adapter.inspect(uid, deadline);
    for (let tries = 1; ; tries += 1) {
      try {
        const seen = await withDeadline(this.#clock, TIMEOUT, `inspect pod ${uid}`, inspect, signal);
        if (seen.manifest !== undefined) {
          this.#log.info("adopting a pod that the store does not know", { pod: uid });
          this.#counts?.add("kubelet_orphaned_runtime_pods_total");
          this.#adopt(seen.manifest);
        } else if (seen.sandboxes.length + seen.containers.length > 0) this.#warn(uid, "it does not say what it is");
        return;
      } catch (error) {
        if (isCancelled(error)) throw error;
        if (this.#clock.monotonic() - began >= PATIENCE) return this.#warn(uid, describeError(error));
        await this.#clock.sleep(retryDelay(tries, this.#random), signal);
      }
    }
  }

  #warn(uid: PodUid, why: string): void {
    if (this.#warned.has(uid)) return;
    this.#warned.add(uid);
    this.#log.warn("leaving an unknown pod alone", { pod: uid, why });
  }
}
