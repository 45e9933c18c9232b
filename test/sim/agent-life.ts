/** One life of the agent: everything above the runtime adapter, from start to shutdown or to its sudden end. */
import type { RuntimeRouter } from "../../agent/core/pod-ports.ts";
import { ImagePuller } from "../../agent/images/image-puller.ts";
import { Pleg } from "../../agent/observe/pleg.ts";
import { planPod } from "../../agent/plan/plan-pod.ts";
import type { PlanPod } from "../../agent/plan/pod-view.ts";
import { StatusManager } from "../../agent/status/status-manager.ts";
import { Store } from "../../agent/store/store.ts";
import { PodWorkers } from "../../agent/workers/pod-workers.ts";
import { isCancelled, isPicoletError, PicoletError } from "../../protocol/errors.ts";
import { type Clock, type Log, millis, seconds } from "../../protocol/ports.ts";
import type { RuntimeAdapter, SourceId } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { FakePodEnvironment } from "../support/fake-pod-environment.ts";
import type { Dice } from "./dice.ts";
import { Fence } from "./fence.ts";
import type { Laws } from "./laws.ts";
import type { Manifests } from "./manifest-folder.ts";

export interface AgentLifeInit {
  readonly path: string;
  readonly maxBytes: number | undefined;
  /** How many calls to the world it lives at most. */
  readonly calls: number;
  /** When each source speaks first, ms after the start. */
  readonly syncAfterMs: Readonly<Record<SimSource, number>>;
  readonly planPod?: PlanPod;
}

export type SimSource = Extract<SourceId, "file" | "api">;
export const SIM_SOURCES: readonly SimSource[] = ["file", "api"];

export interface AgentLifeComponents {
  readonly clock: Clock;
  readonly dice: Dice;
  readonly log: Log;
  readonly laws: Laws;
  readonly adapters: readonly RuntimeAdapter[];
  readonly manifests: Readonly<Record<SimSource, Manifests>>;
  readonly disk: FakePodEnvironment;
  readonly died: () => void;
}

const SOURCE_RETRY = seconds(2);

export class AgentLife {
  readonly store: Store;
  readonly workers: PodWorkers;
  readonly statuses: StatusManager;
  readonly pleg: Pleg;
  readonly fence: Fence;
  /** What a component rejected with; an agent would have ended. */
  fault: unknown;
  readonly #components: AgentLifeComponents;
  readonly #clock: Clock;
  readonly #stop = new AbortController();
  readonly #tasks: Promise<void>[];

  constructor(components: AgentLifeComponents, init: AgentLifeInit) {
    const { dice, log, laws } = components;
    this.#components = components;
    this.fence = new Fence(components, { calls: init.calls, afterEffect: dice.chance(0.5) });
    const clock = this.fence.clock();
    this.#clock = clock;
    const { path, maxBytes } = init;
    this.store = new Store({ clock, log }, { path, ...(maxBytes === undefined ? {} : { maxBytes }) });
    const adapters = components.adapters.map((each) => this.fence.adapter(each, (...step) => laws.applying(...step)));
    this.pleg = new Pleg({ adapters, clock, random: dice, log });
    this.statuses = new StatusManager({ outbox: this.store.statuses, log });
    const plan: PlanPod = (view) => {
      const made = (init.planPod ?? planPod)(view);
      laws.planned(view, made);
      return made;
    };
    const events = this.store.events;
    const images = new ImagePuller(
      { events, clock, random: dice },
      { serializeImagePulls: false, maxParallelImagePulls: undefined },
    );
    this.workers = new PodWorkers(
      {
        ...{ clock, random: dice, log, events, images },
        store: this.store.desired,
        router: routerOf(adapters),
        environment: this.#environment(),
        observer: this.pleg,
        statuses: this.statuses,
      },
      { planPod: plan },
    );
    const { signal } = this.#stop;
    const tasks = [this.store.run(signal), this.pleg.run(signal), this.workers.run(signal)];
    for (const source of SIM_SOURCES) tasks.push(this.#follow(source, init.syncAfterMs[source], signal));
    this.#tasks = tasks.map((task) => task.catch((error: unknown) => this.#failed(error)));
  }

  /** An orderly end. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#tasks);
    await this.workers[Symbol.asyncDispose]();
    await this.store[Symbol.asyncDispose]();
  }

  #failed(error: unknown): void {
    if (!isCancelled(error)) this.fault ??= error;
  }

  /** A source says what it wants, and says it again when that has changed; a full disk makes it try again. */
  async #follow(source: SimSource, afterMs: number, signal: AbortSignal): Promise<void> {
    const { manifests, dice } = this.#components;
    await this.#clock.sleep(millis(afterMs), signal);
    for await (const pods of manifests[source].watch.changes(signal)) {
      await this.#clock.sleep(dice.millis(0, 300), signal);
      for (let done = false; !done; ) {
        done = this.#say(source, [...pods.values()]);
        if (!done) await this.#clock.sleep(SOURCE_RETRY, signal);
      }
      if (!this.fence.step()) await new Promise(() => undefined);
    }
  }

  #say(source: SimSource, pods: Parameters<Store["desired"]["replace"]>[2]): boolean {
    const { desired } = this.store;
    const revision = desired.revision(source);
    try {
      if (desired.replace(source, revision, pods) === "conflict") desired.replace(source, revision + 1, pods);
      return true;
    } catch (error) {
      if (!isPicoletError(error, "resource_exhausted")) throw error;
      this.#components.log.warn("the disk is full", { source });
      return false;
    }
  }

  /** The disk outlives the agent; what the agent does to it passes the fence. */
  #environment(): FakePodEnvironment {
    const { disk } = this.#components;
    const own = new FakePodEnvironment();
    own.prepare = (pod, signal) => this.fence.call((inner) => disk.prepare(pod, inner), signal);
    own.cleanup = (pod, signal) => this.fence.call((inner) => disk.cleanup(pod, inner), signal);
    return own;
  }
}

function routerOf(adapters: readonly RuntimeAdapter[]): RuntimeRouter {
  return {
    adapters,
    adapterFor: (pod) => {
      const found = adapters.find((each) => each.name === (pod.spec.runtimeClassName ?? "cri"));
      if (found === undefined) throw new PicoletError("invalid", `cannot find runtime ${pod.spec.runtimeClassName}`);
      return found;
    },
  };
}
