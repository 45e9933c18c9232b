/** Pods that a runtime has and the store does not know: it was lost, or an earlier agent died at the wrong moment. */

import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type PodUid, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { retryDelay } from "../plan/retry-delay.ts";

/** Nobody waits for one that hangs; the others of its runtime do, if they are new. */
const TIMEOUT = seconds(10);
/** Inspections of one pod that fail for so long will not succeed; then new pods start beside it all the same. */
const PATIENCE = seconds(120);

export interface OrphanedPodsComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

export class OrphanedPods {
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Log;
  readonly #adopt: (found: DesiredPod) => void;
  /** Pods that were warned of, so that each is warned of once; no more than the runtimes list. */
  readonly #warned = new Set<PodUid>();

  /** @param adopt takes those that say what they are, each as soon as it has. */
  constructor(components: OrphanedPodsComponents, adopt: (found: DesiredPod) => void) {
    this.#clock = components.clock;
    this.#random = components.random;
    this.#log = components.log;
    this.#adopt = adopt;
  }

  /** Until each has been made out or was given up. @throws `cancelled` alone. */
  async identify(adapter: RuntimeAdapter, uids: readonly PodUid[], signal: AbortSignal): Promise<void> {
    await Promise.all(uids.map((uid) => this.#identifyOne(adapter, uid, signal)));
  }

  async #identifyOne(adapter: RuntimeAdapter, uid: PodUid, signal: AbortSignal): Promise<void> {
    const began = this.#clock.monotonic();
    const look = (deadline: AbortSignal) => adapter.inspect(uid, deadline);
    for (let tries = 1; ; tries += 1) {
      try {
        const seen = await withDeadline(this.#clock, TIMEOUT, `inspect pod ${uid}`, look, signal);
        if (seen.manifest !== undefined) {
          this.#log.info("adopting a pod that the store does not know", { pod: uid });
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
