/** What is to become of one container: run on, be stopped, be started (again), or stay as it ended. */
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import type { ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ProbeFailure } from "../core/pods/probe-ports.ts";
import { type ContainerRole, isRestartedAfterExit, isRestartedAfterProbe } from "./container-roles.ts";
import { backoffOfNextRun } from "./crash-backoff.ts";
import { gracePeriodOf } from "./grace-period.ts";
import { newestRun } from "./newest-run.ts";
import type { PodView, StopContainer } from "./pod-view.ts";
import { needsRestart, resizeOf } from "./resize.ts";
import type { Replacement, RunMemories } from "./run-memory.ts";

export type Verdict =
  | { readonly kind: "running"; readonly run: ObservedContainer }
  | { readonly kind: "stop"; readonly run: ObservedContainer; readonly stop: StopContainer }
  | { readonly kind: "start"; readonly attempt: number; readonly backoff: Millis; readonly at: MonotonicMs }
  | { readonly kind: "done"; readonly run: ObservedContainer; readonly exitCode: number };

/**
 * @returns the newest run of a container that counts: init containers run again in each sandbox, so that runs in a dead
 * sandbox do not count
 */
export function currentRun(observed: ObservedPod, name: string, role: ContainerRole): ObservedContainer | undefined {
  const newest = newestRun(observed, name);
  if (newest === undefined || role === "regular" || role === "ephemeral") return newest;
  const [sandbox] = observed.sandboxes;
  return sandbox?.state === "ready" && newest.sandboxId === sandbox.id ? newest : undefined;
}

export function judgeContainer(
  view: PodView,
  runs: RunMemories,
  observed: ObservedPod,
  container: Container,
  role: ContainerRole,
): Verdict {
  const { name } = container;
  const run = currentRun(observed, name, role);
  const hash = view.hashes.get(name);
  if (run === undefined) return firstRun(view, runs, observed, name);
  switch (run.state.kind) {
    case "created":
      return { kind: "start", attempt: run.attempt, backoff: run.backoff, at: view.monotonic };
    case "unknown":
      return unknown(view, run, role);
    case "running":
      return stopOfRunning(view, runs, run, container, role) ?? { kind: "running", run };
    case "exited": {
      const { exitCode } = run.state;
      const memory = runs.get(name)?.attempt === run.attempt ? runs.get(name) : undefined;
      const isReplaced = memory !== undefined && memory.replaced !== "no";
      if (!isReplaced && !isRestartedAfterExit(view.desired.pod, container, role, exitCode)) {
        return { kind: "done", run, exitCode };
      }
      const attempt = run.attempt + 1;
      // A container stopped because of its own change has no back-off.
      const isChanged = run.hash !== hash || memory?.replaced === "resized";
      const ended = isChanged ? undefined : memory?.ended;
      if (ended === undefined)
        return { kind: "start", attempt, backoff: backoffOfNextRun(undefined, view.backoff), at: view.monotonic };
      const backoff = backoffOfNextRun({ backoff: run.backoff, lasted: ended.lasted }, view.backoff);
      return { kind: "start", attempt, backoff, at: ended.restartAt };
    }
  }
}

/** A run of unknown state may be running, so it is stopped before its successor starts. */
function unknown(view: PodView, run: ObservedContainer, role: ContainerRole): Verdict {
  const kind = role === "init" || role === "sidecar" ? "Init container" : "Container";
  const message = `${kind} is in "unknown" state, try killing it before restart`;
  return stopped(view, run, { message, cause: "unknownState", replaces: undefined });
}

/** @returns `undefined` for one that is to run on. */
function stopOfRunning(
  view: PodView,
  runs: RunMemories,
  run: ObservedContainer,
  container: Container,
  role: ContainerRole,
): Verdict | undefined {
  const { name } = container;
  // What is to end by itself is not restarted for a change that comes too late for it, and has no probes.
  if (role === "init") return undefined;
  const isSidecar = role === "sidecar";
  const subject = isSidecar ? `Init container ${name}` : `Container ${name}`;
  const messageOf = (what: string, restarts: boolean): string =>
    `${subject} ${what}${restarts && !isSidecar ? ", will be restarted" : ""}`;
  if (run.hash !== view.hashes.get(name)) {
    return stopped(view, run, {
      message: messageOf("definition changed", true),
      cause: "changed",
      replaces: "changed",
    });
  }
  const failed = view.probes.get(run.id)?.failed;
  if (failed === undefined) {
    const resize = role === "ephemeral" ? undefined : resizeOf(view, runs, run, container);
    if (resize === undefined || !needsRestart(container, resize)) return undefined;
    return stopped(view, run, {
      message: `Container ${name} resize requires restart`,
      cause: "resized",
      replaces: "resized",
    });
  }
  const restarts = isRestartedAfterProbe(view.desired.pod, container, role);
  const message = messageOf(`failed ${failed.probe} probe`, restarts);
  return stopped(view, run, { message, cause: failed.probe, replaces: restarts ? "unhealthy" : undefined, failed });
}

/** The next round starts its successor. */
function stopped(
  { desired: { pod } }: PodView,
  run: ObservedContainer,
  why: Pick<StopContainer, "message" | "cause"> & {
    readonly replaces: Replacement | undefined;
    readonly failed?: ProbeFailure;
  },
): Verdict {
  const { message, cause, replaces, failed } = why;
  // The grace period of a deletion has precedence over that of a probe.
  const own = pod.metadata.deletionGracePeriodSeconds === undefined ? failed?.gracePeriod : undefined;
  const stop: StopContainer = {
    kind: "stopContainer",
    containerId: run.id,
    name: run.name,
    gracePeriod: millis(own ?? gracePeriodOf(pod)),
    running: run.state.kind === "running",
    after: [],
    replaces: replaces === undefined ? undefined : { attempt: run.attempt, why: replaces },
    message,
    cause,
  };
  return { kind: "stop", run, stop };
}

/** The attempt goes on counting where the runtime has lost the runs before, or has them in an older sandbox. */
function firstRun(view: PodView, runs: RunMemories, observed: ObservedPod, name: string): Verdict {
  const statuses = [...(view.previous?.containerStatuses ?? []), ...(view.previous?.initContainerStatuses ?? [])];
  const reported = statuses.find((each) => each.name === name);
  const last = Math.max(
    newestRun(observed, name)?.attempt ?? -1,
    runs.get(name)?.attempt ?? -1,
    reported?.containerID === undefined && reported?.lastState.terminated === undefined ? -1 : reported.restartCount,
  );
  return { kind: "start", attempt: last + 1, backoff: backoffOfNextRun(undefined, view.backoff), at: view.monotonic };
}
