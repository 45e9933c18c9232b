/** The devices of ResourceSlices, by the nodes that reach them. Pure. */
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { NodeObject, Taint } from "../../api/typed-objects.ts";
import type { DeviceFields } from "../../expressions/device-selector.ts";
import { matchesTerm, type NodeSelectorTerm } from "../node-affinity.ts";

interface Place {
  readonly nodeName?: string;
  readonly nodeSelector?: { readonly nodeSelectorTerms?: readonly NodeSelectorTerm[] };
  readonly allNodes?: boolean;
}

export interface DeviceSpec extends DeviceFields, Place {
  readonly name: string;
  readonly taints?: readonly Taint[];
  readonly consumesCounters?: readonly unknown[];
  readonly bindingConditions?: readonly string[];
}

interface SliceSpec extends Place {
  readonly driver: string;
  readonly pool: { readonly name: string; readonly generation?: number; readonly resourceSliceCount?: number };
  readonly perDeviceNodeSelection?: boolean;
  readonly devices?: readonly DeviceSpec[];
}

export interface PoolDevice {
  /** Driver, pool and name. */
  readonly id: string;
  readonly driver: string;
  readonly pool: string;
  readonly name: string;
  readonly spec: DeviceSpec;
  readonly place: Place;
}

export const deviceId = (driver: string, pool: string, device: string): string => `${driver}/${pool}/${device}`;

/**
 * All devices of complete pools. Of a pool only slices of its newest generation count; while some of them are missing,
 * or two devices have one name, the pool has no devices. Devices that share counters with others, or that must be
 * bound first, need features that are off in Kubernetes 1.34, and are left out.
 */
export class DevicePools {
  readonly #local = new Map<string, PoolDevice[]>();
  readonly #shared: PoolDevice[] = [];
  /** Slices of pools that have no devices now. */
  readonly #updating: SliceSpec[] = [];

  constructor(slices: readonly KubeObject[]) {
    for (const pool of newestPools(slices).values()) {
      const devices = pool.flatMap(devicesOf);
      const isComplete = pool.every(({ pool: { resourceSliceCount = 1 } }) => resourceSliceCount === pool.length);
      const isUnique = new Set(devices.map(({ id }) => id)).size === devices.length;
      if (isComplete && isUnique) for (const device of devices) if (isUsable(device.spec)) this.#add(device);
      if (!isComplete || !isUnique) this.#updating.push(...pool);
    }
  }

  #add(device: PoolDevice): void {
    const { nodeName = "" } = device.place;
    const own = this.#local.get(nodeName);
    if (nodeName === "") this.#shared.push(device);
    else if (own === undefined) this.#local.set(nodeName, [device]);
    else own.push(device);
  }

  /** Devices that the node reaches, its own first. */
  ofNode(node: NodeObject): readonly PoolDevice[] {
    const own = this.#local.get(node.metadata.name) ?? [];
    const shared = this.#shared.filter(({ place }) => reaches(node, place));
    return shared.length === 0 ? own : [...own, ...shared];
  }

  /** A pool with devices for the node that cannot be used now; undefined: none. */
  updatingPool(node: NodeObject): string | undefined {
    return this.#updating.find(
      ({ perDeviceNodeSelection, ...place }) =>
        perDeviceNodeSelection === true || place.nodeName === node.metadata.name || reaches(node, place),
    )?.pool.name;
  }

  *all(): Generator<PoolDevice> {
    for (const devices of this.#local.values()) yield* devices;
    yield* this.#shared;
  }
}

function newestPools(slices: readonly KubeObject[]): ReadonlyMap<string, readonly SliceSpec[]> {
  const pools = new Map<string, { readonly generation: number; readonly slices: SliceSpec[] }>();
  for (const { spec: input } of slices) {
    const spec = input as unknown as SliceSpec;
    const { name, generation = 0 } = spec.pool;
    const key = `${spec.driver}/${name}`;
    const known = pools.get(key);
    if (known !== undefined && known.generation > generation) continue;
    if (known?.generation === generation) known.slices.push(spec);
    else pools.set(key, { generation, slices: [spec] });
  }
  return new Map([...pools].map(([key, pool]) => [key, pool.slices]));
}

function devicesOf(slice: SliceSpec): readonly PoolDevice[] {
  const { driver, pool, perDeviceNodeSelection = false, devices = [] } = slice;
  return devices.map((spec) => ({
    id: deviceId(driver, pool.name, spec.name),
    ...{ driver, pool: pool.name, name: spec.name, spec },
    place: perDeviceNodeSelection ? spec : slice,
  }));
}

const isUsable = ({ consumesCounters = [], bindingConditions = [] }: DeviceSpec): boolean =>
  consumesCounters.length + bindingConditions.length === 0;

function reaches(node: NodeObject, { allNodes = false, nodeSelector }: Place): boolean {
  return allNodes || (nodeSelector?.nodeSelectorTerms ?? []).some((term) => matchesTerm(node, term));
}
