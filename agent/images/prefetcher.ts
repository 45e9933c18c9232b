/**
 * Pulls images before a pod needs them, so that a rollout does not wait for a slow link. The annotation
 * `picolet.io/prefetch` names them, on this node's Node object (`kubectl annotate nodes -l zone=north
 * picolet.io/prefetch=app:2,db:3`) or on a pod that runs here, whose pull secrets are used then. An image is for the
 * pod's runtime, or the node's first one, unless it names another one: `wasm=pump:2`. No image name has an equals sign.
 */
import { type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type { PrefetchReport } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type MonotonicMs, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ActivePull } from "../core/pods/image-pulls.ts";
import type { RuntimeRouter } from "../core/pods/pod-ports.ts";
import {
  type DesiredSnapshot,
  type EventRecorder,
  nodeReference,
  type ObjectReference,
} from "../core/store/store-ports.ts";
import type { PullOwner } from "./credentials/pull-credentials.ts";
import { type ImagePuller, podReference, pullOwnerOf } from "./pulls/image-puller.ts";

export const PREFETCH_ANNOTATION = "picolet.io/prefetch";
/** Bounds the prefetches of one node. A rollout has a few; further ones are not pulled, and an event reports that. */
const MAX_PREFETCHES = 64;
/** After a failure, doubled by each: always a little later than the image's own back-off, 10 to 330 s, is over. */
const RETRY: BackoffPolicy = { first: seconds(12), max: seconds(360), jitter: [1, 1.2] };
/** Joins changes that come together to one check. */
const SETTLE = seconds(1);

export interface PrefetcherComponents {
  readonly puller: ImagePuller;
  readonly router: RuntimeRouter;
  readonly desired: Watch<DesiredSnapshot>;
  /** Changes when the Node object may have. */
  readonly nodeChanged: Watch<unknown>;
  /** This node's Node object; undefined: there is none. */
  readonly nodeObject: () => Readonly<Record<string, unknown>> | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly events: EventRecorder;
}

interface Wanted {
  readonly image: string;
  readonly runtime: string;
  /** The runtime; undefined: this node has no such one. */
  readonly adapter: RuntimeAdapter | undefined;
  readonly owner: PullOwner;
  readonly regarding: ObjectReference;
  readonly wantedBy: string[];
}

type Fetchable = Wanted & { readonly adapter: RuntimeAdapter };

interface Task {
  readonly life: JoinedSignal;
  readonly ended: Promise<void>;
}

type State = Pick<PrefetchReport, "state" | "message"> & {
  readonly failures: number;
  readonly retryAt: MonotonicMs | undefined;
};

const WAITING: State = { state: "waiting", message: "", failures: 0, retryAt: undefined };

export class Prefetcher implements Component {
  readonly name = "prefetch";
  readonly #components: PrefetcherComponents;
  readonly #nodeName: string;
  readonly #alarm: Alarm;
  #wanted: ReadonlyMap<string, Wanted> = new Map();
  readonly #states = new Map<string, State>();
  /** At most MAX_PREFETCHES; the puller has one of them pulled at a time. */
  readonly #tasks = new Map<string, Task>();

  constructor(components: PrefetcherComponents, init: { readonly nodeName: string }) {
    this.#components = components;
    this.#nodeName = init.nodeName;
    this.#alarm = new Alarm(components.clock);
  }

  get prefetches(): readonly PrefetchReport[] {
    const pulling = new Set(
      this.#components.puller.active.filter(isPulling).map(({ image, runtime }) => `${runtime} ${image}`),
    );
    return [...this.#wanted].map(([key, { image, runtime, wantedBy }]) => {
      const { state, message } = this.#states.get(key) ?? WAITING;
      const isUnderWay = state === "waiting" && pulling.has(`${runtime} ${image}`);
      return { image, runtime, wantedBy, state: isUnderWay ? "pulling" : state, message };
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal);
    const { desired, nodeChanged } = this.#components;
    const following = [desired, nodeChanged].map((watch) => this.#follow(watch, life.signal));
    try {
      for (;;) {
        await this.#alarm.ring(life.signal);
        this.#round(life.signal);
      }
    } finally {
      life.abort();
      await Promise.all([...following, ...[...this.#tasks.values()].map(({ ended }) => ended)]);
    }
  }

  async #follow(watch: Watch<unknown>, signal: AbortSignal): Promise<void> {
    for await (const _ of watch.changes(signal)) this.#alarm.set(SETTLE);
  }

  #round(signal: AbortSignal): void {
    this.#wanted = this.#readWanted();
    for (const [key, { life }] of this.#tasks) if (!this.#wanted.has(key)) life.abort();
    for (const key of this.#states.keys()) if (!this.#wanted.has(key)) this.#states.delete(key);
    const now = this.#components.clock.monotonic();
    for (const [key, wanted] of this.#wanted) {
      const { state, retryAt } = this.#states.get(key) ?? WAITING;
      if (this.#tasks.has(key) || state === "present" || (state === "failed" && retryAt === undefined)) continue;
      const { adapter } = wanted;
      if (retryAt !== undefined && retryAt > now) this.#alarm.set(millis(retryAt - now));
      else if (adapter === undefined) this.#refuse(key, wanted);
      else this.#start(key, { ...wanted, adapter }, signal);
    }
  }

  /** The annotation has to change: what runtimes there are is settled when the agent starts. */
  #refuse(key: string, { image, runtime, regarding }: Wanted): void {
    const { router, events } = this.#components;
    const known = router.adapters.map(({ name }) => name).join(", ");
    const message = `this node has no runtime ${runtime}, only ${known}`;
    this.#states.set(key, { ...WAITING, state: "failed", message });
    events.record({
      regarding,
      type: "Warning",
      reason: "Failed",
      message: `Failed to prefetch image "${image}": ${message}`,
    });
  }

  #start(key: string, wanted: Fetchable, signal: AbortSignal): void {
    const life = joinSignals(signal);
    const failures = this.#states.get(key)?.failures ?? 0;
    this.#states.set(key, { ...WAITING, failures });
    const ended = this.#fetch(key, wanted, failures, life.signal).finally(() => {
      this.#tasks.delete(key);
      life[Symbol.dispose]();
    });
    this.#tasks.set(key, { life, ended });
  }

  /** Never rejects. */
  async #fetch(key: string, wanted: Fetchable, failures: number, signal: AbortSignal): Promise<void> {
    const { puller, clock, random } = this.#components;
    try {
      await puller.provide({ ...wanted, policy: "IfNotPresent", lane: "prefetch" }, signal);
      this.#states.set(key, { ...WAITING, state: "present" });
    } catch (error) {
      if (signal.aborted) {
        this.#alarm.set(SETTLE);
        return;
      }
      const isHopeless = isPicoletError(error, "invalid") || isPicoletError(error, "unimplemented");
      const delay = backoffDelay(RETRY, failures + 1, random.next());
      const retryAt = isHopeless ? undefined : ((clock.monotonic() + delay) as MonotonicMs);
      this.#states.set(key, { state: "failed", message: describeError(error), failures: failures + 1, retryAt });
      if (!isHopeless) this.#alarm.set(delay);
    }
  }

  /** Each image once for a runtime. Pods come first: they have secrets. */
  #readWanted(): Map<string, Wanted> {
    const { desired, nodeObject, router, log } = this.#components;
    const found = new Map<string, Wanted>();
    let left = 0;
    type ByWhom = Omit<Wanted, "image" | "runtime" | "adapter" | "wantedBy">;
    const add = (text: unknown, wantedBy: string, own: RuntimeAdapter, wanted: ByWhom): void => {
      for (const { image, runtime = own.name } of imagesIn(text)) {
        const parsed = parseImageReference(image);
        const key = `${runtime} ${parsed.ok ? parsed.reference.canonical : image}`;
        const known = found.get(key);
        if (known !== undefined) known.wantedBy.push(wantedBy);
        else if (found.size < MAX_PREFETCHES) {
          const adapter = router.adapters.find(({ name }) => name === runtime);
          found.set(key, { ...wanted, image, runtime, adapter, wantedBy: [wantedBy] });
        } else left += 1;
      }
    };
    for (const pod of desired.current.pods.values()) {
      const { annotations, namespace, name } = pod.pod.metadata;
      const text = annotations?.[PREFETCH_ANNOTATION];
      if (text === undefined) continue;
      const adapter = adapterOf(router, pod);
      if (adapter !== undefined)
        add(text, `pod/${namespace}/${name}`, adapter, { owner: pullOwnerOf(pod), regarding: podReference(pod) });
    }
    const [adapter] = router.adapters;
    const regarding = nodeReference(this.#nodeName);
    const owner = { namespace: "", secrets: [], pod: undefined };
    if (adapter !== undefined) add(annotationOf(nodeObject()), `node/${this.#nodeName}`, adapter, { owner, regarding });
    if (left > 0) log.warn("annotations name more images than a node prefetches", { most: MAX_PREFETCHES, left });
    return found;
  }
}

const isPulling = ({ state }: ActivePull): boolean => state === "pulling";

/** Separated by commas or white space; each with its runtime where it names one. */
function imagesIn(text: unknown): readonly { readonly image: string; readonly runtime?: string }[] {
  if (typeof text !== "string") return [];
  const words = text.split(/[\s,]+/).filter((each) => each !== "");
  return words.map((word) => {
    const equals = word.indexOf("=");
    return equals < 0 ? { image: word } : { runtime: word.slice(0, equals), image: word.slice(equals + 1) };
  });
}

function annotationOf(node: Readonly<Record<string, unknown>> | undefined): unknown {
  const metadata = node?.metadata as { readonly annotations?: Readonly<Record<string, unknown>> } | undefined;
  return metadata?.annotations?.[PREFETCH_ANNOTATION];
}

function adapterOf(router: RuntimeRouter, pod: DesiredPod): RuntimeAdapter | undefined {
  try {
    return router.adapterFor(pod);
  } catch {
    // The pod's event and status report it.
    return undefined;
  }
}
