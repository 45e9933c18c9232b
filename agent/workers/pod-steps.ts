import { cancelled } from "../../protocol/async/abort.ts";
import { withDeadline } from "../../protocol/async/deadline.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { LifecycleHandler } from "../../protocol/pod.ts";
import { type Millis, millis, seconds } from "../../protocol/ports.ts";
import type {
  Action,
  ContainerLaunch,
  DesiredPod,
  ObservedContainer,
  ObservedPod,
  RuntimeAdapter,
} from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { HookTarget } from "../core/probe-ports.ts";
import { type AnyContainer, containersOf } from "../plan/container-roles.ts";
import { gracePeriodOf } from "../plan/grace-period.ts";
import { isBarrier, type PlanAction, type PodView, type StopContainer, stepOf } from "../plan/pod-view.ts";
import type { ContainerResize } from "../plan/resize.ts";
import type { WorkerEvent } from "../plan/worker-state.ts";
import type { ContainerStops, StopOrder } from "./container-stops.ts";
import { lingering } from "./lingering.ts";
import type { PodImages } from "./pod-images.ts";
import { resizePod } from "./resize-step.ts";
import type { StepFailures } from "./step-failures.ts";
import type { WorkerPorts } from "./worker-ports.ts";

/** A runtime answers in milliseconds; one that needs longer than this for one pod is taken not to answer for it. */
export const INSPECT_TIMEOUT = seconds(20);
/** The kubelet's `runtimeRequestTimeout`. */
const ACTION_TIMEOUT = seconds(120);
/** A registry may be silent for a minute, and a pod has several images. */
const CHOICE_TIMEOUT = seconds(300);
/** How long a start may go on whose pod is to be removed: some ten times what one takes. */
const START_LINGERS = seconds(5);
/** A sandbox waits for its network; the kubelet gives it twice the time. */
const SANDBOX_TIMEOUT = seconds(240);

/** Where the steps are taken: one plan's view, its runtime, and how long it is worth going on. */
export interface StepContext {
  readonly view: PodView;
  /** `undefined`: this node has no runtime for the pod. */
  readonly adapter: RuntimeAdapter | undefined;
  /** Aborts when the pod is to be removed. */
  readonly signal: AbortSignal;
  /** Aborts with the worker; for what outlasts one round. */
  readonly life: AbortSignal;
}

/** A context with what its steps have learnt on the way. */
type Run = StepContext & {
  observed: ObservedPod | undefined;
  /** Of the stops of this batch, by container id: when each is over, well or not. */
  readonly ends: Map<string, Promise<unknown>>;
};

/** What the steps tell their worker. */
export interface StepListener {
  happened(event: WorkerEvent): void;
  prepared(desired: DesiredPod | undefined): void;
  /** The pod's cgroup and its containers have what this one is granted. */
  resized(desired: DesiredPod): void;
}

type Outcome = "done" | "pending" | "failed";

/** Carries out what was planned for one pod, one step after the other, with the kubelet's events. */
export class PodSteps {
  readonly #ports: WorkerPorts;
  readonly #failures: StepFailures;
  readonly #images: PodImages;
  readonly #stops: ContainerStops;
  readonly #listener: StepListener;

  constructor(
    ports: WorkerPorts,
    own: {
      readonly failures: StepFailures;
      readonly images: PodImages;
      readonly stops: ContainerStops;
      readonly listener: StepListener;
    },
  ) {
    this.#ports = ports;
    this.#stops = own.stops;
    this.#failures = own.failures;
    this.#images = own.images;
    this.#listener = own.listener;
  }

  /**
   * @returns the identities of what was done, and whether another look is due, because something was done or failed.
   * @throws `cancelled` alone; a step that fails is in the failures.
   */
  async run(
    actions: readonly PlanAction[],
    context: StepContext,
  ): Promise<{ done: ReadonlySet<string>; due: boolean }> {
    const imagesFrom = 1 + actions.findLastIndex((action) => this.#comesBeforeImages(action));
    const run: Run = { ...context, observed: context.view.observed, ends: new Map() };
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
   * Volumes are mounted before an image is asked for, so that one that cannot be is the first thing told of a pod, and each
   * try does not tell of the images again; so it is with a sandbox that could not be made before.
   */
  #comesBeforeImages(action: PlanAction): boolean {
    if (action.kind === "prepare") return true;
    return action.kind === "createSandbox" && this.#failures.current.has(stepOf(action));
  }

  /** While the sandbox is being made. */
  #beginImages(actions: readonly PlanAction[], { view, adapter, life }: StepContext): void {
    for (const action of actions) {
      const container = action.kind === "startContainer" ? containerOf(view.desired, action.name) : undefined;
      if (container !== undefined && adapter !== undefined) this.#images.begin(view.desired, container, adapter, life);
    }
  }

  async #step(action: PlanAction, context: Run): Promise<Outcome> {
    try {
      if (context.signal.aborted) throw cancelled("the step");
      const outcome = await this.#carryOut(action, context);
      // While an image is on its way, what was wrong with it the last time is still all that is known.
      if (outcome === "done" || action.kind === "choose") this.#failures.succeeded(stepOf(action));
      return outcome;
    } catch (error) {
      if (context.signal.aborted) throw isCancelled(error) ? error : cancelled("the step");
      this.#failed(action, context.view.desired, error);
      return "failed";
    }
  }

  async #carryOut(action: PlanAction, context: Run): Promise<Outcome> {
    switch (action.kind) {
      case "choose":
        await this.#choose(context);
        // The store tells of the choice, and the next round goes by it.
        return "pending";
      case "prepare":
        await this.#prepare(context);
        return "done";
      case "createSandbox":
        await this.#createSandbox(action.attempt, context);
        return "done";
      case "startContainer":
        return this.#start(action, context);
      case "stopContainer": {
        const { name, replaces } = action;
        const monotonic = this.#ports.clock.monotonic();
        if (replaces !== undefined) this.#listener.happened({ kind: "replacing", name, ...replaces, monotonic });
        await this.#stop(action, context);
        return "done";
      }
      case "resize":
        await this.#resize(action.containers, context);
        return "done";
      case "removeContainer":
      case "stopSandbox":
      case "removeSandbox":
        await this.#apply(action, ACTION_TIMEOUT, context);
        return "done";
      case "cleanup":
        await this.#cleanup(context);
        return "done";
      case "forget":
        this.#ports.forget(context.view.desired);
        this.#listener.happened({ kind: "forgotten" });
        return "done";
    }
  }

  async #resize(containers: readonly ContainerResize[], context: Run): Promise<void> {
    const { desired: pod } = context.view;
    await resizePod(this.#ports.podResources, {
      pod,
      containers,
      update: async ({ containerId, name, attempt }, resources) => {
        const cpuset = this.#ports.placement?.cpuset(pod, name);
        await this.#apply({ kind: "updateContainer", containerId, resources, cpuset }, ACTION_TIMEOUT, context);
        const monotonic = this.#ports.clock.monotonic();
        this.#listener.happened({ kind: "resized", name, attempt, resources, monotonic });
      },
    });
    this.#listener.resized(pod);
  }

  /** A runtime whose pods are not all known may have this one: when they are, its worker looks again. */
  async #choose({ view, adapter, observed, signal }: Run): Promise<void> {
    const { choices, router, isSettled, clock } = this.#ports;
    if (choices === undefined || !router.adapters.every(isSettled)) return;
    const holder = (observed?.sandboxes.length ?? 0) + (observed?.containers.length ?? 0) > 0 ? adapter : undefined;
    const choose = (deadline: AbortSignal) => choices.choose(view.desired, holder, deadline);
    await withDeadline(clock, CHOICE_TIMEOUT, `choose a runtime for pod ${view.desired.uid}`, choose, signal);
  }

  async #prepare({ view, signal }: StepContext): Promise<void> {
    const { desired } = view;
    const prepare = (deadline: AbortSignal) => this.#ports.environment.prepare(desired, deadline);
    await withDeadline(this.#ports.clock, ACTION_TIMEOUT, `prepare pod ${desired.uid}`, prepare, signal);
    this.#listener.prepared(desired);
  }

  async #cleanup({ view, signal }: StepContext): Promise<void> {
    const { desired } = view;
    const cleanup = (deadline: AbortSignal) => this.#ports.environment.cleanup(desired, deadline);
    this.#listener.prepared(undefined);
    await withDeadline(this.#ports.clock, ACTION_TIMEOUT, `clean up after pod ${desired.uid}`, cleanup, signal);
  }

  async #createSandbox(attempt: number, context: Run): Promise<void> {
    const { environment, events, router, sandboxSlots, clock } = this.#ports;
    const { desired } = context.view;
    if (attempt > 0) {
      events.record(desired, "Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
    }
    const adapter = context.adapter ?? router.adapterFor(desired);
    const action: Action = { kind: "createSandbox", sandbox: environment.sandbox(desired, attempt) };
    const create = (): Promise<void> => this.#apply(action, SANDBOX_TIMEOUT, { ...context, adapter });
    await sandboxSlots.use(create, context.signal);
    context.observed = undefined;
    this.#listener.happened({ kind: "sandboxCreated", attempt, monotonic: clock.monotonic() });
  }

  async #start(action: Extract<PlanAction, { kind: "startContainer" }>, context: Run): Promise<Outcome> {
    const { events, clock } = this.#ports;
    const { desired } = context.view;
    const { name, attempt } = action;
    const launch = await this.#launch(action, context);
    if (launch === undefined) return "pending";
    const start: Action = { kind: "startContainer", container: launch };
    // A start that is cut off in its middle is an exit with code 128, which would be told of a pod that only was to go.
    const run = (signal: AbortSignal): Promise<void> => this.#apply(start, ACTION_TIMEOUT, { ...context, signal });
    await lingering(clock, START_LINGERS, run, context);
    this.#listener.happened({ kind: "started", name, attempt, monotonic: clock.monotonic() });
    events.record(desired, "Normal", "Created", `Created container: ${name}`, name);
    events.record(desired, "Normal", "Started", `Started container ${name}`, name);
    const postStart = containerOf(desired, name)?.lifecycle?.postStart;
    if (postStart !== undefined) await this.#postStart(postStart, action, context);
    return "done";
  }

  /** A container whose postStart hook fails is ended; when another follows, the restart policy says. */
  async #postStart(
    handler: LifecycleHandler,
    { name, attempt }: Extract<PlanAction, { kind: "startContainer" }>,
    context: Run,
  ): Promise<void> {
    const { desired } = context.view;
    const observed = await this.#look(context);
    const run = observed.containers.find((each) => each.name === name && each.attempt === attempt);
    const target = run && this.#hookTarget(run, { ...context, observed });
    if (run === undefined || target === undefined) return;
    try {
      await this.#ports.hooks.run(handler, target, context.signal);
    } catch (error) {
      if (context.signal.aborted || isCancelled(error)) throw error;
      this.#ports.events.record(desired, "Warning", "FailedPostStartHook", "PostStartHook failed", name);
      const gracePeriod = gracePeriodOf(desired.pod);
      const stop = {
        kind: "stopContainer",
        containerId: run.id,
        name,
        gracePeriod,
        after: [],
        replaces: undefined,
      } as const;
      const running = run.state.kind === "running";
      // That it cannot be stopped is for the next round to find out.
      if (running) await this.#step({ ...stop, running, message: "FailedPostStartHook" }, { ...context, observed });
      throw new HookFailure("", { cause: error });
    }
  }

  async #stop(action: StopContainer, context: Run): Promise<void> {
    const { view, signal, life, ends } = context;
    const { desired } = view;
    const { containerId } = action;
    const handler = containerOf(desired, action.name)?.lifecycle?.preStop;
    const run = context.observed?.containers.find((each) => each.id === containerId);
    const target = run && this.#hookTarget(run, context);
    const preStop = handler === undefined || target === undefined ? undefined : { handler, target };
    const stop: StopOrder["stop"] = (gracePeriod) =>
      this.#apply({ kind: "stopContainer", containerId, gracePeriod }, millis(gracePeriod + ACTION_TIMEOUT), context);
    const turn = Promise.all(action.after.map((id) => ends.get(id)));
    await this.#stops.stop({ action, desired, preStop, turn, stop, signal, life });
  }

  /** `undefined`: nothing of it could be reached. */
  #hookTarget({ id: containerId, name }: ObservedContainer, { view, adapter, observed }: Run): HookTarget | undefined {
    const { desired: pod, hostIps } = view;
    const container = containerOf(pod, name);
    if (container === undefined || adapter === undefined) return undefined;
    const ips = observed?.sandboxes[0]?.ips ?? [];
    const podIps = pod.pod.spec.hostNetwork === true ? hostIps : ips;
    return { pod, container, containerId, podIps, adapter };
  }

  /** @returns `undefined` while the image is on its way. */
  async #launch(
    action: Extract<PlanAction, { kind: "startContainer" }>,
    context: Run,
  ): Promise<ContainerLaunch | undefined> {
    const { desired } = context.view;
    const { name, attempt, backoff } = action;
    const container = containerOf(desired, name);
    if (container === undefined) throw new PicoletError("internal", `cannot find container ${name} of ${desired.uid}`);
    const image = await this.#images.take(name, context.signal).catch((error: unknown) => {
      throw context.signal.aborted ? error : new ImageFailure("", { cause: error });
    });
    if (image === undefined) return undefined;
    const observed = await this.#withSandbox(context);
    const launch = this.#ports.environment.container(desired, container, { attempt, backoff, image }, observed);
    this.#ports.placement?.starting(desired, name);
    const cpuset = this.#ports.placement?.cpuset(desired, name);
    const targetContainerId = targetOf(container, observed);
    return {
      ...launch,
      ...(cpuset === undefined ? {} : { cpuset }),
      ...(targetContainerId === undefined ? {} : { targetContainerId }),
    };
  }

  /**
   * A new sandbox is looked at before the first container starts in it: its address belongs into the container's
   * /etc/hosts. On the host's network there is nothing to learn.
   */
  async #withSandbox(run: Run): Promise<ObservedPod> {
    const { view, adapter } = run;
    const { uid, pod } = view.desired;
    const nothing: ObservedPod = { uid, sandboxes: [], containers: [], manifest: undefined };
    if (run.observed !== undefined) return run.observed;
    if (adapter === undefined || pod.spec.hostNetwork === true) return view.observed ?? nothing;
    run.observed = await this.#look(run);
    return run.observed;
  }

  async #look({ view, adapter, signal }: StepContext): Promise<ObservedPod> {
    const { uid } = view.desired;
    const look = async (deadline: AbortSignal): Promise<ObservedPod> =>
      (await adapter?.inspect(uid, deadline)) ?? { uid, sandboxes: [], containers: [], manifest: undefined };
    return await withDeadline(this.#ports.clock, INSPECT_TIMEOUT, `inspect pod ${uid}`, look, signal);
  }

  async #apply(action: Action, timeout: Millis, { view, adapter, signal }: StepContext): Promise<void> {
    if (adapter === undefined) return;
    const { desired } = view;
    const apply = (deadline: AbortSignal) => adapter.apply(desired, action, deadline);
    await withDeadline(this.#ports.clock, timeout, `${VERBS[action.kind]} of pod ${desired.uid}`, apply, signal);
  }

  #failed(action: PlanAction, desired: DesiredPod, error: unknown): void {
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
  // One that took all its time, half a minute of computing perhaps, is not tried again as soon as one that cost nothing.
  return kind === "startContainer" && !isPicoletError(error, "deadline_exceeded") ? "start" : "other";
}

/** Marks what the image manager threw on its way through a step. */
class ImageFailure extends Error {}

/** Marks what a postStart hook threw. */
class HookFailure extends Error {}

const VERBS: Readonly<Record<Action["kind"], string>> = {
  createSandbox: "create the sandbox",
  startContainer: "start a container",
  stopContainer: "stop a container",
  updateContainer: "update a container",
  removeContainer: "remove a container",
  stopSandbox: "stop the sandbox",
  removeSandbox: "remove the sandbox",
};

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

const containerOf = ({ pod }: DesiredPod, name: string): AnyContainer | undefined =>
  containersOf(pod).find((container) => container.name === name);

/** Whose processes an ephemeral container is to see. */
function targetOf(container: AnyContainer, { containers }: ObservedPod): string | undefined {
  const name = "targetContainerName" in container ? container.targetContainerName : undefined;
  if (name === undefined || name === "") return undefined;
  const target = containers.find((each) => each.name === name);
  if (target !== undefined) return target.id;
  const reason = "CreateContainerConfigError";
  throw new PicoletError("not_found", `unable to find target container ${name}`, { reason, retryable: true });
}

/** Stops that follow one another are one batch; any other action is one by itself. */
function batchAt(actions: readonly PlanAction[], index: number): readonly PlanAction[] {
  let end = index;
  while (actions[end]?.kind === "stopContainer") end += 1;
  return actions.slice(index, Math.max(end, index + 1));
}

/** Tells an action from one like it that would be another step forward. */
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
