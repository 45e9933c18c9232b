/** Decides whether this node takes a pod: the kubelet's admission handlers in order (pkg/kubelet/lifecycle). Pure. */

import { APPARMOR_ANNOTATION, APPARMOR_UNCONFINED, appArmorProfile } from "@picolet/protocol/pod/apparmor-profile.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import { isSidecar } from "@picolet/protocol/pod/pod-resources.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Rejection } from "../../core/pods/pod-admission.ts";
import { matchesNode, type NodeLabelsAndTaints, toleratesNode } from "./admission-node.ts";
import { chooseVictims, describeRequirements } from "./admission-preemption.ts";
import { type Pressure, pressureRejection } from "./admission-pressure.ts";
import { type Amounts, type Shortage, shortages } from "./admission-resources.ts";
import { isCritical, isStatic } from "./critical-pods.ts";
import { forbiddenSysctl, type SysctlAllowlist } from "./sysctls.ts";

export interface AdmissionView {
  readonly node: NodeLabelsAndTaints;
  readonly allocatable: Amounts;
  readonly sysctls: SysctlAllowlist;
  /** True when the kernel enforces AppArmor. */
  readonly apparmor: boolean;
  /** True when the pod's runtime supports `supplementalGroupsPolicy`. */
  readonly supplementalGroupsPolicy: boolean;
  readonly isShuttingDown: boolean;
  /** Resources that the node is short of. */
  readonly pressures: readonly Pressure[];
}

export type Admission =
  | { readonly kind: "rejected"; readonly rejection: Rejection }
  /** `victims` must be ended for it. */
  | { readonly kind: "admitted"; readonly victims: readonly DesiredPod[] };

const ADMITTED: Admission = { kind: "admitted", victims: [] };
const OS_LABEL = "kubernetes.io/os";
const OS = "linux";

const rejected = (reason: string, message: string): Admission => ({ kind: "rejected", rejection: { reason, message } });

/** @param others those that the node has, this one not among them */
export function admitPod(desired: DesiredPod, others: readonly DesiredPod[], view: AdmissionView): Admission {
  const { pod } = desired;
  const refused = pressureRejection(desired, view.pressures);
  if (refused !== undefined) return { kind: "rejected", rejection: refused };
  const sysctl = forbiddenSysctl(pod, view.sysctls);
  if (sysctl !== undefined) return rejected("SysctlForbidden", sysctl);
  const unfit = unfitForNode(pod, view);
  if (unfit !== undefined) return unfit;
  const placed = place(desired, others, view);
  if (placed.kind === "rejected") return placed;
  const apparmor = apparmorProblem(pod, view.apparmor);
  if (apparmor !== undefined) return rejected("AppArmor", apparmor);
  if (view.isShuttingDown) return rejected("NodeShutdown", "Pod was rejected as the node is shutting down.");
  return placed;
}

/** Checks conditions that the end of other pods cannot change. */
function unfitForNode({ metadata, spec }: Pod, view: AdmissionView): Admission | undefined {
  const label = metadata.labels?.[OS_LABEL];
  if (label !== undefined && label !== OS) {
    const message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
    return rejected("PodOSSelectorNodeLabelDoesNotMatch", message);
  }
  if (spec.os !== undefined && spec.os.name !== OS) {
    return rejected("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
  }
  if (spec.securityContext.supplementalGroupsPolicy === "Strict" && !view.supplementalGroupsPolicy) {
    const message = "SupplementalGroupsPolicy=Strict is not supported in this node";
    return rejected("SupplementalGroupsPolicyNotSupported", message);
  }
  return undefined;
}

function place(desired: DesiredPod, others: readonly DesiredPod[], view: AdmissionView): Admission {
  const { pod } = desired;
  const pods = others.map((other) => other.pod);
  const short = shortages(pod, pods, view.allocatable);
  const predicate = failedPredicate(desired, pods, view.node);
  if (isCritical(desired)) {
    if (predicate !== undefined) return predicate;
    return short.length === 0 ? ADMITTED : preempt(desired, others, short);
  }
  const [first] = short;
  if (first === undefined) return predicate ?? ADMITTED;
  const { resource, requested, used, capacity } = first;
  const figures = `requested: ${requested}, used: ${used}, capacity: ${capacity}`;
  return rejected(`OutOf${resource}`, `Node didn't have enough resource: ${resource}, ${figures}`);
}

function failedPredicate(
  desired: DesiredPod,
  others: readonly Pod[],
  node: NodeLabelsAndTaints,
): Admission | undefined {
  const { pod } = desired;
  const failed = (name: string, why: string): Admission => rejected(name, `Predicate ${name} failed: ${why}`);
  if (!matchesNode(pod, node)) return failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
  const { nodeName = "" } = pod.spec;
  if (nodeName !== "" && nodeName !== node.name) {
    return failed("NodeName", "node(s) didn't match the requested node name");
  }
  if (!hasFreePorts(pod, others)) {
    return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
  }
  if (!isStatic(desired) && !toleratesNode(pod, node)) {
    return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
  }
  return undefined;
}

function preempt(desired: DesiredPod, others: readonly DesiredPod[], short: readonly Shortage[]): Admission {
  const requirements = short.map(({ resource, requested, used, capacity }) => {
    return { resource, amount: requested - (capacity - used) };
  });
  const victims = chooseVictims(desired, others, requirements);
  if (victims.ok) return { kind: "admitted", victims: victims.pods };
  const cause = `no set of running pods found to reclaim resources: ${describeRequirements(victims.missing)}`;
  return rejected(
    "UnexpectedAdmissionError",
    "Unexpected error while attempting to recover from admission failure: " +
      `preemption: error finding a set of pods to preempt: ${cause}`,
  );
}

/** A port of the host that a pod takes. No two pods may have the same. */
interface HostPort {
  readonly port: number;
  readonly protocol: string;
  readonly address: string;
}

const ANY_ADDRESS = "0.0.0.0";

/** Yields the ports of containers that live as long as the pod. On the host's network container ports are host ports. */
function* hostPorts({ spec }: Pod): Iterable<HostPort> {
  const lasting = [...(spec.initContainers ?? []).filter(isSidecar), ...spec.containers];
  for (const { ports = [] } of lasting) {
    for (const { hostPort = 0, hostIP = "", protocol } of ports) {
      if (hostPort > 0) yield { port: hostPort, protocol: protocol || "TCP", address: hostIP || ANY_ADDRESS };
    }
  }
}

function hasFreePorts(pod: Pod, others: readonly Pod[]): boolean {
  const wanted = [...hostPorts(pod)];
  if (wanted.length === 0) return true;
  for (const other of others) {
    for (const taken of hostPorts(other)) if (wanted.some((each) => clash(each, taken))) return false;
  }
  return true;
}

const clash = (left: HostPort, right: HostPort): boolean =>
  left.port === right.port &&
  left.protocol === right.protocol &&
  (left.address === right.address || left.address === ANY_ADDRESS || right.address === ANY_ADDRESS);

/**
 * Explains in the kubelet's words why a pod's AppArmor profiles cannot be enforced here.
 * @param enabled whether the kernel enforces AppArmor
 */
function apparmorProblem(pod: Pod, enabled: boolean): string | undefined {
  if (!isRequired(pod)) return undefined;
  if (!enabled) return "Cannot enforce AppArmor: AppArmor is not enabled on the host";
  for (const container of containersOf(pod)) {
    const profile = appArmorProfile(pod, container);
    if (profile?.type === "Localhost" && (profile.localhostProfile ?? "").trim() === "") {
      return `Cannot enforce AppArmor: invalid empty AppArmor profile name: "${profile.localhostProfile ?? ""}"`;
    }
  }
  return undefined;
}

const containersOf = ({ spec }: Pod): readonly Container[] => [
  ...(spec.initContainers ?? []),
  ...spec.containers,
  ...(spec.ephemeralContainers ?? []),
];

function isRequired(pod: Pod): boolean {
  const contexts = [pod.spec.securityContext, ...containersOf(pod).map((each) => each.securityContext)];
  const types = contexts.map((each) => each?.appArmorProfile?.type).filter((type) => type !== undefined);
  if (types.some((type) => type !== "Unconfined")) return true;
  const annotated = Object.entries(pod.metadata.annotations ?? {}).filter(([key]) =>
    key.startsWith(APPARMOR_ANNOTATION),
  );
  return annotated.some(([, value]) => value !== APPARMOR_UNCONFINED);
}
