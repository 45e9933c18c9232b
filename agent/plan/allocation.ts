/**
 * The resources that the node has granted to a pod (KEP 1287), when it was admitted or when a change was granted. The
 * agent always uses these; other resources in the pod's source are a request. Pure.
 */

import { parseQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, Pod, PodStatus, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";

/** By container name. */
export type Grants = Readonly<Record<string, ResourceRequirements>>;

type Texts = Readonly<Record<string, string>> | undefined;

/** Those whose resources may change while they run: all but init containers that are to end, and ephemeral ones. */
export const resizableContainers = ({ spec }: Pod): readonly Container[] => [
  ...(spec.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === "Always"),
  ...spec.containers,
];

export const grantsOf = (pod: Pod): Grants =>
  Object.fromEntries(resizableContainers(pod).map(({ name, resources }) => [name, resources]));

/** `pod` with these resources in the place of its own; `pod` itself where they are the same amounts. */
export function applyGrants(pod: Pod, grants: Grants): Pod {
  const { containers, initContainers } = pod.spec;
  const granted = containers.map((each) => withGrant(each, grants[each.name]));
  const grantedInit = initContainers?.map((each) =>
    each.restartPolicy === "Always" ? withGrant(each, grants[each.name]) : each,
  );
  const isSame =
    granted.every((each, index) => each === containers[index]) &&
    (grantedInit ?? []).every((each, index) => each === initContainers?.[index]);
  if (isSame) return pod;
  const init = grantedInit === undefined ? {} : { initContainers: grantedInit };
  return { ...pod, spec: { ...pod.spec, containers: granted, ...init } };
}

const withGrant = (container: Container, granted: ResourceRequirements | undefined): Container =>
  granted === undefined || areEqual(container.resources, granted) ? container : { ...container, resources: granted };

/** Compares amounts, not texts: "1" is "1000m". */
function areEqual(left: ResourceRequirements, right: ResourceRequirements): boolean {
  return areAmountsEqual(left.requests, right.requests) && areAmountsEqual(left.limits, right.limits);
}

function areAmountsEqual(left: Texts = {}, right: Texts = {}): boolean {
  const names = Object.keys(left);
  return names.length === Object.keys(right).length && names.every((name) => isSameAmount(left[name], right[name]));
}

function isSameAmount(left: string | undefined, right: string | undefined): boolean {
  if (left === right) return true;
  if (left === undefined || right === undefined) return false;
  const [one, other] = [parseQuantity(left), parseQuantity(right)];
  return one.ok && other.ok && one.quantity.nano === other.quantity.nano;
}

/**
 * The pod as it counts for what else fits: while it gets less than it had, it still has the more of both (the
 * scheduler's `UseStatusResources`).
 */
export function applyClaims(pod: Pod, status: PodStatus | undefined): Pod {
  if (status?.conditions?.some(({ type }) => type === "PodResizeInProgress") !== true) return pod;
  const reported = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])];
  const claims = resizableContainers(pod).map(({ name, resources }): [string, ResourceRequirements] => {
    const actual = reported.find((each) => each.name === name && each.state.running !== undefined)?.resources?.requests;
    return [name, { ...resources, requests: { ...resources.requests, ...greater(resources.requests, actual) } }];
  });
  return applyGrants(pod, Object.fromEntries(claims));
}

/** @returns CPU and memory where `actual` is greater */
function greater(granted: Texts = {}, actual: Texts = {}): Record<string, string> {
  const more: Record<string, string> = {};
  for (const resource of ["cpu", "memory"]) {
    const [own, other] = [parseQuantity(granted[resource] ?? "0"), parseQuantity(actual[resource] ?? "0")];
    const text = actual[resource];
    if (text !== undefined && own.ok && other.ok && other.quantity.nano > own.quantity.nano) more[resource] = text;
  }
  return more;
}
