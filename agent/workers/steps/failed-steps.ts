import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { DecisionRecorder } from "../../core/store/decisions.ts";
import { failedDecision } from "../../plan/decisions.ts";
import { type PlanAction, stepOf } from "../../plan/pod-view.ts";
import type { PodEvents } from "../ports/pod-events.ts";
import { nextFailure } from "./step-failures.ts";
import { failuresOf, type WorkerAccess } from "./worker-access.ts";

interface FailedStepsPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly events: PodEvents;
  readonly decisions: DecisionRecorder;
}

/** Records the failures of steps: in the worker's state, in the log, and as the kubelet's events. */
export class FailedSteps {
  readonly #ports: FailedStepsPorts;
  readonly #worker: WorkerAccess;

  constructor(ports: FailedStepsPorts, worker: WorkerAccess) {
    this.#ports = ports;
    this.#worker = worker;
  }

  record(action: PlanAction, desired: DesiredPod, error: unknown): void {
    const { log, events, decisions, clock } = this.#ports;
    const isImage = error instanceof ImageFailure;
    const isHook = error instanceof HookFailure;
    const step = stepOf(action);
    const { reason: usual, prefix } = FAILURES[action.kind];
    const own = isImage || isHook ? error.cause : error;
    const reason = isHook ? "PostStartHookError" : usual;
    const failed = { step, error: own, reason, kind: kindOf(action, isImage, own) };
    const failure = nextFailure(failuresOf(this.#worker.state), failed, this.#ports);
    this.#worker.dispatch({ kind: "stepFailed", step, failure });
    const { count, message } = failure;
    decisions.record(failedDecision(action, desired, { failure, isImage, monotonic: clock.monotonic() }), desired);
    const { namespace, name } = desired.pod.metadata;
    const fields = { pod: desired.uid, namespace, name, step, error: message };
    if (count === 1) log.warn("a step of a pod failed", fields);
    // The image manager records its own failures, and leftovers of a removed pod do not concern its user.
    if (isImage || isHook || prefix === undefined) return;
    const container = action.kind === "startContainer" || action.kind === "stopContainer" ? action.name : undefined;
    const shown = action.kind === "startContainer" ? "Failed" : failure.reason;
    for (const each of messagesOf(own, message)) {
      events.record(desired, "Warning", shown, `${prefix}${each}`, container);
    }
  }
}

/** @returns the message of each event. @see PodEnvironment for errors with several causes */
function messagesOf(error: unknown, message: string): readonly string[] {
  const cause = error instanceof PicoletError ? error.cause : undefined;
  return cause instanceof AggregateError ? cause.errors.map(describeError) : [message];
}

function kindOf({ kind }: PlanAction, isImage: boolean, error: unknown): "image" | "start" | "other" {
  if (isImage || kind === "choose") return "image";
  // A start that used up its deadline, perhaps half a minute of computing, is not repeated as soon as a cheap one.
  return kind === "startContainer" && !isPicoletError(error, "deadline_exceeded") ? "start" : "other";
}

/** Marks an error of the image manager. */
export class ImageFailure extends Error {}

/** Marks an error of a postStart hook. */
export class HookFailure extends Error {}

interface FailureShown {
  /** Used when the error has none. */
  readonly reason: string;
  /** Begins the event's message; `undefined`: no event. */
  readonly prefix: string | undefined;
}

const KILL_FAILURE: FailureShown = { reason: "FailedKillPod", prefix: "error killing pod: " };
const FAILURES: Readonly<Record<PlanAction["kind"], FailureShown>> = {
  choose: { reason: "ErrImagePull", prefix: "Error: " },
  prepare: { reason: "FailedMount", prefix: "" },
  createSandbox: { reason: "FailedCreatePodSandBox", prefix: "Failed to create pod sandbox: " },
  startContainer: { reason: "RunContainerError", prefix: "Error: " },
  stopContainer: KILL_FAILURE,
  // The condition PodResizeInProgress reports it.
  resize: { reason: "Error", prefix: undefined },
  stopSandbox: KILL_FAILURE,
  removeSandbox: KILL_FAILURE,
  removeContainer: KILL_FAILURE,
  unprepare: { reason: "FailedUnprepareDynamicResources", prefix: "Failed to unprepare dynamic resources: " },
  cleanup: { reason: "FailedCleanup", prefix: undefined },
  forget: { reason: "FailedCleanup", prefix: undefined },
};
