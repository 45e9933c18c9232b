/** Compares a pod's requests with the free resources (the scheduler's NodeResourcesFit, as the kubelet does). Pure. */

import {
  parseQuantity,
  type Quantity,
  quantityMilliValue,
  quantityValue,
} from "@picolet/protocol/kubernetes/quantity.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isExtendedResource, podRequests, type Quantities } from "@picolet/protocol/pod/pod-resources.ts";

/** By resource name. CPU in thousandths, all else in whole units. */
export type Amounts = ReadonlyMap<string, bigint>;

export interface Shortage {
  readonly resource: string;
  readonly requested: bigint;
  readonly used: bigint;
  readonly capacity: bigint;
}

/** The order in messages; extended resources follow, by name. */
const ORDER = ["pods", "cpu", "memory", "ephemeral-storage"];

const amountOf = (name: string, quantity: Quantity): bigint =>
  name === "cpu" ? quantityMilliValue(quantity) : quantityValue(quantity);

export const amountsOf = (quantities: Quantities): Map<string, bigint> =>
  new Map([...quantities].map(([name, quantity]) => [name, amountOf(name, quantity)]));

/** `status.allocatable` of a node, as numbers. What is no quantity is left out. */
export function allocatableAmounts(allocatable: Readonly<Record<string, string>>): Amounts {
  const quantities = new Map<string, Quantity>();
  for (const [name, text] of Object.entries(allocatable)) {
    const parsed = parseQuantity(text);
    if (parsed.ok) quantities.set(name, parsed.quantity);
  }
  return amountsOf(quantities);
}

const DEVICE_RESOURCE = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;

/** The name of an extended resource under which a node may offer devices. */
export const isDeviceResource = (name: string): boolean => DEVICE_RESOURCE.test(name) && isExtendedResource(name);

export const requestOf = (pod: Pod, resource: string): bigint => {
  if (resource === "pods") return 1n;
  const quantity = podRequests(pod).get(resource);
  return quantity === undefined ? 0n : amountOf(resource, quantity);
};

/**
 * @returns the requests that do not fit beside the others, or none. An extended resource that the node does not have is
 * managed by the cluster, and is not checked.
 */
export function shortages(pod: Pod, others: readonly Pod[], allocatable: Amounts): readonly Shortage[] {
  const found: Shortage[] = [];
  const capacity = (resource: string): bigint => allocatable.get(resource) ?? 0n;
  const count = BigInt(others.length);
  if (allocatable.has("pods") && count + 1n > capacity("pods")) {
    found.push({ resource: "pods", requested: 1n, used: count, capacity: capacity("pods") });
  }
  const wanted = [...amountsOf(podRequests(pod))].filter(([name, amount]) => {
    return amount > 0n && name !== "pods" && (allocatable.has(name) || !isExtendedResource(name));
  });
  if (wanted.length === 0) return found;
  const used = new Map<string, bigint>();
  for (const other of others) {
    for (const [name, amount] of amountsOf(podRequests(other))) used.set(name, (used.get(name) ?? 0n) + amount);
  }
  for (const [resource, requested] of wanted) {
    const taken = used.get(resource) ?? 0n;
    if (requested > capacity(resource) - taken) {
      found.push({ resource, requested, used: taken, capacity: capacity(resource) });
    }
  }
  return found.sort(
    (left, right) => rank(left.resource) - rank(right.resource) || (left.resource < right.resource ? -1 : 1),
  );
}

/** @returns whether the node has more of a resource than before, and as much as the pod asks for */
export const mayFitSince = (pod: Pod, before: Amounts, now: Amounts): boolean =>
  [...now].some(([resource, amount]) => {
    const requested = requestOf(pod, resource);
    return requested > 0n && amount >= requested && amount > (before.get(resource) ?? 0n);
  });

function rank(resource: string): number {
  const index = ORDER.indexOf(resource);
  return index < 0 ? ORDER.length : index;
}
