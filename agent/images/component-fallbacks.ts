/**
 * Components that stand in for a pod's containers when memory runs short: pulled, checked and transpiled while the node
 * is calm, one at a time, because all of that takes the memory that is short then.
 */
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, ignore, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import {
  type Clock,
  type Log,
  type MonotonicMs,
  millis,
  type PodUid,
  type Random,
  seconds,
} from "@picolet/protocol/ports.ts";
import type { ContainerLaunch, DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import { isSwitchable } from "../core/pods/pod-runtime.ts";
import type { EventRecorder } from "../core/store/store-ports.ts";
import { type ImagePuller, podReference, pullOwnerOf } from "./pulls/image-puller.ts";

export interface ComponentFallbacksComponents {
  /** The runtime of components. */
  readonly adapter: RuntimeAdapter;
  readonly puller: Pick<ImagePuller, "provide">;
  readonly pods: () => readonly AgentPod[];
  /** The pod as the store has it. */
  readonly desired: (uid: PodUid) => DesiredPod | undefined;
  /** Changes when one of the pods has. */
  readonly changes: Watch<unknown>;
  /** The node's. */
  readonly conditions: Watch<readonly { readonly type: string; readonly status: string }[]>;
  /** @returns whether the node has memory for a pull or a transpilation, about 100 MiB each */
  readonly hasRoom: () => boolean;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** Between two pods, and after the last change: what else starts comes first. */
const PACE = seconds(5);
/** The time until memory is checked again. A node that is always short of it prepares no pods. */
const WITHOUT_ROOM = seconds(60);
/** After a failure, doubled by each; a registry may be away for days. */
const RETRY: BackoffPolicy = { first: seconds(30), max: seconds(3600), jitter: [1, 1.2] };

type State = { readonly content: string } & (
  | { readonly kind: "ready" }
  | { readonly kind: "failed"; readonly failures: number; readonly retryAt: MonotonicMs }
);

export class ComponentFallbacks {
  readonly #components: ComponentFallbacksComponents;
  /** An entry for each pod that can be switched; others are dropped in the next round. */
  readonly #states = new Map<PodUid, State>();

  constructor(components: ComponentFallbacksComponents) {
    this.#components = components;
  }

  canSwitch(uid: PodUid): boolean {
    const state = this.#states.get(uid);
    const pod = state?.kind === "ready" ? this.#components.desired(uid) : undefined;
    return pod !== undefined && isSwitchable(pod) && contentOf(pod) === state?.content;
  }

  /** Runs until `signal` aborts. @throws only `cancelled` */
  async run(signal: AbortSignal): Promise<void> {
    const { changes, conditions, clock } = this.#components;
    const alarm = new Alarm(clock);
    const follow = async (watch: Watch<unknown>): Promise<void> => {
      for await (const _ of watch.changes(signal)) alarm.set(PACE);
    };
    for (const watch of [changes, conditions])
      follow(watch).catch(ignore("it is the cancellation, which ends the loop below too"));
    for (;;) {
      await alarm.ring(signal);
      const next = this.#next();
      if (next !== undefined) await this.#prepare(next, signal);
      const wait = this.#untilNext();
      if (wait !== undefined) alarm.set(millis(Math.max(wait, this.#isCalm() ? PACE : WITHOUT_ROOM)));
    }
  }

  /** @returns running pods whose turn it is; a pod that is still starting has more urgent needs */
  #due(): readonly DesiredPod[] {
    const { pods, desired } = this.#components;
    const running = pods().filter(({ status }) => status?.phase === "Running");
    const known = running.map(({ desired: { uid } }) => desired(uid)).filter((pod) => pod !== undefined);
    return known.filter((pod) => isSwitchable(pod) && !this.#isSettled(pod));
  }

  #isSettled(pod: DesiredPod): boolean {
    const state = this.#states.get(pod.uid);
    return state?.kind === "ready" && state.content === contentOf(pod);
  }

  #retryAt(pod: DesiredPod): MonotonicMs {
    const state = this.#states.get(pod.uid);
    return state?.kind === "failed" && state.content === contentOf(pod) ? state.retryAt : (0 as MonotonicMs);
  }

  #next(): DesiredPod | undefined {
    const { clock, desired } = this.#components;
    for (const uid of this.#states.keys()) if (desired(uid) === undefined) this.#states.delete(uid);
    if (!this.#isCalm()) return undefined;
    return this.#due().find((pod) => this.#retryAt(pod) <= clock.monotonic());
  }

  #isCalm(): boolean {
    const { conditions, hasRoom } = this.#components;
    const isShort = conditions.current.some(({ type, status }) => type === "MemoryPressure" && status === "True");
    return !isShort && hasRoom();
  }

  /** `undefined`: something has to change before. */
  #untilNext(): number | undefined {
    const times = this.#due()
      .map((pod) => this.#retryAt(pod))
      .filter(Number.isFinite);
    return times.length === 0 ? undefined : Math.min(...times) - this.#components.clock.monotonic();
  }

  /** @throws `cancelled` alone */
  async #prepare(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    const { log, events, clock, random } = this.#components;
    const content = contentOf(pod);
    const regarding = podReference(pod);
    try {
      await this.#make(pod, signal);
      this.#states.set(pod.uid, { kind: "ready", content });
      log.info("components are ready for a pod of containers", { pod: pod.uid });
      const message = "Its components are ready: if memory runs short the pod goes on as components";
      events.record({ regarding, type: "Normal", reason: "ComponentsReady", message });
    } catch (error) {
      if (signal.aborted || isCancelled(error)) throw error;
      const before = this.#states.get(pod.uid);
      const failures = before?.kind === "failed" && before.content === content ? before.failures + 1 : 1;
      const delay = backoffDelay(RETRY, failures, random.next());
      const isHopeless = isPicoletError(error, "invalid");
      const retryAt = isHopeless ? Number.POSITIVE_INFINITY : clock.monotonic() + delay;
      this.#states.set(pod.uid, { kind: "failed", content, failures, retryAt: retryAt as MonotonicMs });
      const message = `Cannot be switched to components: ${describeError(error)}`;
      events.record({ regarding, type: "Warning", reason: "ComponentsNotReady", message });
    }
  }

  async #make(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    const { adapter, puller } = this.#components;
    const { restartPolicy, containers, initContainers = [] } = pod.pod.spec;
    const why =
      restartPolicy === "Always"
        ? await adapter.refusal?.(pod.pod)
        : "its restartPolicy is not Always: it would start again";
    if (why !== undefined) throw new PicoletError("invalid", why);
    for (const container of [...initContainers, ...containers]) {
      const { image } = container;
      const wish = {
        owner: pullOwnerOf(pod),
        regarding: podReference(pod),
        policy: "IfNotPresent",
        lane: "prefetch",
      } as const;
      const { id } = await puller.provide({ ...wish, image, adapter }, signal);
      await adapter.check?.(pod, launchOf(container, id), signal);
    }
  }
}

/** @returns a text of all that decides which components a pod has and whether they would start */
function contentOf({ pod: { metadata, spec } }: DesiredPod): string {
  const { containers, initContainers = [], securityContext, volumes } = spec;
  return JSON.stringify([metadata.annotations, initContainers, containers, securityContext, volumes]);
}

/** The part of a launch that a check reads. */
const launchOf = ({ name, image, command = [], args = [] }: Container, id: string): ContainerLaunch => ({
  ...{ name, command, args, attempt: 0, hash: "", backoff: millis(0), env: [], workingDir: "", mounts: [] },
  image: { requested: image, id },
  logPath: `${name}/0.log`,
});
