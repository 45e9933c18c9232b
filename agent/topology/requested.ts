/** Computes the exclusive resources of a pod: whole CPUs and memory of guaranteed pods. Pure. */

import { quantityMilliValue, quantityOf, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import { isSidecar } from "@picolet/protocol/pod/pod-resources.ts";
import { qosClass } from "@picolet/protocol/pod/qos.ts";

/** Init containers first, each as it starts. */
export const placedContainers = ({ spec }: Pod): readonly Container[] => [
  ...(spec.initContainers ?? []),
  ...spec.containers,
];

/** One that ends before the containers of the pod start, so that they have its CPUs and memory after it. */
export const isPlainInitContainer = ({ spec }: Pod, name: string): boolean =>
  spec.initContainers?.some((each) => each.name === name && !isSidecar(each)) === true;

/** Pods with resources of their own, beside their containers', get nothing for themselves alone: the kubelet's rule. */
const isPlaced = (pod: Pod): boolean => pod.spec.resources === undefined && qosClass(pod) === "Guaranteed";

/** 0: it runs where all do. */
export function exclusiveCpus(pod: Pod, { resources }: Container): number {
  const text = resources.requests?.cpu ?? resources.limits?.cpu;
  if (text === undefined || !isPlaced(pod)) return 0;
  const quantity = quantityOf(text);
  const whole = quantityValue(quantity);
  return whole * 1000n === quantityMilliValue(quantity) ? Number(whole) : 0;
}

/** Bytes by resource; empty: it has no memory for itself alone. */
export type MemoryRequest = ReadonlyMap<string, number>;

export function exclusiveMemory(pod: Pod, { resources }: Container): MemoryRequest {
  if (!isPlaced(pod)) return new Map();
  const texts = Object.entries({ ...resources.limits, ...resources.requests });
  const own = texts.filter(([name]) => name === "memory" || name.startsWith("hugepages-"));
  const sorted = own.sort(([left], [right]) => (left < right ? -1 : 1));
  return new Map(sorted.map(([name, text]) => [name, Number(quantityValue(quantityOf(text)))]));
}

/**
 * Computes the pod's largest need at any moment: init containers run one after the other, beside the sidecars before
 * them.
 */
export function podNeeds(pod: Pod, of: (container: Container) => number): number {
  let [sidecars, initial] = [0, 0];
  for (const container of pod.spec.initContainers ?? []) {
    if (isSidecar(container)) sidecars += of(container);
    else initial = Math.max(initial, sidecars + of(container));
  }
  const lasting = pod.spec.containers.reduce((sum, container) => sum + of(container), sidecars);
  return Math.max(initial, lasting);
}
