/** `containerStatuses` and `initContainerStatuses` as the kubelet writes them (pkg/kubelet/kubelet_pods.go). */
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { ContainerStatus, ContainerStatusState, Pod } from "@picolet/protocol/pod/pod.ts";
import type { ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import { type AnyContainer, type ContainerRole, roleOf } from "../plan/container-roles.ts";
import { currentRun, judgeContainer } from "../plan/judge-container.ts";
import type { PodView } from "../plan/pod-view.ts";
import { shownResources } from "../plan/resize-status.ts";

/** In the order of the spec. */
export function containerStatuses(view: PodView, containers: readonly AnyContainer[]): ContainerStatus[] {
  return containers.map((container) => containerStatus(view, container));
}

function containerStatus(view: PodView, container: AnyContainer): ContainerStatus {
  const { observed, desired } = view;
  const role = roleOf(desired.pod, container);
  const reported = reportedStatus(view, container, role);
  const runs = observed?.containers.filter((each) => each.name === container.name) ?? [];
  const [newest] = runs;
  if (observed === undefined) return reported ?? notStarted(view, container, role);
  if (newest === undefined) return lost(view, container, role, reported);
  // A container of a pod that is over has run in the sandbox that is stopped now.
  const current = view.worker.kind === "active" ? currentRun(observed, container.name, role) : newest;
  const previous = runs.find((each) => each !== newest && each.state.kind === "exited");
  if (current === undefined || newest.state.kind === "created") {
    const last = newest.state.kind === "exited" ? newest : previous;
    const lastState = last === undefined ? lastReported(reported, newest) : (terminated(view, last) ?? {});
    return { ...notStarted(view, container, role), lastState, restartCount: newest.attempt };
  }
  const state = stateOf(view, observed, container, role, newest);
  const lastRun = state.waiting === undefined ? previous : newest;
  const probed = view.probes.get(newest.id);
  const started = state.running !== undefined && (probed?.started ?? container.startupProbe === undefined);
  return {
    name: container.name,
    state,
    lastState: lastRun === undefined ? lastReported(reported, newest) : (terminated(view, lastRun) ?? {}),
    ready: isReady(role, state, started && (probed?.ready ?? container.readinessProbe === undefined)),
    restartCount: newest.attempt,
    image: newest.image,
    imageID: newest.imageId,
    containerID: containerId(view, newest),
    ...startedOf(role, started),
    ...shownResources(view, container, newest),
    ...volumeMountsOf(view, container),
    ...userOf(newest),
    ...devicesOf(view, container),
  };
}

/** How the run before this one ended, which the runtime has no longer: it was removed when the disk was full. */
function lastReported(reported: ContainerStatus | undefined, { attempt }: ObservedContainer): ContainerStatusState {
  if (attempt === 0 || reported === undefined) return {};
  if (reported.restartCount === attempt) return reported.lastState;
  // A container that waited for its next run had ended that run.
  const ended = reported.state.terminated ?? (reported.state.waiting && reported.lastState.terminated);
  return reported.restartCount === attempt - 1 && ended !== undefined ? { terminated: ended } : {};
}

/** An init container is ready once it has succeeded. An ephemeral container is never ready. */
function isReady(role: ContainerRole, state: ContainerStatusState, runningReady: boolean): boolean {
  if (role === "init") return state.terminated?.exitCode === 0;
  return role !== "ephemeral" && runningReady;
}

const startedOf = (role: ContainerRole, started: boolean): Pick<ContainerStatus, "started"> =>
  role === "ephemeral" ? {} : { started };

function userOf({ user }: ObservedContainer): Pick<ContainerStatus, "user"> {
  if (user === undefined) return {};
  const { uid, gid, supplementalGroups } = user;
  const groups = supplementalGroups.length === 0 ? {} : { supplementalGroups };
  return { user: { linux: { uid, gid, ...groups } } };
}

function devicesOf(
  { deviceHealth }: PodView,
  { name }: AnyContainer,
): Pick<ContainerStatus, "allocatedResourcesStatus"> {
  const allocatedResourcesStatus = deviceHealth?.get(name);
  return allocatedResourcesStatus === undefined ? {} : { allocatedResourcesStatus };
}

function volumeMountsOf(view: PodView, { volumeMounts = [] }: AnyContainer): Pick<ContainerStatus, "volumeMounts"> {
  if (volumeMounts.length === 0) return {};
  const mounts = volumeMounts.map(({ name, mountPath, readOnly, recursiveReadOnly }) => {
    if (readOnly !== true) return { name, mountPath };
    const isDeep = recursiveReadOnly === "Enabled" || (recursiveReadOnly === "IfPossible" && view.recursiveReadOnly);
    return { name, mountPath, readOnly, recursiveReadOnly: isDeep ? ("Enabled" as const) : ("Disabled" as const) };
  });
  return { volumeMounts: mounts };
}

function stateOf(
  view: PodView,
  observed: ObservedPod,
  container: AnyContainer,
  role: ContainerRole,
  run: ObservedContainer,
): ContainerStatusState {
  if (run.state.kind === "running") return { running: { startedAt: kubeTime(run.state.startedAtMs) } };
  const ended = terminated(view, run) ?? {};
  // Only what is to run again, and cannot yet, waits; all else is shown as it ended.
  if (view.worker.kind !== "active" || role === "ephemeral") return ended;
  const verdict = judgeContainer(view, view.worker.runs, observed, container, role);
  if (verdict.kind !== "start") return ended;
  const failure = view.failures.get(`start ${container.name}`);
  if (failure !== undefined) return { waiting: { reason: failure.reason, message: failure.message } };
  if (verdict.at <= view.monotonic) return ended;
  const { namespace, name } = view.desired.pod.metadata;
  const pod = `${name}_${namespace}(${apiUidOf(view.desired)})`;
  const message = `back-off ${wholeSeconds(run.backoff)} restarting failed container=${container.name} pod=${pod}`;
  return { waiting: { reason: "CrashLoopBackOff", message } };
}

function notStarted(view: PodView, container: AnyContainer, role: ContainerRole): ContainerStatus {
  return {
    name: container.name,
    state: { waiting: waitingReason(view, container) },
    lastState: {},
    ready: false,
    restartCount: 0,
    image: container.image,
    imageID: "",
    ...startedOf(role, false),
    ...volumeMountsOf(view, container),
  };
}

function waitingReason(view: PodView, container: AnyContainer): { readonly reason: string; readonly message?: string } {
  const failure = view.failures.get(`start ${container.name}`) ?? view.failures.get("choose");
  if (failure !== undefined) return { reason: failure.reason, message: failure.message };
  return { reason: hasInitContainers(view.desired.pod) ? "PodInitializing" : "ContainerCreating" };
}

const hasInitContainers = ({ spec }: Pod): boolean => (spec.initContainers ?? []).length > 0;

/**
 * The runtime has nothing of it, or no longer. What is known of it is shown as long as it lasts: above all that an init
 * container has done its work.
 */
function lost(
  view: PodView,
  container: AnyContainer,
  role: ContainerRole,
  reported: ContainerStatus | undefined,
): ContainerStatus {
  const waiting = notStarted(view, container, role);
  if (reported === undefined) return waiting;
  const isOver = view.worker.kind !== "active";
  if (reported.state.terminated !== undefined && (isOver || role === "init" || role === "ephemeral")) return reported;
  const hadRun = reported.containerID !== undefined;
  if (!hadRun) return { ...waiting, lastState: reported.lastState, restartCount: reported.restartCount };
  const ended = reported.state.terminated ?? reported.lastState.terminated;
  if (isOver || role === "ephemeral") {
    return { ...reported, state: { terminated: ended ?? UNKNOWN_END }, ready: false, ...startedOf(role, false) };
  }
  return { ...waiting, restartCount: reported.restartCount, lastState: { terminated: ended ?? LOST_WHILE_RUNNING } };
}

/** Shows a waiting container of a pod that is over as ended in an unknown way. */
export function asTerminated(status: ContainerStatus): ContainerStatus {
  if (status.state.terminated !== undefined) return status;
  return { ...status, state: { terminated: UNKNOWN_END }, ready: false };
}

const UNKNOWN_END = {
  exitCode: 137,
  reason: "ContainerStatusUnknown",
  message: "The container could not be located when the pod was terminated",
} as const;

const LOST_WHILE_RUNNING = {
  ...UNKNOWN_END,
  message: "The container could not be located when the pod was deleted.  The container used to be Running",
};

function reportedStatus(view: PodView, { name }: AnyContainer, role: ContainerRole): ContainerStatus | undefined {
  const { containerStatuses, initContainerStatuses, ephemeralContainerStatuses } = view.previous ?? {};
  const lists = {
    regular: containerStatuses,
    init: initContainerStatuses,
    sidecar: initContainerStatuses,
    ephemeral: ephemeralContainerStatuses,
  };
  return lists[role]?.find((each) => each.name === name);
}

/** As the kubelet joins them, but that nothing is said twice: what a component trapped with is in its log, too. */
function joined(ofRuntime: string, lastWords: string): string {
  if (ofRuntime === "" || lastWords.includes(ofRuntime)) return lastWords;
  return lastWords === "" ? ofRuntime : `${ofRuntime}: ${lastWords}`;
}

/** `undefined` for one that has not ended. */
function terminated(view: PodView, run: ObservedContainer): ContainerStatusState | undefined {
  switch (run.state.kind) {
    case "created":
    case "running":
      return undefined;
    case "unknown":
      return { terminated: { ...UNKNOWN_END, containerID: containerId(view, run) } };
    case "exited": {
      const { exitCode, reason, startedAtMs, finishedAtMs } = run.state;
      const message = joined(run.state.message, view.messages.get(run.id) ?? "");
      return {
        terminated: {
          exitCode,
          reason,
          ...(message === "" ? {} : { message }),
          startedAt: kubeTime(startedAtMs),
          finishedAt: kubeTime(finishedAtMs),
          containerID: containerId(view, run),
        },
      };
    }
  }
}

const containerId = (view: PodView, run: ObservedContainer): string => `${view.runtime}://${run.id}`;

/** As Go writes a duration of whole seconds: `40s`, `2m40s`, `5m0s`. */
function wholeSeconds(durationMs: number): string {
  const total = Math.round(durationMs / 1000);
  return total < 60 ? `${total}s` : `${Math.floor(total / 60)}m${total % 60}s`;
}
