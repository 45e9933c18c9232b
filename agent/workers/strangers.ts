/** Pods that a runtime has and the store does not know: it was lost, or an earlier agent died at the wrong moment. */
import { describeError, isCancelled } from "../../protocol/errors.ts";
import { type Clock, type Log, type PodUid, seconds } from "../../protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { withDeadline } from "../core/deadline.ts";
import type { DesiredStore } from "../core/store.ts";

/** As for any inspection, but others wait for it. */
const TIMEOUT = seconds(10);

export class Strangers {
  readonly #store: DesiredStore;
  readonly #clock: Clock;
  readonly #log: Log;
  /** Pods that were warned of, so that each is warned of once; no more than the runtimes list. */
  readonly #warned = new Set<PodUid>();

  constructor(components: { readonly store: DesiredStore; readonly clock: Clock; readonly log: Log }) {
    this.#store = components.store;
    this.#clock = components.clock;
    this.#log = components.log;
  }

  /**
   * Hands those that say what they are to the store, which knows whether they are still wanted; the others are left
   * alone. Never throws but for `cancelled`. What could not be inspected is tried again when it is listed anew.
   */
  async identify(adapter: RuntimeAdapter, uids: readonly PodUid[], signal: AbortSignal): Promise<void> {
    const manifests = await Promise.all(uids.map((uid) => this.#manifest(adapter, uid, signal)));
    const found = manifests.filter((each) => each !== undefined);
    if (found.length === 0) return;
    this.#log.info("adopting pods that the store does not know", { pods: found.map((each) => each.uid) });
    this.#store.adopt(found);
  }

  async #manifest(adapter: RuntimeAdapter, uid: PodUid, signal: AbortSignal): Promise<DesiredPod | undefined> {
    try {
      const look = (deadline: AbortSignal) => adapter.inspect(uid, deadline);
      const observed = await withDeadline(this.#clock, TIMEOUT, `inspect pod ${uid}`, look, signal);
      if (observed.manifest !== undefined) return observed.manifest;
      if (observed.sandboxes.length > 0 || observed.containers.length > 0)
        this.#warn(uid, "it does not say what it is");
    } catch (error) {
      if (isCancelled(error)) throw error;
      this.#warn(uid, describeError(error));
    }
    return undefined;
  }

  #warn(uid: PodUid, why: string): void {
    if (this.#warned.has(uid)) return;
    this.#warned.add(uid);
    this.#log.warn("leaving an unknown pod alone", { pod: uid, why });
  }
}
