import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { type Clock, type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { Action, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { StepContext } from "./step-run.ts";

/** Bounds one inspection, which usually takes milliseconds. */
export const INSPECT_TIMEOUT = seconds(20);
/** The kubelet's `runtimeRequestTimeout`. */
export const ACTION_TIMEOUT = seconds(120);

/** The steps' calls of a pod's runtime, each with a deadline. */
export class RuntimeCalls {
  readonly #clock: Clock;

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
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
    await withDeadline(this.#clock, timeout, `${VERBS[action.kind]} of pod ${desired.uid}`, apply, signal);
  }
}

const VERBS: Readonly<Record<Action["kind"], string>> = {
  createSandbox: "create the sandbox",
  startContainer: "start a container",
  stopContainer: "stop a container",
  updateContainer: "update a container",
  removeContainer: "remove a container",
  stopSandbox: "stop the sandbox",
  removeSandbox: "remove the sandbox",
};
