import type { PodUid } from "@picolet/protocol/ports.ts";
import type { NumaMask } from "../topology/numa-hints.ts";
import type { DeviceAnswer } from "./device-plugin-messages.ts";

/** Devices of one resource that one container has. */
export interface Allocation {
  readonly uid: PodUid;
  readonly container: string;
  readonly resource: string;
  readonly ids: readonly string[];
  /** Where they should be, until the provider has allocated them; undefined: anywhere. */
  readonly nodes?: NumaMask | undefined;
  /** Undefined: the provider was not asked yet. */
  readonly answer: DeviceAnswer | undefined;
}

/** The devices of each container. */
export class DeviceAllocations {
  #all: readonly Allocation[];

  constructor(all: readonly Allocation[] = []) {
    this.#all = all;
  }

  get all(): readonly Allocation[] {
    return this.#all;
  }

  of(uid: PodUid, container?: string): readonly Allocation[] {
    return this.#all.filter((each) => each.uid === uid && (container === undefined || each.container === container));
  }

  get(uid: PodUid, container: string, resource: string): Allocation | undefined {
    return this.of(uid, container).find((each) => each.resource === resource);
  }

  /** @param except allocations that do not count */
  inUse(resource: string, except: (allocation: Allocation) => boolean = () => false): ReadonlySet<string> {
    const counted = this.#all.filter((each) => each.resource === resource && !except(each));
    return new Set(counted.flatMap(({ ids }) => ids));
  }

  put(allocation: Allocation): void {
    const { uid, container, resource } = allocation;
    const isSame = (each: Allocation): boolean =>
      each.uid === uid && each.container === container && each.resource === resource;
    this.#all = [...this.#all.filter((each) => !isSame(each)), allocation];
  }

  /** @returns whether there were some */
  drop(isGone: (uid: PodUid) => boolean): boolean {
    const before = this.#all.length;
    this.#all = this.#all.filter(({ uid }) => !isGone(uid));
    return this.#all.length < before;
  }
}
