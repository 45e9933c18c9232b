/**
 * Effective requests and limits of a pod as Kubernetes computes them (k8s.io/component-helpers/resource): init
 * containers run one after another, sidecars beside everything after them, resources of the pod as a whole override
 * those of its containers, overhead comes on top.
 */

import { addQuantities, compareQuantities, parseQuantity, type Quantity } from "../kubernetes/quantity.ts";
import type { Container, Pod } from "./pod.ts";

export type Quantities = ReadonlyMap<string, Quantity>;

type ResourceContainer = Pick<Container, "restartPolicy"> & {
  readonly resources?: Partial<Container["resources"]> | undefined;
};
interface ResourceSpec {
  readonly containers: readonly ResourceContainer[];
  readonly initContainers?: readonly ResourceContainer[] | undefined;
}
type Texts = Readonly<Record<string, string>> | undefined;
type Part = (container: ResourceContainer) => Texts;

const requestsOf: Part = (container) => container.resources?.requests;
const limitsOf: Part = (container) => container.resources?.limits;

/** Names without a slash such as `cpu`, and names of `kubernetes.io/`. */
export const isNativeResource = (name: string): boolean => !name.includes("/") || name.includes("kubernetes.io/");

/** Any other name, such as `example.com/camera`; a quota calls it `requests.NAME`. */
export const isExtendedResource = (name: string): boolean => !isNativeResource(name) && !name.startsWith("requests.");

/** @returns whether `spec.resources` of a pod may name it */
export const isPodLevelResource = (name: string): boolean =>
  name === "cpu" || name === "memory" || name.startsWith("hugepages-");

export const isSidecar = (container: Pick<Container, "restartPolicy">): boolean => container.restartPolicy === "Always";

/** What is no quantity counts as nothing: validation has named it, or will. */
function parsed(texts: Texts): Quantities {
  const quantities = new Map<string, Quantity>();
  for (const [name, text] of Object.entries(texts ?? {})) {
    const result = parseQuantity(String(text));
    if (result.ok) quantities.set(name, result.quantity);
  }
  return quantities;
}

function combined(left: Quantities, right: Quantities, combine: (a: Quantity, b: Quantity) => Quantity): Quantities {
  const result = new Map(left);
  for (const [name, quantity] of right) {
    const existing = result.get(name);
    result.set(name, existing === undefined ? quantity : combine(existing, quantity));
  }
  return result;
}

const sum = (left: Quantities, right: Quantities): Quantities => combined(left, right, addQuantities);
const maximum = (left: Quantities, right: Quantities): Quantities =>
  combined(left, right, (a, b) => (compareQuantities(a, b) < 0 ? b : a));

function aggregate(spec: ResourceSpec, part: Part): Quantities {
  let running: Quantities = new Map();
  for (const container of spec.containers) running = sum(running, parsed(part(container)));
  let sidecars: Quantities = new Map();
  let starting: Quantities = new Map();
  for (const container of spec.initContainers ?? []) {
    const own = parsed(part(container));
    if (isSidecar(container)) {
      running = sum(running, own);
      sidecars = sum(sidecars, own);
      starting = maximum(starting, sidecars);
    } else {
      starting = maximum(starting, sum(sidecars, own));
    }
  }
  return maximum(running, starting);
}

/** The requests of the containers alone, without the pod's own resources and overhead. */
export const aggregateRequests = (spec: ResourceSpec): Quantities => aggregate(spec, requestsOf);

function overridden(aggregated: Quantities, podLevel: Texts): Quantities {
  const result = new Map(aggregated);
  for (const [name, quantity] of parsed(podLevel)) if (isPodLevelResource(name)) result.set(name, quantity);
  return result;
}

export function podRequests(pod: Pod): Quantities {
  const own = overridden(aggregateRequests(pod.spec), pod.spec.resources?.requests);
  return sum(own, parsed(pod.spec.overhead));
}

/**
 * Only as good as its containers' limits: one container without a limit makes the pod unlimited, see
 * `cgroup-values.ts`.
 */
export function podLimits(pod: Pod): Quantities {
  const own = overridden(aggregate(pod.spec, limitsOf), pod.spec.resources?.limits);
  const result = new Map(own);
  for (const [name, quantity] of parsed(pod.spec.overhead)) {
    const limit = result.get(name);
    if (limit !== undefined && limit.nano !== 0n) result.set(name, addQuantities(limit, quantity));
  }
  return result;
}
