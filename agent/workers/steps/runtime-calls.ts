import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { Action, DesiredPod, ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import type { StepContext } from "./step-run.ts";

/** Bounds one inspection, which usually takes milliseconds. */
export const INSPECT_TIMEOUT = seconds(20);
/** The kubelet's `runtimeRequestTimeout`. */
export const ACTION_TIMEOUT = seconds(120);

/** The steps' calls of a pod's runtime, each with a deadline. */
export class RuntimeCalls {
  readonly #clock: Clock;
  readonly #counts: NodeCounts | undefined;

  constructor({ clock, counts }: { readonly clock: Clock; readonly counts?: NodeCounts | undefined }) {
    this.#clock = clock;
    this.#counts = counts;
  }

  async inspect({ view, adapter, signal }: StepContext): Promise<ObservedPod> {
    const { uid } = view.desired;
    const inspect = async (deadline: AbortSignal): Promise<ObservedPod> =>
      (await adapter?.inspect(uid, deadline)) ?? { uid, sandboxes: [], containers: [], manifest: undefined };
    return await withDeadline(this.#clock, INSPECT_TIMEOUT, `inspect pod ${uid}`, inspect, signal);
  }

  async apply(action: Action, timeout: Millis, { view, adapter, signal }: StepContext): Promise<void> {
    if (adapter === undefined) return;
    const { desired } = view;
    const apply = (deadline: AbortSignal) => adapter.apply(desired, action, deadline);
    const what = `${VERBS[action.kind]} of pod ${desired.uid}`;
    const began = this.#clock.monotonic();
    try {
      await withDeadline(this.#clock, timeout, what, apply, signal);
      this.#count(action, desired, { adapter, ms: this.#clock.monotonic() - began });
    } catch (error) {
      if (!isCancelled(error)) this.#countFailure(action, desired, error);
      throw error;
    }
  }

  #count(action: Action, { pod }: DesiredPod, { adapter, ms }: { readonly adapter: RuntimeAdapter; ms: number }): void {
    if (action.kind === "createSandbox") {
      this.#counts?.add("kubelet_started_pods_total");
      this.#counts?.observe("kubelet_run_podsandbox_duration_seconds", ms, pod.spec.runtimeClassName ?? "");
    } else if (action.kind === "startContainer") {
      this.#counts?.add("kubelet_started_containers_total", containerType(pod, action.container.name));
      if (adapter.name === "wasm") this.#counts?.add("picolet_component_starts_total");
    }
  }

  #countFailure(action: Action, { pod }: DesiredPod, error: unknown): void {
    if (action.kind === "createSandbox") {
      this.#counts?.add("kubelet_started_pods_errors_total");
      this.#counts?.add("kubelet_run_podsandbox_errors_total", pod.spec.runtimeClassName ?? "");
    } else if (action.kind === "startContainer") {
      const code = (isPicoletError(error) ? error.reason : undefined) ?? "RunContainerError";
      const type = containerType(pod, action.container.name);
      this.#counts?.add("kubelet_started_containers_errors_total", code, type);
    }
  }
}

/** The kubelet's label `container_type`. */
function containerType({ spec }: Pod, name: string): string {
  if (spec.initContainers?.some((each) => each.name === name) === true) return "init_container";
  return spec.ephemeralContainers?.some((each) => each.name === name) === true ? "ephemeral_container" : "container";
}

const VERBS: Readonly<Record<Action["kind"], string>> = {
  createSandbox: "create the sandbox",
  startContainer: "start a container",
  stopContainer: "stop a container",
  updateContainer: "update a container",
  updateSandbox: "update the sandbox",
  removeContainer: "remove a container",
  stopSandbox: "stop the sandbox",
  removeSandbox: "remove the sandbox",
};
