/** What is to become of one container: run on, be stopped, be started (again), or stay as it ended. */
import type { Container, Pod, RestartPolicy } from "../../protocol/pod.ts";
import type { Millis, MonotonicMs } from "../../protocol/ports.ts";
import type { ObservedContainer, ObservedPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { backoffOfNextRun } from "./crash-backoff.ts";
import type { PodView } from "./pod-view.ts";
import type { RunMemories } from "./worker-state.ts";

export type Verdict =
  | { readonly kind: "running"; readonly run: ObservedContainer }
  /** `message` says why, for the event. */
  | { readonly kind: "stop"; readonly run: ObservedContainer; readonly message: string }
  | { readonly kind: "start"; readonly attempt: number; readonly backoff: Millis; readonly at: MonotonicMs }
  | { readonly kind: "done"; readonly run: ObservedContainer; readonly exitCode: number };

export type ContainerRole = "init" | "sidecar" | "regular";

export const roleOf = (pod: Pod, container: Container): ContainerRole => {
  if (!pod.spec.initContainers?.includes(container)) return "regular";
  return container.restartPolicy === "Always" ? "sidecar" : "init";
};

/** The newest run of a container that counts: init containers run anew in every sandbox, so a dead one takes theirs along. */
export function currentRun(observed: ObservedPod, name: string, role: ContainerRole): ObservedContainer | undefined {
  const newest = newestRun(observed, name);
  if (newest === undefined || role === "regular") return newest;
  const [sandbox] = observed.sandboxes;
  return sandbox?.state === "ready" && newest.sandboxId === sandbox.id ? newest : undefined;
}

/** Of a container whatever its sandbox. */
export const newestRun = (observed: ObservedPod, name: string): ObservedContainer | undefined =>
  observed.containers.find((each) => each.name === name);

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
      return {
        kind: "stop",
        run,
        message: `Container ${name} is in unknown state, try killing it before starting a new one`,
      };
    case "running": {
      const changed = role !== "init" && run.hash !== hash;
      if (!changed) return { kind: "running", run };
      return { kind: "stop", run, message: `Container ${name} definition changed, will be restarted` };
    }
    case "exited": {
      const { exitCode } = run.state;
      const memory = runs.get(name)?.attempt === run.attempt ? runs.get(name) : undefined;
      if (memory?.replaced !== true && !restarts(policyOf(view.desired.pod, role), exitCode))
        return { kind: "done", run, exitCode };
      const attempt = run.attempt + 1;
      const ended = run.hash === hash ? memory?.ended : undefined;
      if (ended === undefined)
        return { kind: "start", attempt, backoff: backoffOfNextRun(undefined, view.backoff), at: view.monotonic };
      const backoff = backoffOfNextRun({ backoff: run.backoff, lasted: ended.lasted }, view.backoff);
      return { kind: "start", attempt, backoff, at: ended.restartAt };
    }
  }
}

/** The attempt goes on counting where the runtime has lost the runs before, or has them in an older sandbox. */
function firstRun(view: PodView, runs: RunMemories, observed: ObservedPod, name: string): Verdict {
  const statuses = [...(view.previous?.containerStatuses ?? []), ...(view.previous?.initContainerStatuses ?? [])];
  const told = statuses.find((each) => each.name === name);
  const last = Math.max(
    newestRun(observed, name)?.attempt ?? -1,
    runs.get(name)?.attempt ?? -1,
    told?.containerID === undefined ? -1 : told.restartCount,
  );
  return { kind: "start", attempt: last + 1, backoff: backoffOfNextRun(undefined, view.backoff), at: view.monotonic };
}

/** An init container is restarted until it succeeds, unless the pod is never to restart anything. */
function policyOf(pod: Pod, role: ContainerRole): RestartPolicy {
  if (role === "sidecar") return "Always";
  const { restartPolicy } = pod.spec;
  return role === "init" && restartPolicy === "Always" ? "OnFailure" : restartPolicy;
}

function restarts(policy: RestartPolicy, exitCode: number): boolean {
  switch (policy) {
    case "Always":
      return true;
    case "OnFailure":
      return exitCode !== 0;
    case "Never":
      return false;
  }
}
