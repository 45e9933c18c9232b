/** One life of the agent: everything above the runtime adapter, from start to shutdown or to its sudden end. */
import type { RuntimeRouter } from "@picolet/agent/core/pods/pod-ports.ts";
import type { HookRunner } from "@picolet/agent/core/pods/probe-ports.ts";
import type { DesiredStore } from "@picolet/agent/core/store/store-ports.ts";
import { ImagePuller } from "@picolet/agent/images/pulls/image-puller.ts";
import { Pleg } from "@picolet/agent/observe/pleg.ts";
import { planPod } from "@picolet/agent/plan/plan-pod.ts";
import type { PlanPod } from "@picolet/agent/plan/pod-view.ts";
import { ApiSource } from "@picolet/agent/sources/api-source.ts";
import { StatusManager } from "@picolet/agent/status/status-manager.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { PodWorkers } from "@picolet/agent/workers/pod-workers.ts";
import type { DecisionKind } from "@picolet/protocol/decisions/decision-kinds.ts";
import { isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Log, millis, seconds } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { FakeAdmission, FakeHooks, FakeProber } from "../support/unit/agent/fake-lifecycle.ts";
import { FakePodEnvironment } from "../support/unit/agent/fake-pod-environment.ts";
import type { Dice } from "./dice.ts";
import { Fence } from "./fence.ts";
import type { Laws } from "./laws.ts";
import type { Manifests } from "./memory-manifest-folder.ts";
import type { SimHub } from "./sim-hub.ts";
import { HubLink } from "./sim-hub-link.ts";
import { asPod, hasRoom, isRejected } from "./sim-manifests.ts";

export interface AgentLifeInit {
  readonly path: string;
  readonly maxBytes: number | undefined;
  /** How many calls to the world it lives at most. */
  readonly calls: number;
  /** When each source speaks first, ms after the start. */
  readonly syncAfterMs: { readonly file: number; readonly api: number };
  readonly mutants: {
    readonly planPod?: PlanPod;
    readonly parse?: (object: object) => Pod;
    readonly silent?: DecisionKind;
  };
}

export interface AgentLifeComponents {
  readonly clock: Clock;
  readonly dice: Dice;
  readonly log: Log;
  readonly laws: Laws;
  readonly adapters: readonly RuntimeAdapter[];
  readonly manifests: Manifests;
  readonly hub: SimHub;
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
  readonly api: ApiSource;
  readonly prober = new FakeProber();
  /** The error of a component, which would have ended the agent. */
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
    const adapters = components.adapters.map((each) => this.fence.adapter(each, laws));
    this.pleg = new Pleg({ adapters, clock, random: dice, log });
    this.statuses = new StatusManager({ outbox: this.store.statuses, log });
    const plan: PlanPod = (view) => {
      const made = (init.mutants.planPod ?? planPod)(view);
      laws.planned(view, made);
      return made;
    };
    const { desired, objects, statuses: outbox, events } = this.store;
    const parse = (object: object) => ({ ok: true, pod: (init.mutants.parse ?? asPod)(object) }) as const;
    const parser = { parse, load: async () => undefined };
    const apiComponents = { clock, log, parser, objects, store: desired, statuses: outbox, events };
    this.api = new ApiSource(apiComponents, { nodeName: "sim" });
    const changing = (change: () => void): void => laws.changing(desired.desired, change);
    const link = new HubLink({
      ...{ clock, dice, log, changing, hub: components.hub, fence: this.fence, statuses: outbox },
      objects: this.api,
      told: (status) => laws.told(status),
    });
    const rejecting = new FakeAdmission();
    rejecting.rejects = ({ pod }) => (isRejected(pod) ? { reason: "OutOfcpu", message: "there is none" } : undefined);
    rejecting.defers = ({ pod }, others) => (hasRoom([pod, ...others.map((each) => each.pod)]) ? undefined : "not now");
    const images = new ImagePuller(
      { events, clock, random: dice },
      { serializeImagePulls: false, maxParallelImagePulls: undefined },
    );
    this.workers = new PodWorkers(
      {
        ...{ clock, random: dice, log, events, images },
        decisions: {
          record: (decision, pod) => {
            if (pod !== undefined && decision.kind !== init.mutants.silent) laws.decisions.recorded(decision, pod);
          },
        },
        store: watched(desired, laws, changing),
        router: routerOf(adapters),
        environment: this.#environment(),
        observer: this.pleg,
        statuses: this.statuses,
        ...{ prober: this.prober, hooks: this.#hooks(clock), admission: rejecting },
      },
      { planPod: plan },
    );
    const { signal } = this.#stop;
    const tasks = [this.store.run(signal), this.pleg.run(signal), this.workers.run(signal)];
    tasks.push(this.#followFiles(init.syncAfterMs.file, signal), link.run(init.syncAfterMs.api, signal));
    this.#tasks = tasks.map((task) => task.catch((error: unknown) => this.#failed(error)));
  }

  /** An orderly end. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#tasks);
    await this.workers[Symbol.asyncDispose]();
    await this.store[Symbol.asyncDispose]();
  }

  /** The laws judge failing hooks and hooks that run twice. */
  #hooks(clock: Clock): HookRunner {
    const hooks = new FakeHooks(clock);
    const { laws } = this.#components;
    return {
      run: async (handler, target, signal) => {
        const kind = handler === target.container.lifecycle?.postStart ? "postStart" : "preStop";
        laws.lifecycle.hookBegan(kind, target.pod.uid, target.containerId);
        await hooks.run(handler, target, signal).catch((error: unknown) => {
          if (kind === "postStart") laws.lifecycle.unwell(target.pod.uid, target.containerId);
          throw error;
        });
      },
    };
  }

  #failed(error: unknown): void {
    if (!isCancelled(error)) this.fault ??= error;
  }

  /** A source says what it wants, and says it again when that has changed; a full disk makes it try again. */
  async #followFiles(afterMs: number, signal: AbortSignal): Promise<void> {
    const { manifests, dice } = this.#components;
    await this.#clock.sleep(millis(afterMs), signal);
    for await (const pods of manifests.watch.changes(signal)) {
      await this.#clock.sleep(dice.millis(0, 300), signal);
      for (let done = false; !done; ) {
        done = this.#say([...pods.values()]);
        if (!done) await this.#clock.sleep(SOURCE_RETRY, signal);
      }
      if (!this.fence.step()) await new Promise(() => undefined);
    }
  }

  #say(pods: Parameters<Store["desired"]["replace"]>[2]): boolean {
    const { desired } = this.store;
    const revision = desired.revision("file");
    try {
      if (desired.replace("file", revision, pods) === "conflict") desired.replace("file", revision + 1, pods);
      return true;
    } catch (error) {
      if (!isPicoletError(error, "resource_exhausted")) throw error;
      this.#components.log.warn("the disk is full", { source: "file" });
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

/** Reports the changes when running pods are found. */
function watched(store: DesiredStore, laws: Laws, changing: (change: () => void) => void): DesiredStore {
  return {
    desired: store.desired,
    revision: (source) => store.revision(source),
    replace: (...wanted) => store.replace(...wanted),
    grant: (uid) => {
      store.grant(uid);
      laws.granted(uid, store.desired.current);
    },
    choose: (...chosen) => store.choose(...chosen),
    forget: (uid) => {
      laws.decisions.forgotten(uid);
      store.forget(uid);
    },
    adopt: (...found) => changing(() => store.adopt(...found)),
  };
}

function routerOf(adapters: readonly RuntimeAdapter[]): RuntimeRouter {
  return {
    adapters,
    adapterFor: (pod) => {
      const found = adapters.find((each) => each.name === (pod.pod.spec.runtimeClassName ?? "cri"));
      if (found === undefined)
        throw new PicoletError("invalid", `cannot find runtime ${pod.pod.spec.runtimeClassName}`);
      return found;
    },
  };
}
