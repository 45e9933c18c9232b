/** A pod's status from what is known of it, exactly as a kubelet would write it (pkg/kubelet/kubelet_pods.go). */
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { ContainerStatus, PodPhase, PodStatus } from "@picolet/protocol/pod/pod.ts";
import { qosClass } from "@picolet/protocol/pod/qos.ts";
import { podIpsInOrder } from "../core/pods/pod-ips.ts";
import { hasInitialized } from "../plan/container-steps.ts";
import { recordedOutcome } from "../plan/outcome.ts";
import type { PodView } from "../plan/pod-view.ts";
import type { Outcome } from "../plan/worker-state.ts";
import { asTerminated, containerStatuses } from "./container-statuses.ts";
import { podConditions } from "./pod-conditions.ts";
import { podPhase } from "./pod-phase.ts";

/** @param view with the worker's state as it is after planning. */
export function deriveStatus(view: PodView): PodStatus {
  const { pod } = view.desired;
  const outcome = outcomeOf(view);
  if (outcome?.rejected === true) return rejectedStatus(view, outcome);
  const seen = {
    init: containerStatuses(view, pod.spec.initContainers ?? []),
    regular: containerStatuses(view, pod.spec.containers),
    ephemeral: containerStatuses(view, pod.spec.ephemeralContainers ?? []),
  };
  const phase = phaseOf(view, outcome, seen);
  const { init, regular, ephemeral } = isOver(phase) ? settled(view, seen) : seen;
  const podIps = podIpsOf(view);
  const [podIp] = podIps;
  const [hostIp] = view.hostIps;
  const startTime = startTimeOf(view);
  return {
    ...generationOf(view),
    phase,
    conditions: podConditions(view, { phase, init, regular, disruption: outcome?.disruption }),
    ...(outcome?.message ? { message: outcome.message } : {}),
    ...(outcome?.reason ? { reason: outcome.reason } : {}),
    ...(hostIp === undefined ? {} : { hostIP: hostIp, hostIPs: view.hostIps.map((ip) => ({ ip })) }),
    ...(podIp === undefined ? {} : { podIP: podIp, podIPs: podIps.map((ip) => ({ ip })) }),
    ...(startTime === undefined ? {} : { startTime }),
    ...(init.length === 0 ? {} : { initContainerStatuses: init }),
    containerStatuses: regular.toSorted(byName),
    ...(ephemeral.length === 0 ? {} : { ephemeralContainerStatuses: ephemeral.toSorted(byName) }),
    qosClass: view.previous?.qosClass ?? qosClass(pod),
  };
}

interface Statuses {
  readonly init: readonly ContainerStatus[];
  readonly regular: readonly ContainerStatus[];
  readonly ephemeral: readonly ContainerStatus[];
}

const byName = (left: ContainerStatus, right: ContainerStatus): number => (left.name < right.name ? -1 : 1);

function generationOf({ desired }: PodView): Pick<PodStatus, "observedGeneration"> {
  const { generation } = desired.pod.metadata;
  return generation === undefined ? {} : { observedGeneration: generation };
}

/** A pod is started when the node has taken it, not while it waits for another of its name. */
function startTimeOf({ previous, worker, wallMs }: PodView): string | undefined {
  return previous?.startTime ?? (worker.kind === "waiting" ? undefined : kubeTime(wallMs));
}

/** As it is, or as it is to be when nothing runs any more. */
function outcomeOf({ worker, previous, observed }: PodView): Outcome | undefined {
  switch (worker.kind) {
    case "finished":
      return worker.outcome;
    case "terminating":
      return worker.outcome ?? recordedOutcome(previous);
    case "gone":
      return recordedOutcome(previous);
    case "waiting":
      // Until the first look it is as an agent before this one has left it.
      return observed === undefined ? recordedOutcome(previous) : undefined;
    case "active":
      return undefined;
  }
}

/** Nothing of it was ever there. */
function rejectedStatus(view: PodView, { phase, reason, message }: Outcome): PodStatus {
  const startTime = startTimeOf(view);
  return {
    ...generationOf(view),
    phase,
    message,
    reason,
    ...(startTime === undefined ? {} : { startTime }),
    qosClass: view.previous?.qosClass ?? qosClass(view.desired.pod),
  };
}

/** A pod that is ending keeps showing the addresses it had. */
function podIpsOf(view: PodView): readonly string[] {
  const sandbox = view.observed?.sandboxes[0];
  const ready = sandbox?.state === "ready";
  if (ready && view.desired.pod.spec.hostNetwork === true) return view.hostIps;
  if (ready) return podIpsInOrder(sandbox.ips, view.hostIps);
  if (view.observed !== undefined && view.worker.kind === "active") return [];
  return (view.previous?.podIPs ?? []).map((each) => each.ip);
}

const isOver = (phase: PodPhase | undefined): phase is "Succeeded" | "Failed" =>
  phase === "Succeeded" || phase === "Failed";

function phaseOf(view: PodView, outcome: Outcome | undefined, { init, regular, ephemeral }: Statuses): PodPhase {
  const { worker, previous, observed, desired } = view;
  const initialized = observed === undefined || hasInitialized(view, observed);
  const derived = podPhase(desired.pod, [...init, ...regular], initialized);
  // Before the first look nothing is known that could bring back what has ended, and a pod does not come back later.
  if (isOver(previous?.phase) && (worker.kind !== "active" || observed === undefined)) return previous.phase;
  if (worker.kind === "waiting") return (observed === undefined ? previous?.phase : undefined) ?? "Pending";
  if (worker.kind === "active") return isOver(derived) ? "Running" : derived;
  // A pod is not over while something of it runs.
  const runs = [...init, ...regular, ...ephemeral].some((each) => each.state.running !== undefined);
  if (runs) return derived === "Pending" ? "Pending" : "Running";
  if (outcome !== undefined) return outcome.phase;
  return regular.every((each) => each.state.terminated?.exitCode === 0) ? "Succeeded" : "Failed";
}

/** When a pod is over, none of its containers waits for anything any more, unless the pod has not come so far. */
function settled(view: PodView, { init, regular, ephemeral }: Statuses): Statuses {
  if (view.observed === undefined) return { init, regular, ephemeral };
  const hasBegun = ({ state, lastState }: ContainerStatus): boolean =>
    state.waiting === undefined || lastState.terminated !== undefined;
  const begun = Math.max(0, init.findLastIndex(hasBegun));
  const isInitialized = regular.some(hasBegun) || init.at(-1)?.ready !== false || init.at(-1)?.started === true;
  return {
    init: init.map((each, index) => (index <= begun ? asTerminated(each) : each)),
    regular: isInitialized ? regular.map(asTerminated) : regular,
    ephemeral,
  };
}
