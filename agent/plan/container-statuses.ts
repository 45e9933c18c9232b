/** `containerStatuses` and `initContainerStatuses` as the kubelet writes them (pkg/kubelet/kubelet_pods.go). */
import type { Container, ContainerStatus, ContainerStatusState } from "../../protocol/pod.ts";
import type { ObservedContainer, ObservedPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { apiUidOf } from "../core/pod-identity.ts";
import { type ContainerRole, currentRun, judgeContainer, roleOf } from "./judge-container.ts";
import { kubeTime } from "./kube-time.ts";
import type { PodView } from "./pod-view.ts";

/** In the order of the spec. */
export function containerStatuses(view: PodView, containers: readonly Container[]): ContainerStatus[] {
  return containers.map((container) => containerStatus(view, container));
}

function containerStatus(view: PodView, container: Container): ContainerStatus {
  const { observed } = view;
  const role = roleOf(view.desired.pod, container);
  const told = toldStatus(view, container.name);
  const runs = observed?.containers.filter((each) => each.name === container.name) ?? [];
  const [newest] = runs;
  if (observed === undefined) return told ?? notStarted(view, container, undefined);
  if (newest === undefined)
    return told?.containerID === undefined ? notStarted(view, container, undefined) : lost(view, container, told);
  // An init container of a pod that is over has run in the sandbox that is stopped now.
  const current = view.worker.kind === "active" ? currentRun(observed, container.name, role) : newest;
  const previous = runs.find((each) => each !== newest && each.state.kind === "exited");
  if (current === undefined || newest.state.kind === "created") {
    const last = newest.state.kind === "exited" ? newest : previous;
    return { ...notStarted(view, container, last), restartCount: newest.attempt };
  }
  const state = stateOf(view, observed, container, role, newest);
  const lastRun = state.waiting === undefined ? previous : newest;
  const running = state.running !== undefined;
  const probed = view.probes.get(newest.id);
  const started = running && (probed?.started ?? true);
  return {
    name: container.name,
    state,
    lastState: lastRun === undefined ? {} : (terminated(view, lastRun) ?? {}),
    ready: isReady(role, state, started && (probed?.ready ?? true)),
    restartCount: newest.attempt,
    image: newest.image,
    imageID: newest.imageId,
    containerID: containerId(view, newest),
    started,
  };
}

/** An init container is ready once it has succeeded. */
const isReady = (role: ContainerRole, state: ContainerStatusState, runningReady: boolean): boolean =>
  role === "init" ? state.terminated?.exitCode === 0 : runningReady;

function stateOf(
  view: PodView,
  observed: ObservedPod,
  container: Container,
  role: ContainerRole,
  run: ObservedContainer,
): ContainerStatusState {
  if (run.state.kind === "running") return { running: { startedAt: kubeTime(run.state.startedAtMs) } };
  const ended = terminated(view, run) ?? {};
  // Only what is to run again, and cannot yet, waits; all else is shown as it ended.
  if (view.worker.kind !== "active") return ended;
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

function notStarted(view: PodView, container: Container, last: ObservedContainer | undefined): ContainerStatus {
  return {
    name: container.name,
    state: { waiting: waitingReason(view, container) },
    lastState: last === undefined ? {} : (terminated(view, last) ?? {}),
    ready: false,
    restartCount: 0,
    image: container.image,
    imageID: "",
    started: false,
  };
}

function waitingReason(view: PodView, container: Container): { readonly reason: string; readonly message?: string } {
  const failure = view.failures.get(`start ${container.name}`);
  if (failure !== undefined) return { reason: failure.reason, message: failure.message };
  const first = roleOf(view.desired.pod, container) === "regular" && view.desired.pod.spec.initContainers?.length;
  return { reason: first ? "PodInitializing" : "ContainerCreating" };
}

/** The runtime has forgotten a container of which a status was written. What is known of it is shown as long as it lasts. */
function lost(view: PodView, container: Container, told: ContainerStatus): ContainerStatus {
  const ended = told.state.terminated ?? told.lastState.terminated;
  const unknown = {
    exitCode: 137,
    reason: "ContainerStatusUnknown",
    message: "The container could not be located when the pod was terminated",
  };
  if (view.worker.kind !== "active") {
    return { ...told, state: { terminated: ended ?? unknown }, ready: false, started: false };
  }
  const waiting = notStarted(view, container, undefined);
  const lastState = { terminated: ended ?? unknown };
  return { ...waiting, restartCount: told.restartCount, lastState };
}

const toldStatus = (view: PodView, name: string): ContainerStatus | undefined =>
  [...(view.previous?.containerStatuses ?? []), ...(view.previous?.initContainerStatuses ?? [])].find(
    (each) => each.name === name,
  );

/** `undefined` for one that has not ended. */
function terminated(view: PodView, run: ObservedContainer): ContainerStatusState | undefined {
  switch (run.state.kind) {
    case "created":
    case "running":
      return undefined;
    case "unknown":
      return {
        terminated: {
          exitCode: 137,
          reason: "ContainerStatusUnknown",
          message: "The container could not be located when the pod was terminated",
          containerID: containerId(view, run),
        },
      };
    case "exited": {
      const { exitCode, reason, startedAtMs, finishedAtMs } = run.state;
      const message = view.messages.get(run.id) ?? run.state.message;
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
