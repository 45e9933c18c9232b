/** Views of one pod for planners, made of the few things that a case is about. */
import { containersOf } from "@picolet/agent/plan/container-roles.ts";
import { DEFAULT_CRASH_BACKOFF } from "@picolet/agent/plan/crash-backoff.ts";
import { type Failure, NO_RESIZE, type PodView } from "@picolet/agent/plan/pod-view.ts";
import { INITIAL_STATE, transition, type WorkerState } from "@picolet/agent/plan/worker-state.ts";
import { containerHash } from "@picolet/protocol/pod/container-hash.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import type {
  ContainerState,
  ObservedContainer,
  ObservedPod,
  ObservedSandbox,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, podOf } from "./sample-pods.ts";

/** 2026-01-01T12:00:00Z. */
export const NOW_MS = 1_767_268_800_000;
/** The monotonic clock's reading at the same moment. */
export const NOW = 1_000_000 as MonotonicMs;

export interface ViewOptions extends Partial<PodView> {
  readonly pod?: Pod;
  readonly sandboxes?: readonly ObservedSandbox[];
  readonly containers?: readonly ObservedContainer[];
}

/** A view of a pod that is desired, inspected and prepared. */
export function viewOf({ pod = podOf(), sandboxes = [], containers = [], ...given }: ViewOptions = {}): PodView {
  const own = desired(pod);
  const all = containersOf(pod);
  return {
    desired: own,
    wanted: true,
    blockedBy: undefined,
    rejection: undefined,
    end: undefined,
    recursiveReadOnly: false,
    worker: INITIAL_STATE,
    observed: { uid: own.uid, sandboxes, containers, manifest: own },
    prepared: true,
    hashes: new Map(all.map((each) => [each.name, containerHash(each)])),
    failures: new Map(),
    resize: NO_RESIZE,
    probes: new Map(),
    messages: new Map(),
    previous: undefined,
    runtime: "containerd",
    hostIps: ["192.0.2.7"],
    backoff: DEFAULT_CRASH_BACKOFF,
    monotonic: NOW,
    wallMs: NOW_MS,
    ...given,
  };
}

export const sandbox = (attempt: number, state: ObservedSandbox["state"] = "ready"): ObservedSandbox => ({
  id: `sandbox-${attempt}`,
  attempt,
  state,
  createdAtMs: NOW_MS - 60_000,
  ips: state === "ready" ? ["10.88.0.5"] : [],
});

export const running: ContainerState = { kind: "running", startedAtMs: NOW_MS - 30_000 };

/** One that ran for `lastedMs` and ended `agoMs` ago. */
export const exited = (exitCode: number, agoMs = 0, lastedMs = 5000): ContainerState => ({
  kind: "exited",
  startedAtMs: NOW_MS - agoMs - lastedMs,
  finishedAtMs: NOW_MS - agoMs,
  exitCode,
  reason: exitCode === 0 ? "Completed" : "Error",
  message: "",
});

/** A run of a container of `pod` in sandbox 0. */
export function run(
  pod: Pod,
  name: string,
  attempt: number,
  state: ContainerState,
  given: Partial<ObservedContainer> = {},
): ObservedContainer {
  const all = containersOf(pod);
  const spec = all.find((each) => each.name === name);
  if (spec === undefined) throw new Error(`the pod has no container ${name}`);
  return {
    id: `${name}-${attempt}`,
    name,
    attempt,
    sandboxId: "sandbox-0",
    createdAtMs: NOW_MS - 60_000,
    state,
    hash: containerHash(spec),
    backoff: millis(attempt === 0 ? 0 : Math.min(10_000 * 2 ** (attempt - 1), 300_000)),
    image: spec.image,
    imageId: `sha256:${spec.image}`,
    logPath: `/var/log/pods/default_web_uid/${name}/${attempt}.log`,
    ...given,
  };
}

/** The state of a worker that has seen `observed` at `at`. */
export function activeState(observed: ObservedPod, at: MonotonicMs = NOW, wallMs = NOW_MS): WorkerState {
  const active = transition(INITIAL_STATE, { kind: "unblocked", since: NOW });
  return transition(active, { kind: "observed", observed, monotonic: at, wallMs, limits: DEFAULT_CRASH_BACKOFF });
}

export const failure = (reason: string, message: string, retryInMs: number): Failure => ({
  reason,
  message,
  count: 1,
  retryAt: (NOW + retryInMs) as MonotonicMs,
});
