/** Decides which incarnation of each namespace and name may start on this node; the others wait. */
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

export const nameKeyOf = ({ pod }: DesiredPod): string => `${pod.metadata.namespace}/${pod.metadata.name}`;

export class NameClaims {
  /** The first of each set owns the name. At most one entry for each pod with a worker. */
  readonly #holders = new Map<string, Set<PodUid>>();

  /**
   * Takes the name for a new pod, unless another has it.
   * @returns the pod to wait for; `undefined` when the name is this pod's.
   */
  claim(desired: DesiredPod): PodUid | undefined {
    const holders = this.#holdersOf(desired);
    const [owner] = holders;
    if (owner === undefined) holders.add(desired.uid);
    return owner === desired.uid ? undefined : owner;
  }

  /** A pod that may have traces gets its name before all that have none. */
  occupy(desired: DesiredPod): void {
    this.#holdersOf(desired).add(desired.uid);
  }

  release(desired: DesiredPod): void {
    const key = nameKeyOf(desired);
    const holders = this.#holders.get(key);
    holders?.delete(desired.uid);
    if (holders?.size === 0) this.#holders.delete(key);
  }

  #holdersOf(desired: DesiredPod): Set<PodUid> {
    const key = nameKeyOf(desired);
    const known = this.#holders.get(key);
    if (known !== undefined) return known;
    const made = new Set<PodUid>();
    this.#holders.set(key, made);
    return made;
  }
}
