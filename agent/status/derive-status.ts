/** A pod's status from what is known of it, exactly as a kubelet would write it (pkg/kubelet/kubelet_pods.go). */
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { Container, ContainerStatus, Pod, PodPhase, PodStatus } from "@picolet/protocol/pod/pod.ts";
import { qosClass } from "@picolet/protocol/pod/qos.ts";
import { podIpsInOrder } from "../core/pods/pod-ips.ts";
import { type ContainerRole, isRestartedAfterExit, roleOf } from "../plan/container-roles.ts";
import { hasInitialized } from "../plan/container-steps.ts";
import { recordedOutcome } from "../plan/outcome.ts";
import type { PodView } from "../plan/pod-view.ts";
import type { Outcome } from "../plan/worker-state.ts";
import { asTerminated, containerStatuses } from "./container-statuses.ts";
import { podConditions } from "./pod-conditions.ts";

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

/** A pod starts when the node takes it, not while it waits for another one of its name. */
function startTimeOf({ previous, worker, wallMs }: PodView): string | undefined {
  return previous?.startTime ?? (worker.kind === "waiting" ? undefined : kubeTime(wallMs));
}

/** @returns the outcome the pod has, or will have when nothing of it runs; `undefined`: it is not ending */
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
  // A pod is not over while something of it runs, or a driver has its devices.
  const runs = [...init, ...regular, ...ephemeral].some((each) => each.state.running !== undefined);
  if (runs || view.holdsClaims === true) return derived === "Pending" ? "Pending" : "Running";
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

/**
 * Derives the phase by the kubelet's rules (pkg/kubelet/kubelet_pods.go, getPhase).
 * @param initialized whether a regular container has existed in the current sandbox
 */
function podPhase(pod: Pod, statuses: readonly ContainerStatus[], initialized: boolean): PodPhase {
  const of = (container: Container) => statuses.find(({ name }) => name === container.name);
  const initContainers = (pod.spec.initContainers ?? []).map((container) => {
    const role = roleOf(pod, container);
    return { role, judged: judge(pod, container, role, of(container)) };
  });
  const init = initContainers.filter(({ role }) => role === "init").map(({ judged }) => judged);
  const sidecars = initContainers.filter(({ role }) => role === "sidecar").map(({ judged }) => judged);
  const regular = pod.spec.containers.map((container) => judge(pod, container, "regular", of(container)));

  if (init.some((each) => each.kind === "stopped" && each.exitCode !== 0 && !each.restarts)) return "Failed";
  if (init.some((each) => each.kind === "waiting" || each.kind === "running")) return "Pending";
  const isStarting = sidecars.some((each) => each.kind === "waiting" || (each.kind === "running" && !each.started));
  if (isStarting && !initialized) return "Pending";
  if ([...sidecars, ...regular].some((each) => each.kind === "waiting")) return "Pending";
  if ([...sidecars, ...regular].some((each) => each.kind === "running")) return "Running";
  const stopped = regular.filter((each) => each.kind === "stopped");
  if (stopped.some((each) => each.restarts)) return "Running";
  return stopped.every((each) => each.exitCode === 0 && !each.waits) ? "Succeeded" : "Failed";
}

type Judgement =
  | { readonly kind: "waiting" }
  | { readonly kind: "running"; readonly started: boolean }
  /** `waits`: its next run is due, and its end is that of the previous run. */
  | { readonly kind: "stopped"; readonly exitCode: number; readonly restarts: boolean; readonly waits: boolean };

function judge(pod: Pod, container: Container, role: ContainerRole, status: ContainerStatus | undefined): Judgement {
  const { running, terminated } = status?.state ?? {};
  if (running !== undefined) return { kind: "running", started: status?.started === true };
  const ended = terminated ?? status?.lastState.terminated;
  if (ended === undefined) return { kind: "waiting" };
  const { exitCode } = ended;
  const restarts = isRestartedAfterExit(pod, container, role, exitCode);
  return { kind: "stopped", exitCode, restarts, waits: terminated === undefined };
}
