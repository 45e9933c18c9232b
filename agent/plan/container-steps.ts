/**
 * The next steps of an active pod's containers, by the kubelet's rules (pkg/kubelet/kuberuntime, computePodActions).
 */
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import type { ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { isRestartedAfterProbe, roleOf } from "./container-roles.ts";
import { currentRun, judgeContainer, type Verdict } from "./judge-container.ts";
import { newestRun } from "./newest-run.ts";
import type { PlanAction, PodView } from "./pod-view.ts";
import type { Outcome, WorkerState } from "./worker-state.ts";

/** Steps that are taken together or not at all. */
export type Unit = readonly PlanAction[];

export interface ContainerSteps {
  readonly units: readonly Unit[];
  readonly wakeAt: MonotonicMs | undefined;
  readonly backingOff: readonly { readonly name: string; readonly attempt: number }[];
  /** Set when no container will ever run again. */
  readonly outcome: Outcome | undefined;
}

export function containerSteps(
  view: PodView,
  state: Extract<WorkerState, { kind: "active" }>,
  observed: ObservedPod,
): ContainerSteps {
  const { pod } = view.desired;
  const judge = (container: Container): Verdict =>
    judgeContainer(view, state.runs, observed, container, roleOf(pod, container));
  const steps = new StepCollector(view);
  const regular = pod.spec.containers.map((container) => ({ container, verdict: judge(container) }));
  const codes = regular.map(({ verdict }) => (verdict.kind === "done" ? verdict.exitCode : undefined));
  if (codes.every((code) => code !== undefined)) {
    return steps.ended(codes.every((code) => code === 0) ? "Succeeded" : "Failed");
  }
  steps.addEphemeral(observed);
  const init = (pod.spec.initContainers ?? []).map((container) => ({
    container,
    verdict: judge(container),
    isSidecar: roleOf(pod, container) === "sidecar",
  }));
  const initialized = hasInitialized(view, observed);
  // The runs of those before the last that has run may be gone; it would not have run without them.
  const reached = init.findLastIndex(({ container }) => hasRunHere(observed, container.name));
  for (const [index, { container, verdict, isSidecar }] of init.entries()) {
    const isPast = initialized || index < reached;
    if (isPast && !isSidecar) continue;
    if (verdict.kind === "done" && verdict.exitCode !== 0) return steps.ended("Failed");
    const isLost = verdict.kind === "stop" && verdict.run.state.kind === "unknown";
    if (isLost && !isRestartedAfterProbe(pod, container, roleOf(pod, container))) return steps.ended("Failed");
    steps.add(container, verdict, !isSidecar);
    const passed =
      verdict.kind === "done" || (isSidecar && verdict.kind === "running" && isStarted(view, container, verdict.run));
    if (!passed && !isPast) return steps.result();
  }
  for (const { container, verdict } of regular) steps.add(container, verdict, false);
  return steps.result();
}

/** Once there is a regular container in this sandbox, its init containers are over. */
export function hasInitialized(view: PodView, observed: ObservedPod): boolean {
  return view.desired.pod.spec.containers.some(({ name }) => hasRunHere(observed, name));
}

/** In the sandbox that there is now. */
function hasRunHere(observed: ObservedPod, name: string): boolean {
  const [sandbox] = observed.sandboxes;
  const run = newestRun(observed, name);
  return sandbox?.state === "ready" && run?.sandboxId === sandbox.id;
}

/** One with a start-up probe is not before the probe says so. */
const isStarted = (view: PodView, container: Container, run: ObservedContainer): boolean =>
  view.probes.get(run.id)?.started ?? container.startupProbe === undefined;

class StepCollector {
  readonly #view: PodView;
  readonly #units: Unit[] = [];
  readonly #backingOff: { readonly name: string; readonly attempt: number }[] = [];
  #wakeAt: MonotonicMs | undefined;

  constructor(view: PodView) {
    this.#view = view;
  }

  add(container: Container, verdict: Verdict, init: boolean): void {
    switch (verdict.kind) {
      case "running":
      case "done":
        return;
      case "stop": {
        const { run, stop } = verdict;
        // The next round starts its successor. A run of unknown state is removed before that.
        const remove: Unit = run.state.kind === "unknown" ? [{ kind: "removeContainer", containerId: run.id }] : [];
        this.#units.push([stop, ...remove]);
        return;
      }
      case "start": {
        const { attempt, backoff, at } = verdict;
        if (at > this.#view.monotonic) {
          this.#wakeAt = earliest(this.#wakeAt, at);
          this.#backingOff.push({ name: container.name, attempt });
          return;
        }
        this.#units.push([{ kind: "startContainer", name: container.name, init, attempt, backoff }]);
      }
    }
  }

  /** Each is started once in its pod's life, in a sandbox that is there, whether the others are initialized or not. */
  addEphemeral(observed: ObservedPod): void {
    const { desired, previous, backoff } = this.#view;
    if (observed.sandboxes[0]?.state !== "ready") return;
    for (const container of desired.pod.spec.ephemeralContainers ?? []) {
      const { name } = container;
      const run = currentRun(observed, name, "ephemeral");
      const reported = previous?.ephemeralContainerStatuses?.find((each) => each.name === name);
      const isOver = run === undefined ? reported?.containerID !== undefined : run.state.kind !== "created";
      if (isOver) continue;
      this.#units.push([{ kind: "startContainer", name, init: false, attempt: 0, backoff: backoff.initial }]);
    }
  }

  ended(phase: Outcome["phase"]): ContainerSteps {
    return { units: [], wakeAt: undefined, backingOff: [], outcome: { phase, reason: "", message: "" } };
  }

  result(): ContainerSteps {
    return { units: this.#units, wakeAt: this.#wakeAt, backingOff: this.#backingOff, outcome: undefined };
  }
}

export const earliest = (first: MonotonicMs | undefined, second: MonotonicMs): MonotonicMs =>
  first === undefined || second < first ? second : first;
