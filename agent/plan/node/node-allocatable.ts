/**
 * Computes the kubelet's Node Allocatable: capacity minus the reservations for the system, for the agent with its
 * runtime, and for the hard eviction thresholds. Pure.
 */

import { formatQuantity, type Quantity, quantityOf, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Quantities } from "@picolet/protocol/pod/pod-resources.ts";
import { type Amounts, amountsOf } from "../admission/admission-resources.ts";
import { amountOf, type EvictionThreshold } from "../eviction/eviction-thresholds.ts";

/** Resources that can be reserved; `pid` counts processes and threads, and is not in the node's status. */
export const RESERVABLE_RESOURCES = ["cpu", "memory", "ephemeral-storage", "pid"] as const;

/** Validated quantities by resource name. */
export type ResourceTexts = Readonly<Record<string, string>>;

export interface AllocatableInit {
  /** `status.capacity` of the node. */
  readonly capacity: ResourceTexts;
  /** The kernel's limit of processes and threads; undefined: unknown. */
  readonly maxPids: number | undefined;
  /** With `reservedSystemCPUs` applied (`effectiveReserved`). */
  readonly kubeReserved: ResourceTexts;
  readonly systemReserved: ResourceTexts;
  /** Soft ones and those of other signals than memory.available and nodefs.available change nothing. */
  readonly thresholds: readonly EvictionThreshold[];
}

export interface NodeAllocatable {
  /** `status.allocatable`: every resource of the capacity, none below 0. */
  readonly allocatable: ResourceTexts;
  /**
   * For the cgroup that holds all pods where `enforceNodeAllocatable` has `pods`, as numbers (`pid` among them):
   * capacity without what is reserved. Eviction thresholds are not taken off, so that pods are evicted before the
   * kernel has to kill.
   */
  readonly podLimits: Amounts;
  /** For the same cgroup where `pods` is not enforced. */
  readonly capacity: Amounts;
  /** The reservation alone. */
  readonly kubeReserved: Amounts;
  readonly systemReserved: Amounts;
  /** Both lists and what hard eviction keeps free. */
  readonly reservation: Amounts;
  /** By resource, more than there is: the configuration contradicts the machine. */
  readonly excess: readonly Excess[];
}

export interface Excess {
  readonly resource: string;
  /** Quantities. The reservation is all of it together. */
  readonly reservation: string;
  readonly capacity: string;
}

const NANO = 1_000_000_000n;
const HUGE_PAGES = "hugepages-";

/** As in the kubelet, `reservedSystemCPUs` replaces the CPU amounts of both reservations. */
export function effectiveReserved(
  { kubeReserved, systemReserved }: { readonly kubeReserved: ResourceTexts; readonly systemReserved: ResourceTexts },
  reservedCpus: number,
): { readonly kubeReserved: ResourceTexts; readonly systemReserved: ResourceTexts } {
  if (reservedCpus === 0) return { kubeReserved, systemReserved };
  const { cpu: _, ...kube } = kubeReserved;
  return { kubeReserved: kube, systemReserved: { ...systemReserved, cpu: String(reservedCpus) } };
}

export function nodeAllocatable(init: AllocatableInit): NodeAllocatable {
  const status = quantitiesOf(init.capacity);
  const capacity = new Map(status);
  if (init.maxPids !== undefined) capacity.set("pid", wholeQuantity(init.maxPids));
  const [kube, system] = [quantitiesOf(init.kubeReserved), quantitiesOf(init.systemReserved)];
  const evicted = evictionReservation(status, init.thresholds);
  const reserved = sum(kube, system);
  const all = sum(reserved, evicted);
  return {
    allocatable: allocatableOf(status, all),
    podLimits: amountsOf(without(capacity, reserved)),
    capacity: amountsOf(capacity),
    kubeReserved: amountsOf(kube),
    systemReserved: amountsOf(system),
    reservation: amountsOf(all),
    excess: excessOf(capacity, all),
  };
}

const quantitiesOf = (texts: ResourceTexts): Quantities =>
  new Map(Object.entries(texts).map(([name, text]) => [name, quantityOf(text)]));

const wholeQuantity = (value: number): Quantity => ({ nano: BigInt(value) * NANO, format: "BinarySI" });

/** @returns the memory and ephemeral storage that the hard thresholds keep free */
function evictionReservation(capacity: Quantities, thresholds: readonly EvictionThreshold[]): Quantities {
  const reserved = new Map<string, Quantity>();
  for (const { signal, value, gracePeriod } of thresholds) {
    const resource = RESERVING_SIGNALS.get(signal);
    const whole = resource === undefined ? undefined : capacity.get(resource);
    if (resource === undefined || whole === undefined || gracePeriod !== undefined) continue;
    reserved.set(resource, wholeQuantity(amountOf(value, Number(quantityValue(whole)))));
  }
  return reserved;
}

const RESERVING_SIGNALS: ReadonlyMap<string, string> = new Map([
  ["memory.available", "memory"],
  ["nodefs.available", "ephemeral-storage"],
]);

function sum(left: Quantities, right: Quantities): Quantities {
  const total = new Map(left);
  for (const [name, { nano, format }] of right) total.set(name, { nano: (left.get(name)?.nano ?? 0n) + nano, format });
  return total;
}

/** In the capacity's own format, never below 0. */
function without(capacity: Quantities, reserved: Quantities): Quantities {
  const left = new Map<string, Quantity>();
  for (const [name, { nano, format }] of capacity) left.set(name, minus(nano, reserved.get(name)?.nano, format));
  return left;
}

const minus = (nano: bigint, taken: bigint | undefined, format: Quantity["format"]): Quantity => {
  const rest = nano - (taken ?? 0n);
  return { nano: rest < 0n ? 0n : rest, format };
};

/** Huge pages are a resource of their own, so they reduce the allocatable memory. */
function allocatableOf(capacity: Quantities, reserved: Quantities): ResourceTexts {
  const left = new Map(without(capacity, reserved));
  for (const [name, { nano }] of capacity) {
    const memory = left.get("memory");
    if (name.startsWith(HUGE_PAGES) && memory !== undefined)
      left.set("memory", minus(memory.nano, nano, memory.format));
  }
  return Object.fromEntries([...left].map(([name, quantity]) => [name, formatQuantity(quantity)]));
}

function excessOf(capacity: Quantities, reserved: Quantities): readonly Excess[] {
  return [...reserved].flatMap(([resource, reservation]) => {
    const whole = capacity.get(resource);
    if (whole === undefined || reservation.nano <= whole.nano) return [];
    return [{ resource, reservation: formatQuantity(reservation), capacity: formatQuantity(whole) }];
  });
}
