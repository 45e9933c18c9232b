/** The laws of the order in which a pod's containers start and end, and of what runs beside them. */
import { containersOf, roleOf, sidecarsOf } from "@picolet/agent/plan/container-roles.ts";
import { gracePeriodOf } from "@picolet/agent/plan/grace-period.ts";
import type { Plan, PodView } from "@picolet/agent/plan/pod-view.ts";
import type { Clock, PodUid } from "@picolet/protocol/ports.ts";
import type { Action, DesiredPod, ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { isRejected } from "./sim-manifests.ts";

/** Bounds the time that a call to the runtime takes before it is carried out, and an exit before it is visible. */
const TOLERANCE_MS = 1000;

export class LifecycleLaws {
  readonly #clock: Clock;
  readonly #broken: (what: string) => void;
  readonly #observed: (uid: PodUid) => ObservedPod | undefined;
  /** When the worker of each pod first planned to end it, in the current life. */
  readonly #endings = new Map<PodUid, number>();
  /** Pods of which a stop failed in this life: what waited for it goes on. */
  readonly #unstopped = new Set<PodUid>();
  /** `preStop of container-3 of pod`, begun in the current life. */
  readonly #hooks = new Set<string>();
  /** Containers that must stop although they are as they should be. */
  readonly #unwell = new Set<string>();

  constructor(components: {
    readonly clock: Clock;
    readonly broken: (what: string) => void;
    readonly observed: (uid: PodUid) => ObservedPod | undefined;
  }) {
    this.#clock = components.clock;
    this.#broken = components.broken;
    this.#observed = components.observed;
  }

  lifeBegan(): void {
    this.#endings.clear();
    this.#unstopped.clear();
    this.#hooks.clear();
  }

  planned({ desired }: PodView, { next }: Plan): void {
    const isEnding = next.kind === "finished" || next.kind === "terminating";
    if (isEnding && !this.#endings.has(desired.uid)) this.#endings.set(desired.uid, this.#clock.monotonic());
    if (next.kind === "waiting") this.#endings.delete(desired.uid);
  }

  /** A probe or a hook of it has failed. */
  unwell(uid: PodUid, containerId: string): void {
    this.#unwell.add(`${uid} ${containerId}`);
  }

  isUnwell(uid: PodUid, containerId: string): boolean {
    return this.#unwell.has(`${uid} ${containerId}`);
  }

  hookBegan(kind: "postStart" | "preStop", uid: PodUid, containerId: string): void {
    const key = `${kind} of ${containerId} of ${uid}`;
    if (this.#hooks.has(key)) this.#broken(`${key} runs twice`);
    this.#hooks.add(key);
  }

  applying(pod: DesiredPod, action: Action): void {
    if (action.kind !== "stopContainer" || action.gracePeriod === 0) return;
    const since = this.#endings.get(pod.uid);
    const containers = this.#observed(pod.uid)?.containers ?? [];
    const stopped = containers.find(({ id }) => id === action.containerId);
    if (since === undefined || stopped === undefined || this.#unstopped.has(pod.uid)) return;
    const waited = this.#clock.monotonic() - since + TOLERANCE_MS;
    if (waited >= gracePeriodOf(pod.pod)) return;
    for (const { name, state } of containers) {
      if (state.kind === "running" && comesBefore(pod, name, stopped.name)) {
        this.#broken(`${stopped.name} of ${pod.uid} is to end while ${name} runs`);
      }
    }
  }

  stopFailed(pod: DesiredPod): void {
    this.#unstopped.add(pod.uid);
  }

  sandboxCreated(pod: DesiredPod): void {
    if (isRejected(pod.pod)) this.#broken(`${pod.uid} was rejected and gets a sandbox`);
  }

  started(pod: DesiredPod, container: ObservedContainer): void {
    const containers = this.#observed(pod.uid)?.containers ?? [];
    const spec = containersOf(pod.pod).find(({ name }) => name === container.name);
    if (spec === undefined) return;
    const here = containers.filter(({ sandboxId }) => sandboxId === container.sandboxId);
    if (roleOf(pod.pod, spec) === "ephemeral") {
      if (container.attempt > 0) this.#broken(`${container.name} of ${pod.uid} is restarted`);
      return;
    }
    for (const before of pod.pod.spec.initContainers ?? []) {
      if (before === spec) return;
      const runs = here.filter(({ name }) => name === before.name);
      const isDone = runs.some(({ state }) => state.kind === "exited" && state.exitCode === 0);
      const hasRun = runs.some(({ state }) => state.kind !== "created");
      const passed = roleOf(pod.pod, before) === "sidecar" ? hasRun : isDone;
      if (!passed) this.#broken(`${container.name} of ${pod.uid} starts before ${before.name} is done`);
    }
  }
}

/** True when the first has to end before the second is stopped. */
function comesBefore({ pod }: DesiredPod, first: string, second: string): boolean {
  const sidecars = sidecarsOf(pod).map(({ name }) => name);
  const index = sidecars.indexOf(second);
  if (index < 0) return false;
  return pod.spec.containers.some(({ name }) => name === first) || sidecars.indexOf(first) > index;
}
