/** NUMA nodes from which a number of devices can be had: the kubelet's topology hints of its device manager. Pure. */
import { countOf, type Hint, maskOf, type NumaMask } from "../topology/numa-hints.ts";
import type { OfferedDevice } from "./device-provider.ts";

/** 2^8 sets are tried; no board has more nodes. */
const MAX_NODES = 8;

/** @returns undefined: no device has a place, any will do */
export function deviceHints(
  all: readonly OfferedDevice[],
  available: ReadonlySet<string>,
  count: number,
): readonly Hint[] | undefined {
  const nodes = [...new Set(all.flatMap((each) => each.nodes))].sort((a, b) => a - b).slice(0, MAX_NODES);
  if (nodes.length === 0) return undefined;
  // Counted by place first: 4,096 devices with 64 nodes each took 48 s when each set read each device.
  const placed = (devices: readonly OfferedDevice[]): ReadonlyMap<NumaMask, number> => {
    const counts = new Map<NumaMask, number>();
    for (const each of devices) {
      const place = maskOf(each.nodes.filter((node) => nodes.includes(node)));
      counts.set(place, (counts.get(place) ?? 0) + 1);
    }
    return counts;
  };
  const near = (mask: NumaMask, counts: ReadonlyMap<NumaMask, number>): number =>
    [...counts].reduce((sum, [place, devices]) => ((place & mask) === 0n ? sum : sum + devices), 0);
  const masks = Array.from({ length: 2 ** nodes.length - 1 }, (_, index) =>
    maskOf(nodes.filter((_node, bit) => ((index + 1) >> bit) & 1)),
  );
  // Unhealthy ones too: how few nodes could do does not depend on the devices' state.
  const places = placed(all);
  const least = Math.min(...masks.filter((mask) => near(mask, places) >= count).map(countOf));
  const free = placed(all.filter(({ id }) => available.has(id)));
  const fitting = masks.filter((mask) => near(mask, free) >= count);
  return fitting.map((mask) => ({ nodes: mask, preferred: countOf(mask) === least }));
}
