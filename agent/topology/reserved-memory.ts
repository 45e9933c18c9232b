/** `reservedMemory`: what of each NUMA node's memory no pod gets. Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { quantityOf, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";

/** That they add up to what is reserved has been seen when the configuration was read. */
export interface MemoryReservation {
  readonly numaNode: number;
  /** Quantities by resource: `memory`, `hugepages-2Mi` … */
  readonly limits: Readonly<Record<string, string | number>>;
}

/** Bytes by resource. */
export type NodeReservation = ReadonlyMap<string, number>;

/** @throws `invalid` with the kubelet's words for what cannot be seen before one knows the machine */
export function reservedMemory(
  reservations: readonly MemoryReservation[],
  nodes: readonly number[],
): ReadonlyMap<number, NodeReservation> {
  const byNode = new Map(nodes.map((node): [number, Map<string, number>] => [node, new Map()]));
  for (const { numaNode, limits } of reservations) {
    const own = byNode.get(numaNode);
    if (own === undefined) {
      throw wrong(
        `the reserved memory configuration references a NUMA node ${numaNode} that does not exist on this machine`,
      );
    }
    for (const [resource, text] of Object.entries(limits)) {
      own.set(resource, Number(quantityValue(quantityOf(String(text)))));
    }
  }
  const memory = [...byNode.values()].reduce((sum, own) => sum + (own.get("memory") ?? 0), 0);
  if (memory <= 0) throw wrong("[memorymanager] you should specify the system reserved memory");
  return byNode;
}

const wrong = (message: string): PicoletError => new PicoletError("invalid", message);
