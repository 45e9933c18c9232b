import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** The manifests of one source, by pod name; they outlive the agent. */
export class Manifests {
  readonly #watch = new WatchSource<ReadonlyMap<string, DesiredPod>>(new Map());

  get watch(): Watch<ReadonlyMap<string, DesiredPod>> {
    return this.#watch;
  }

  get current(): ReadonlyMap<string, DesiredPod> {
    return this.#watch.current;
  }

  put(pod: DesiredPod): void {
    this.#watch.set(new Map(this.current).set(pod.pod.metadata.name, pod));
  }

  remove(name: string): void {
    const next = new Map(this.current);
    next.delete(name);
    this.#watch.set(next);
  }
}
