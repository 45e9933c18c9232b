/** Why a pod is not ready, in one line: the first thing that `kubectl describe pod` would lead to. Pure. */
import type { RuntimeReport } from "@picolet/protocol/local-api/status.ts";
import type { ContainerStatus, Pod, PodStatus } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { containerFieldPath } from "../core/pods/container-field-path.ts";
import type { ActivePull } from "../core/pods/image-pulls.ts";
import { PENDING_STATUS, rfc3339 } from "../core/pods/pod-object.ts";
import type { EventRecord } from "../core/store/store-ports.ts";

export interface PodFacts {
  readonly pod: Pod;
  /** Under way for this pod. */
  readonly pull: ActivePull | undefined;
  /** The pod's runtime; undefined: no runtime of this node runs it. */
  readonly runtime: RuntimeReport | undefined;
  /** The pod's warnings, newest first; called only where the status says too little. */
  readonly warnings: () => Iterable<EventRecord>;
}

/** Reasons of containers that wait for another part of the pod. */
const UNTELLING: ReadonlySet<string> = new Set(["PodInitializing", "ContainerCreating"]);

/** @returns "Reason: message" */
export function whyNotReady({ pod, pull, runtime, warnings }: PodFacts): string {
  const status = pod.status ?? PENDING_STATUS;
  if (pull !== undefined) return pulling(pull);
  if (status.message !== undefined || status.reason !== undefined) return joined(status.reason, status.message);
  const containers = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])];
  return (
    first(containers, waitingReason) ??
    first(containers, failureReason) ??
    runtimeReason(status, runtime) ??
    probeReason(pod, containers, warnings) ??
    startReason(containers, status, warnings) ??
    conditionReason(status)
  );
}

function first<T>(items: readonly T[], reasonOf: (item: T) => string | undefined): string | undefined {
  for (const item of items) {
    const reason = reasonOf(item);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

function pulling({ image, state, sinceMs, progress }: ActivePull): string {
  const since = rfc3339(sinceMs);
  if (state === "waiting") return `Pulling: image ${image} waits for its turn since ${since}`;
  if (progress === undefined) return `Pulling: image ${image} since ${since}`;
  const mebibytes = (bytes: number): string => (bytes / MEBIBYTE).toFixed(1);
  return `Pulling: image ${image} since ${since}, ${mebibytes(progress.bytes)} of ${mebibytes(progress.totalBytes)} MiB`;
}

function waitingReason({ name, state: { waiting } }: ContainerStatus): string | undefined {
  if (!waiting?.reason || UNTELLING.has(waiting.reason)) return undefined;
  return joined(waiting.reason, waiting.message || `container ${name}`);
}

function failureReason({ name, state: { terminated } }: ContainerStatus): string | undefined {
  if (terminated === undefined || terminated.exitCode === 0) return undefined;
  const { reason = "Error", message, exitCode } = terminated;
  return joined(reason, message || `container ${name} exited with ${exitCode}`);
}

/** A pod that has not begun waits for its runtime; one that runs is judged by what was seen last. */
function runtimeReason({ phase }: PodStatus, runtime: RuntimeReport | undefined): string | undefined {
  if (phase !== "Pending" || runtime === undefined || runtime.ready) return undefined;
  return joined("RuntimeNotReady", `${runtime.name}: ${runtime.message}`);
}

/** A container that runs and is not ready: what its probe said last, in this run of it. */
function probeReason(
  pod: Pod,
  containers: readonly ContainerStatus[],
  warnings: PodFacts["warnings"],
): string | undefined {
  const unready = containers.filter(({ state, ready }) => state.running !== undefined && !ready);
  if (unready.length === 0) return undefined;
  const sinceByPath = new Map(
    unready.map(({ name, state }) => [containerFieldPath(pod, name), Date.parse(state.running?.startedAt ?? "") || 0]),
  );
  for (const { reason, message, regarding, lastAtMs } of warnings()) {
    const since = sinceByPath.get(regarding.fieldPath);
    // Times of statuses are whole seconds.
    if (reason === "Unhealthy" && since !== undefined && lastAtMs >= since) return joined(reason, message);
  }
  return undefined;
}

/** Failures of volumes, network and rights of a pod that has not started are in events only. */
function startReason(
  containers: readonly ContainerStatus[],
  { phase }: PodStatus,
  warnings: PodFacts["warnings"],
): string | undefined {
  if (phase !== "Pending" || containers.some(({ state }) => state.running !== undefined)) return undefined;
  for (const { reason, message } of warnings()) return joined(reason, message);
  return undefined;
}

function conditionReason({ conditions, phase }: PodStatus): string {
  const failed = conditions?.find((each) => each.type === "Ready" && each.status !== "True");
  if (failed?.message || failed?.reason) return joined(failed.reason, failed.message);
  return phase === "Pending" ? "Pending" : "";
}

const joined = (reason: string | undefined, message: string | undefined): string =>
  [reason, message].filter((part) => part !== undefined && part !== "").join(": ");
