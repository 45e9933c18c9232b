/** How the workers learn that something happened in a runtime. `agent/observe` implements it. */
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";

export interface PodObserver {
  /** The pods of the last relist, by uid, with their versions; `undefined` until there has been one. */
  listing(adapter: RuntimeAdapter): ReadonlyMap<PodUid, string> | undefined;
  observe(sink: PodObserverSink): Disposable;
  /** The caller has changed something of this pod: it will be listed with another version, and more may follow. */
  expect(adapter: RuntimeAdapter, uid: PodUid): void;
}

export interface PodObserverSink {
  /**
   * Something of this pod may have changed, or it is gone.
   * @param why a hint may come a moment before the change shows; what a relist found, shows.
   */
  podChanged(adapter: RuntimeAdapter, uid: PodUid, why: "hint" | "relist"): void;
  /** The runtime has been listed for the first time, or again after it could not be. */
  listed(adapter: RuntimeAdapter): void;
}
