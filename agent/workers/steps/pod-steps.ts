import { cancelled } from "@picolet/protocol/async/abort.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { Action } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type ContainerResize, isBarrier, type PlanAction, type StopContainer, stepOf } from "../../plan/pod-view.ts";
import type { WorkerPorts } from "../ports/worker-ports.ts";
import { ContainerStarts } from "./container-starts.ts";
import type { ContainerStops, StopOrder } from "./container-stops.ts";
import { FailedSteps } from "./failed-steps.ts";
import type { PodImages } from "./pod-images.ts";
import { resizePod } from "./resize-step.ts";
import { ACTION_TIMEOUT, RuntimeCalls } from "./runtime-calls.ts";
import { containerOf, hookTarget, type StepContext, type StepListener, type StepRun } from "./step-run.ts";
import { failuresOf } from "./worker-access.ts";

/** Bounds the choice of a runtime: a registry may be silent for a minute, and a pod has several images. */
const CHOICE_TIMEOUT = seconds(300);
/** Bounds the creation of a sandbox, which waits for its network. Twice the usual limit, as in the kubelet. */
const SANDBOX_TIMEOUT = seconds(240);

type Outcome = "done" | "pending" | "failed";

/** Carries out the plan for one pod step by step, with the kubelet's events. */
export class PodSteps {
  readonly #ports: WorkerPorts;
  readonly #images: PodImages;
  readonly #stops: ContainerStops;
  readonly #listener: StepListener;
  readonly #calls: RuntimeCalls;
  readonly #starts: ContainerStarts;
  readonly #failed: FailedSteps;

  constructor(
    ports: WorkerPorts,
    own: {
      readonly images: PodImages;
      readonly stops: ContainerStops;
      readonly listener: StepListener;
    },
  ) {
    this.#ports = ports;
    this.#stops = own.stops;
    this.#images = own.images;
    this.#listener = own.listener;
    this.#calls = new RuntimeCalls(ports);
    this.#failed = new FailedSteps(ports, own.listener);
    const { images, listener } = own;
    const end = (stop: StopContainer, run: StepRun): Promise<unknown> => this.#step(stop, run);
    this.#starts = new ContainerStarts(ports, { images, listener, calls: this.#calls, end });
  }

  /**
   * @returns the identities of the actions that were done, and whether another round is due, because a step succeeded
   *   or failed
   * @throws `cancelled` alone; a step that fails goes into the worker's state
   */
  async run(
    actions: readonly PlanAction[],
    context: StepContext,
  ): Promise<{ done: ReadonlySet<string>; due: boolean }> {
    const imagesFrom = 1 + actions.findLastIndex((action) => this.#comesBeforeImages(action));
    const run: StepRun = { ...context, observed: context.view.observed, ends: new Map() };
    const done = new Set<string>();
    const unstopped = new Set<string>();
    let due = false;
    for (let index = 0; index < actions.length; ) {
      if (index === imagesFrom) this.#beginImages(actions, context);
      const batch = batchAt(actions, index);
      index += batch.length;
      const [first] = batch;
      if (first?.kind === "removeContainer" && unstopped.has(first.containerId)) continue;
      const outcomes = await Promise.all(
        batch.map((action) => {
          const outcome = this.#step(action, run);
          if (action.kind === "stopContainer") run.ends.set(action.containerId, outcome);
          return outcome;
        }),
      );
      for (const [position, action] of batch.entries()) {
        if (outcomes[position] !== "pending") due = true;
        if (outcomes[position] === "done") done.add(identityOf(action));
        if (outcomes[position] === "failed" && action.kind === "stopContainer") unstopped.add(action.containerId);
      }
      if (batch.some((action, position) => outcomes[position] === "failed" && isBarrier(action))) break;
    }
    return { done, due };
  }

  /**
   * Volumes are mounted before images are pulled, so that a failed mount is the first event of a pod, and a retry does
   * not repeat the events of the images. The same holds for a sandbox whose creation failed before.
   */
  #comesBeforeImages(action: PlanAction): boolean {
    if (action.kind === "prepare") return true;
    return action.kind === "createSandbox" && failuresOf(this.#listener.state).has(stepOf(action));
  }

  /** Pulls run while the sandbox is created. */
  #beginImages(actions: readonly PlanAction[], { view, adapter, life }: StepContext): void {
    for (const action of actions) {
      const container = action.kind === "startContainer" ? containerOf(view.desired, action.name) : undefined;
      if (container !== undefined && adapter !== undefined) this.#images.begin(view.desired, container, adapter, life);
    }
  }

  async #step(action: PlanAction, context: StepRun): Promise<Outcome> {
    try {
      if (context.signal.aborted) throw cancelled("the step");
      const outcome = await this.#carryOut(action, context);
      // While an image is being pulled, its last failure stays the latest known state.
      if (outcome === "done" || action.kind === "choose") {
        this.#listener.dispatch({ kind: "stepSucceeded", step: stepOf(action) });
      }
      return outcome;
    } catch (error) {
      if (context.signal.aborted) throw isCancelled(error) ? error : cancelled("the step");
      this.#failed.record(action, context.view.desired, error);
      return "failed";
    }
  }

  async #carryOut(action: PlanAction, context: StepRun): Promise<Outcome> {
    switch (action.kind) {
      case "choose":
        await this.#choose(context);
        // The store publishes the choice, and the next round follows it.
        return "pending";
      case "prepare":
        await this.#prepare(context);
        return "done";
      case "createSandbox":
        await this.#createSandbox(action.attempt, context);
        return "done";
      case "startContainer":
        return this.#starts.start(action, context);
      case "stopContainer": {
        const { name, replaces } = action;
        const monotonic = this.#ports.clock.monotonic();
        if (replaces !== undefined) this.#listener.dispatch({ kind: "replacing", name, ...replaces, monotonic });
        await this.#stop(action, context);
        return "done";
      }
      case "resize":
        await this.#resize(action.containers, context);
        return "done";
      case "removeContainer":
      case "stopSandbox":
      case "removeSandbox":
        await this.#calls.apply(action, ACTION_TIMEOUT, context);
        return "done";
      case "unprepare":
        await this.#unprepare(context);
        return "done";
      case "cleanup":
        await this.#cleanup(context);
        return "done";
      case "forget":
        this.#ports.decisions.record({ kind: "gone" }, context.view.desired);
        this.#ports.forget(context.view.desired);
        this.#listener.dispatch({ kind: "forgotten" });
        return "done";
    }
  }

  async #resize(containers: readonly ContainerResize[], context: StepRun): Promise<void> {
    const { desired: pod } = context.view;
    await resizePod(this.#ports.podResources, {
      pod,
      containers,
      update: async ({ containerId, name, attempt }, resources) => {
        const cpuset = this.#ports.placement?.cpuset(pod, name);
        await this.#calls.apply({ kind: "updateContainer", containerId, resources, cpuset }, ACTION_TIMEOUT, context);
        const monotonic = this.#ports.clock.monotonic();
        this.#listener.dispatch({ kind: "resized", name, attempt, resources, monotonic });
      },
    });
    await this.#reportResources(context);
    this.#listener.resized(pod);
  }

  /** After cgroup and containers, as in the kubelet. A runtime that fails here changes nothing of the pod. */
  async #reportResources(context: StepRun): Promise<void> {
    const sandboxId = context.observed?.sandboxes.find(({ state }) => state === "ready")?.id;
    if (sandboxId === undefined) return;
    try {
      await this.#calls.apply({ kind: "updateSandbox", sandboxId }, ACTION_TIMEOUT, context);
    } catch (error) {
      if (context.signal.aborted) throw error;
      const { uid: pod } = context.view.desired;
      this.#ports.log.warn("the runtime did not take the new resources of a pod", { pod, error: describeError(error) });
    }
  }

  /** Waits until all runtimes are identified, because one of them may have this pod. */
  async #choose({ view, adapter, observed, signal }: StepRun): Promise<void> {
    const { choices, router, isSettled, clock } = this.#ports;
    if (choices === undefined || !router.adapters.every(isSettled)) return;
    const holder = (observed?.sandboxes.length ?? 0) + (observed?.containers.length ?? 0) > 0 ? adapter : undefined;
    const choose = (deadline: AbortSignal) => choices.choose(view.desired, holder, deadline);
    await withDeadline(clock, CHOICE_TIMEOUT, `choose a runtime for pod ${view.desired.uid}`, choose, signal);
  }

  async #prepare({ view, signal }: StepContext): Promise<void> {
    const { desired } = view;
    const prepare = async (deadline: AbortSignal): Promise<void> => {
      await this.#ports.devices?.prepare(desired, deadline);
      await this.#ports.environment.prepare(desired, deadline);
    };
    await withDeadline(this.#ports.clock, ACTION_TIMEOUT, `prepare pod ${desired.uid}`, prepare, signal);
    this.#listener.dispatch({ kind: "prepared", pod: desired });
  }

  async #unprepare({ view: { desired }, signal }: StepContext): Promise<void> {
    const unprepare = (deadline: AbortSignal) => this.#ports.environment.releaseClaims(desired, deadline);
    await withDeadline(this.#ports.clock, ACTION_TIMEOUT, `unprepare pod ${desired.uid}`, unprepare, signal);
  }

  async #cleanup({ view, signal }: StepContext): Promise<void> {
    const { desired } = view;
    const cleanup = (deadline: AbortSignal) => this.#ports.environment.cleanup(desired, deadline);
    await withDeadline(this.#ports.clock, ACTION_TIMEOUT, `clean up after pod ${desired.uid}`, cleanup, signal);
  }

  async #createSandbox(attempt: number, context: StepRun): Promise<void> {
    const { environment, events, decisions, router, sandboxSlots, clock } = this.#ports;
    const { desired } = context.view;
    if (attempt > 0) {
      decisions.record({ kind: "sandboxReplaced", figures: { sandbox: attempt } }, desired);
      events.record(desired, "Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
    }
    const adapter = context.adapter ?? router.adapterFor(desired);
    const action: Action = { kind: "createSandbox", sandbox: environment.sandbox(desired, attempt) };
    const create = (): Promise<void> => this.#calls.apply(action, SANDBOX_TIMEOUT, { ...context, adapter });
    await sandboxSlots.use(create, context.signal);
    context.observed = undefined;
    this.#listener.dispatch({ kind: "sandboxCreated", attempt, monotonic: clock.monotonic() });
  }

  async #stop(action: StopContainer, context: StepRun): Promise<void> {
    const { view, signal, life, ends } = context;
    const { desired } = view;
    const { containerId } = action;
    const handler = containerOf(desired, action.name)?.lifecycle?.preStop;
    const run = context.observed?.containers.find((each) => each.id === containerId);
    const target = run && hookTarget(run, context);
    const preStop = handler === undefined || target === undefined ? undefined : { handler, target };
    const stop: StopOrder["stop"] = (gracePeriod) =>
      this.#calls.apply(
        { kind: "stopContainer", containerId, gracePeriod },
        millis(gracePeriod + ACTION_TIMEOUT),
        context,
      );
    const turn = Promise.all(action.after.map((id) => ends.get(id)));
    await this.#stops.stop({ action, desired, preStop, turn, stop, signal, life });
  }
}

/** @returns consecutive stops as one batch, any other action by itself */
function batchAt(actions: readonly PlanAction[], index: number): readonly PlanAction[] {
  let end = index;
  while (actions[end]?.kind === "stopContainer") end += 1;
  return actions.slice(index, Math.max(end, index + 1));
}

/** @returns a key that differs for a repetition of the step that makes progress, such as the next attempt */
export function identityOf(action: PlanAction): string {
  switch (action.kind) {
    case "startContainer":
    case "createSandbox":
      return `${stepOf(action)} ${action.attempt}`;
    case "resize":
      return `${stepOf(action)} ${JSON.stringify(action.containers)}`;
    default:
      return stepOf(action);
  }
}
