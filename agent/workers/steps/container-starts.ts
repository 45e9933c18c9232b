import { cancelled, joinSignals, onAbort } from "@picolet/protocol/async/abort.ts";
import { ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { LifecycleHandler } from "@picolet/protocol/pod/pod.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { Action, ContainerLaunch, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { DeviceLaunch } from "../../core/pods/container-devices.ts";
import type { AnyContainer } from "../../plan/container-roles.ts";
import { startedDecision } from "../../plan/decisions.ts";
import { gracePeriodOf } from "../../plan/grace-period.ts";
import type { PlanAction, StopContainer } from "../../plan/pod-view.ts";
import type { WorkerPorts } from "../ports/worker-ports.ts";
import { HookFailure, ImageFailure } from "./failed-steps.ts";
import type { PodImages } from "./pod-images.ts";
import { ACTION_TIMEOUT, type RuntimeCalls } from "./runtime-calls.ts";
import { containerOf, hookTarget, type StepListener, type StepRun } from "./step-run.ts";

/** Grace for a start whose round is broken off: some ten times the usual duration of a start. */
const START_LINGERS = seconds(5);

type StartContainer = Extract<PlanAction, { kind: "startContainer" }>;

export interface ContainerStartsParts {
  readonly images: PodImages;
  readonly calls: RuntimeCalls;
  readonly listener: Pick<StepListener, "dispatch">;
  /** Stops a container whose hook has failed. Never rejects. */
  readonly end: (stop: StopContainer, run: StepRun) => Promise<unknown>;
}

/** Starts one container: image, sandbox address, CPUs, the start itself, and the postStart hook. */
export class ContainerStarts {
  readonly #ports: WorkerPorts;
  readonly #own: ContainerStartsParts;

  constructor(ports: WorkerPorts, own: ContainerStartsParts) {
    this.#ports = ports;
    this.#own = own;
  }

  /** @returns `pending` while the image is being pulled */
  async start(action: StartContainer, context: StepRun): Promise<"done" | "pending"> {
    const { events, decisions, clock } = this.#ports;
    const { desired } = context.view;
    const { name, attempt, backoff } = action;
    const launch = await this.#launch(action, context);
    if (launch === undefined) return "pending";
    const start: Action = { kind: "startContainer", container: launch };
    // A start that is cut off shows as an exit with code 128, which would be reported for a pod that is only removed.
    const run = (signal: AbortSignal): Promise<void> =>
      this.#own.calls.apply(start, ACTION_TIMEOUT, { ...context, signal });
    await runWithGrace(clock, START_LINGERS, run, context);
    this.#own.listener.dispatch({ kind: "started", name, attempt, monotonic: clock.monotonic() });
    decisions.record(startedDecision(context.view, { name, attempt, backoff }), desired);
    events.record(desired, "Normal", "Created", `Created container: ${name}`, name);
    events.record(desired, "Normal", "Started", `Started container ${name}`, name);
    const postStart = containerOf(desired, name)?.lifecycle?.postStart;
    if (postStart !== undefined) await this.#postStart(postStart, action, context);
    return "done";
  }

  /** A container whose postStart hook fails is stopped; the restart policy decides whether it runs again. */
  async #postStart(handler: LifecycleHandler, { name, attempt }: StartContainer, context: StepRun): Promise<void> {
    const { desired } = context.view;
    const observed = await this.#own.calls.inspect(context);
    const run = observed.containers.find((each) => each.name === name && each.attempt === attempt);
    const target = run && hookTarget(run, { ...context, observed });
    if (run === undefined || target === undefined) return;
    try {
      await this.#ports.hooks.run(handler, target, context.signal);
    } catch (error) {
      if (context.signal.aborted || isCancelled(error)) throw error;
      this.#ports.events.record(desired, "Warning", "FailedPostStartHook", "PostStartHook failed", name);
      const gracePeriod = gracePeriodOf(desired.pod);
      const running = run.state.kind === "running";
      const stop = {
        kind: "stopContainer",
        containerId: run.id,
        name,
        gracePeriod,
        after: [],
        replaces: undefined,
        running,
        message: "FailedPostStartHook",
        cause: "hookFailed",
      } as const;
      // A failed stop is left to the next round.
      if (running) await this.#own.end(stop, { ...context, observed });
      throw new HookFailure("", { cause: error });
    }
  }

  /** @returns `undefined` while the image is being pulled */
  async #launch(action: StartContainer, context: StepRun): Promise<ContainerLaunch | undefined> {
    const { desired } = context.view;
    const { name, attempt, backoff } = action;
    const container = containerOf(desired, name);
    if (container === undefined) throw new PicoletError("internal", `cannot find container ${name} of ${desired.uid}`);
    const image = await this.#own.images.take(name, context.signal).catch((error: unknown) => {
      throw context.signal.aborted ? error : new ImageFailure("", { cause: error });
    });
    if (image === undefined) return undefined;
    const observed = await this.#withSandbox(context);
    const launch = this.#ports.environment.container(desired, container, { attempt, backoff, image }, observed);
    this.#ports.placement?.starting(desired, name);
    const cpuset = this.#ports.placement?.cpuset(desired, name);
    const targetContainerId = targetOf(container, observed);
    const { cdiDevices = [], ...own } = launch;
    const devices = await this.#ports.devices?.launch(desired, { name, cdiDevices }, context.signal);
    return {
      ...(devices === undefined ? launch : withDevices(own, devices)),
      ...(cpuset === undefined ? {} : { cpuset }),
      ...(targetContainerId === undefined ? {} : { targetContainerId }),
    };
  }

  /**
   * Inspects a new sandbox before its first container starts: the address goes into the container's /etc/hosts. On the
   * host's network no inspection is needed.
   */
  async #withSandbox(run: StepRun): Promise<ObservedPod> {
    const { view, adapter } = run;
    const { uid, pod } = view.desired;
    const nothing: ObservedPod = { uid, sandboxes: [], containers: [], manifest: undefined };
    if (run.observed !== undefined) return run.observed;
    if (adapter === undefined || pod.spec.hostNetwork === true) return view.observed ?? nothing;
    run.observed = await this.#own.calls.inspect(run);
    return run.observed;
  }
}

/** The container's own variables and mounts win over those of its devices, as in a kubelet. */
function withDevices(launch: ContainerLaunch, { env, mounts, devices, annotations, cdiDevices }: DeviceLaunch) {
  const named = new Set(launch.env.map(({ name }) => name));
  const mounted = new Set(launch.mounts.map(({ containerPath }) => containerPath));
  return {
    ...launch,
    env: [...env.filter(({ name }) => !named.has(name)), ...launch.env],
    mounts: [...launch.mounts, ...mounts.filter(({ containerPath }) => !mounted.has(containerPath))],
    devices: [...(launch.devices ?? []), ...devices],
    annotations,
    cdiDevices,
  };
}

/** @returns the container whose processes an ephemeral container sees */
function targetOf(container: AnyContainer, { containers }: ObservedPod): string | undefined {
  const name = "targetContainerName" in container ? container.targetContainerName : undefined;
  if (name === undefined || name === "") return undefined;
  const target = containers.find((each) => each.name === name);
  if (target !== undefined) return target.id;
  const reason = "CreateContainerConfigError";
  throw new PicoletError("not_found", `unable to find target container ${name}`, { reason, retryable: true });
}

/**
 * Gives a task `grace` to finish after `signal` aborts: cut off at once, it would leave something that looks like a
 * failure.
 * @param signal if it aborts before the task began, the task never begins
 * @param life cancels the task at once
 * @throws what the task throws; `cancelled` if it never began
 */
export async function runWithGrace<T>(
  clock: Clock,
  grace: Millis,
  task: (signal: AbortSignal) => Promise<T>,
  { signal, life }: { readonly signal: AbortSignal; readonly life: AbortSignal },
): Promise<T> {
  if (signal.aborted) throw cancelled("the task");
  using joined = joinSignals(life);
  using _cutOff = onAbort(signal, () => {
    clock.sleep(grace, joined.signal).then(() => joined.abort(), ignore("the task has ended in time"));
  });
  try {
    return await task(joined.signal);
  } finally {
    joined.abort();
  }
}
