/** Derives the columns READY, STATUS and RESTARTS of `kubectl get pods` as kubectl 1.34 does. */
import type { Pod } from "./pod.ts";
import type { ContainerStateTerminated, ContainerStatus, PodCondition } from "./pod-status.ts";

export interface PodSummary {
  /** `Running`, `CrashLoopBackOff`, `Init:0/2`, `Terminating` … */
  readonly status: string;
  readonly readyContainers: number;
  /** Containers and sidecars. */
  readonly totalContainers: number;
  readonly restarts: number;
  /** RFC 3339, null without a restart. */
  readonly lastRestartAt: string | null;
}

interface Restarts {
  count: number;
  /** RFC 3339 in one form only, so that it can be compared as text. */
  last: string | null;
}

export function summarizePod(pod: Pod): PodSummary {
  const status = pod.status;
  const sidecars = new Set(
    (pod.spec.initContainers ?? []).filter((each) => each.restartPolicy === "Always").map((each) => each.name),
  );
  const init = summarizeInit(pod, sidecars);
  let { reason, readyContainers } = init;
  let restarts = init.restarts;
  if (!init.initializing || conditionIs(status?.conditions, "Initialized")) {
    restarts = { ...init.sidecarRestarts };
    let hasRunning = false;
    for (const each of (status?.containerStatuses ?? []).toReversed()) {
      countRestarts(restarts, each);
      const { waiting, terminated, running } = each.state;
      if (waiting?.reason) reason = waiting.reason;
      else if (terminated !== undefined) reason = terminated.reason || exitReason(terminated);
      else if (each.ready && running !== undefined) {
        hasRunning = true;
        readyContainers += 1;
      }
    }
    // One container that has completed beside one that runs: the pod runs.
    if (reason === "Completed" && hasRunning) {
      reason = conditionIs(status?.conditions, "Ready") ? "Running" : "NotReady";
    }
  }
  const ended = status?.phase === "Succeeded" || status?.phase === "Failed";
  if (pod.metadata.deletionTimestamp !== undefined) {
    if (status?.reason === "NodeLost") reason = "Unknown";
    else if (!ended) reason = "Terminating";
  }
  return {
    status: reason,
    readyContainers,
    totalContainers: pod.spec.containers.length + sidecars.size,
    restarts: restarts.count,
    lastRestartAt: restarts.last,
  };
}

interface InitSummary {
  readonly reason: string;
  readonly initializing: boolean;
  readonly readyContainers: number;
  readonly restarts: Restarts;
  readonly sidecarRestarts: Restarts;
}

function summarizeInit(pod: Pod, sidecars: ReadonlySet<string>): InitSummary {
  const restarts: Restarts = { count: 0, last: null };
  const sidecarRestarts: Restarts = { count: 0, last: null };
  const total = pod.spec.initContainers?.length ?? 0;
  let readyContainers = 0;
  for (const [index, each] of (pod.status?.initContainerStatuses ?? []).entries()) {
    const isSidecar = sidecars.has(each.name);
    countRestarts(restarts, each);
    if (isSidecar) countRestarts(sidecarRestarts, each);
    const { waiting, terminated } = each.state;
    if (terminated?.exitCode === 0) continue;
    if (isSidecar && each.started === true) {
      if (each.ready) readyContainers += 1;
      continue;
    }
    let reason = `Init:${index}/${total}`;
    if (terminated !== undefined) reason = `Init:${terminated.reason || exitReason(terminated)}`;
    else if (waiting?.reason && waiting.reason !== "PodInitializing") reason = `Init:${waiting.reason}`;
    return { reason, initializing: true, readyContainers, restarts, sidecarRestarts };
  }
  const reason = pod.status?.reason || pod.status?.phase || "Pending";
  return { reason, initializing: false, readyContainers, restarts, sidecarRestarts };
}

function countRestarts(into: Restarts, container: ContainerStatus): void {
  into.count += container.restartCount;
  const ended = container.lastState.terminated?.finishedAt;
  if (ended !== undefined && (into.last === null || into.last < ended)) into.last = ended;
}

const exitReason = (state: ContainerStateTerminated): string =>
  state.signal ? `Signal:${state.signal}` : `ExitCode:${state.exitCode}`;

export const conditionIs = (conditions: readonly PodCondition[] | undefined, type: string): boolean =>
  conditions?.some((each) => each.type === type && each.status === "True") ?? false;
