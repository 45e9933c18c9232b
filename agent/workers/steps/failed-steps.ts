import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type PlanAction, stepOf } from "../../plan/pod-view.ts";
import type { PodEvents } from "../ports/pod-events.ts";
import type { StepFailures } from "./step-failures.ts";

/** What is told of steps that have failed: to their worker, in the log, and in the kubelet's events. */
export class FailedSteps {
  readonly #ports: { readonly log: Log; readonly events: PodEvents };
  readonly #failures: StepFailures;

  constructor(ports: { readonly log: Log; readonly events: PodEvents }, failures: StepFailures) {
    this.#ports = ports;
    this.#failures = failures;
  }

  tell(action: PlanAction, desired: DesiredPod, error: unknown): void {
    const { log, events } = this.#ports;
    const isImage = error instanceof ImageFailure;
    const isHook = error instanceof HookFailure;
    const step = stepOf(action);
    const { reason: usual, prefix } = FAILURES[action.kind];
    const own = isImage || isHook ? error.cause : error;
    const reason = isHook ? "PostStartHookError" : usual;
    const failure = this.#failures.add(step, own, reason, kindOf(action, isImage, own));
    const { count, message } = failure;
    if (count === 1) log.warn("a step of a pod failed", { pod: desired.uid, step, error: message });
    // The image manager has recorded its own failures, and what is left behind after a pod concerns its user no more.
    if (isImage || isHook || prefix === undefined) return;
    const container = action.kind === "startContainer" || action.kind === "stopContainer" ? action.name : undefined;
    const shown = action.kind === "startContainer" ? "Failed" : failure.reason;
    for (const each of messagesOf(own, message)) {
      events.record(desired, "Warning", shown, `${prefix}${each}`, container);
    }
  }
}

/** One for each event. @see PodEnvironment for errors that bring several. */
function messagesOf(error: unknown, message: string): readonly string[] {
  const cause = error instanceof PicoletError ? error.cause : undefined;
  return cause instanceof AggregateError ? cause.errors.map(describeError) : [message];
}

function kindOf({ kind }: PlanAction, isImage: boolean, error: unknown): "image" | "start" | "other" {
  if (isImage || kind === "choose") return "image";
  // One that took all its time, half a minute of computing perhaps, is not tried again as soon as one that cost
  // nothing.
  return kind === "startContainer" && !isPicoletError(error, "deadline_exceeded") ? "start" : "other";
}

/** Marks what the image manager threw on its way through a step. */
export class ImageFailure extends Error {}

/** Marks what a postStart hook threw. */
export class HookFailure extends Error {}

interface FailureShown {
  /** When the error brings none. */
  readonly reason: string;
  /** Of the event's message; `undefined`: no event. */
  readonly prefix: string | undefined;
}

const KILL_FAILURE: FailureShown = { reason: "FailedKillPod", prefix: "error killing pod: " };
const FAILURES: Readonly<Record<PlanAction["kind"], FailureShown>> = {
  choose: { reason: "ErrImagePull", prefix: "Error: " },
  prepare: { reason: "FailedMount", prefix: "" },
  createSandbox: { reason: "FailedCreatePodSandBox", prefix: "Failed to create pod sandbox: " },
  startContainer: { reason: "RunContainerError", prefix: "Error: " },
  stopContainer: KILL_FAILURE,
  // The condition PodResizeInProgress says it.
  resize: { reason: "Error", prefix: undefined },
  stopSandbox: KILL_FAILURE,
  removeSandbox: KILL_FAILURE,
  removeContainer: KILL_FAILURE,
  cleanup: { reason: "FailedCleanup", prefix: undefined },
  forget: { reason: "FailedCleanup", prefix: undefined },
};
