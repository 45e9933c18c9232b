import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { ResourceStatus } from "@picolet/protocol/pod/pod-status.ts";
import type { DesiredPod, ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { hasRuntimeChoice } from "../core/pods/pod-runtime.ts";
import { needsReadmission } from "../plan/outcome.ts";
import type { PodView } from "../plan/pod-view.ts";
import { NO_RESIZE, type WorkerState } from "../plan/worker-state.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";
import { failuresOf } from "./steps/worker-access.ts";
import { withoutEmpty } from "./termination-messages.ts";

/** The parts of a view that only the pod's worker knows. */
export interface ViewedPod {
  readonly desired: DesiredPod;
  /** `containerHash` by container name. */
  readonly hashes: ReadonlyMap<string, string>;
  readonly state: WorkerState;
}

export interface Inspected {
  /** `undefined`: this node has no runtime for the pod. */
  readonly adapter: RuntimeAdapter | undefined;
  /** `undefined`: the runtime cannot be asked. */
  readonly observed: ObservedPod | undefined;
}

/**
 * Gathers the planner's input. A pod that is waiting claims its name, and is submitted to the node's admission if it is
 * new.
 */
export function viewOf(ports: WorkerPorts, pod: ViewedPod, { adapter, observed }: Inspected): PodView {
  const { clock, choices, names } = ports;
  const { desired, hashes, state } = pod;
  const previous = previousStatus(ports, pod, observed);
  const isWaiting = observed !== undefined && state.kind === "waiting";
  const blockedBy = isWaiting ? names.claim(desired) : undefined;
  const isNew = isWaiting && blockedBy === undefined && previous?.startTime === undefined && isNothing(observed);
  const beforeEnd = state.kind === "waiting" || state.kind === "active" ? state : undefined;
  const comesBack = beforeEnd?.leave?.comesBack === true && observed !== undefined && !isNothing(observed);
  const isLeaving = comesBack || (adapter !== undefined && ports.isLeaving(desired, adapter));
  return {
    desired,
    blockedBy,
    rejection: isNew ? ports.admit(desired) : undefined,
    undecided: choices !== undefined && desired.runtime === undefined && hasRuntimeChoice(desired.pod),
    leaving: isLeaving ? (beforeEnd?.leave ?? {}) : undefined,
    worker: state,
    observed,
    prepared: state.kind === "active" && state.preparedFor === desired,
    hasRefreshedVolumes: ports.environment.hasRefreshedVolumes(desired),
    hashes,
    failures: failuresOf(state),
    resize: beforeEnd?.resize ?? NO_RESIZE,
    reclaim: state.kind !== "gone" && state.reclaim !== "none",
    probes: ports.prober.results(desired.uid),
    messages: state.kind === "gone" ? NO_MESSAGES : withoutEmpty(state.messages),
    previous,
    ...devicesOf(ports, desired),
    ...(ports.environment.holdsClaims(desired) ? { holdsClaims: true } : {}),
    runtime: adapter === undefined ? "" : ports.runtimeName(adapter),
    hostIps: ports.hostIps(),
    recursiveReadOnly: ports.recursiveReadOnly(desired),
    backoff: ports.backoff,
    monotonic: clock.monotonic(),
    wallMs: clock.wall().getTime(),
  };
}

/** @returns `undefined` also for a pod that the node rejected before and that must be submitted again */
export function previousStatus(
  { statuses }: Pick<WorkerPorts, "statuses">,
  { desired, state }: ViewedPod,
  observed: ObservedPod | undefined,
): PodStatus | undefined {
  const previous = statuses.previous(desired.uid);
  const isWaiting = observed !== undefined && state.kind === "waiting";
  return isWaiting && needsReadmission(desired, previous) ? undefined : previous;
}

function devicesOf({ devices }: WorkerPorts, { uid, pod }: DesiredPod): Pick<PodView, "deviceHealth"> {
  if (devices === undefined) return {};
  const all = [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
  const found = all.flatMap(({ name }): [string, readonly ResourceStatus[]][] => {
    const health = devices.health(uid, name);
    return health.length === 0 ? [] : [[name, health]];
  });
  return found.length === 0 ? {} : { deviceHealth: new Map(found) };
}

const NO_MESSAGES: ReadonlyMap<string, string> = new Map();
const isNothing = ({ sandboxes, containers }: ObservedPod): boolean => sandboxes.length + containers.length === 0;
