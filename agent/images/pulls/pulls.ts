import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { MinimumRate } from "@picolet/protocol/async/minimum-rate.ts";
import { TokenBucket } from "@picolet/protocol/async/token-bucket.ts";
import { describeError, ignore, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { ImageReference, RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import { type Clock, type Log, type MonotonicMs, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import type {
  ImageInfo,
  ImagePlatforms,
  ImageService,
  PullOptions,
  PullProgress,
  RuntimeAdapter,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import { type ActivePull, type PodName, SIGNATURE_REASON } from "../../core/pods/image-pulls.ts";
import type { EventRecorder, ObjectReference } from "../../core/store/store-ports.ts";
import type { PullCredential, PullCredentials, PullOwner } from "../credentials/pull-credentials.ts";
import { goDuration } from "./go-duration.ts";
import type { ImageAccess } from "./image-access.ts";
import type { ImageSignatures } from "./image-signatures.ts";
import { PullBackoff, type PullFailure } from "./pull-backoff.ts";
import { MAX_PENDING_PULLS, type Pulled, type PullPlace, PullQueue, type PullTask } from "./pull-queue.ts";

/** A demand for an image: its owner, its name, its runtime. */
export interface PullDemand {
  /** The name as its owner wrote it. */
  readonly image: string;
  /** The reference for the runtime: as written, with the implied tag. */
  readonly reference: string;
  readonly parsed: ImageReference;
  readonly adapter: RuntimeAdapter;
  readonly owner: PullOwner;
  /** The object of its events. */
  readonly regarding: ObjectReference;
  readonly lane: PullLane;
}

/** A pod's pull waits for no other lane's. */
export type PullLane = "pods" | "prefetch" | "hand";

export interface PullsComponents {
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly random: Random;
  readonly log?: Log;
  /** Missing: every pull is anonymous. */
  readonly credentials?: PullCredentials | undefined;
  /** Missing: access to images is neither recorded nor checked. */
  readonly access?: ImageAccess | undefined;
  /** Missing: no image must be signed. */
  readonly signatures?: ImageSignatures | undefined;
  /** Asks registries for signatures, whichever runtime an image is for. Missing: nothing here can. */
  readonly signatureSource?: Pick<ImageService, "signatures"> | undefined;
  readonly counts?: NodeCounts | undefined;
}

export interface PullsInit {
  /** True when each runtime pulls one image at a time. The kubelet's default is true. */
  readonly serializeImagePulls: boolean;
  /** Bounds the pulls of each runtime, when they are not serialized; `undefined`: only the queue does. */
  readonly maxParallelImagePulls?: number | undefined;
  /** Pulls a second; 0 and missing: no limit. */
  readonly registryPullQPS?: number;
  readonly registryBurst?: number;
}

/** People who pull by hand at the same moment. */
const MAX_HAND_PULLS = 4;
/** Three calls to the runtime each. */
const LOOK_INTERVAL = seconds(5);
/** Bounds the wait for content on its way: a connection without progress for this time is dialled again. */
const STALLED_AFTER = seconds(120);
/** Bounds work without visible progress: a silent registry, or a gigabyte layer being unpacked onto a slow card. */
const SILENT_AFTER = seconds(900);

/** Bounds a silent pull while pulls from other registries wait; they lose this time once. */
const CONTENDED_AFTER = seconds(15);
/**
 * The minimum rate of progress then, that of the slowest links, so that a trickle of bytes does not delay other pulls.
 */
const CONTENDED_BYTES_PER_SECOND = 1024;
/**
 * A pull that others have waited for that long goes on without a place, beside them: a registry that sends a little
 * more than the minimum would keep others from theirs for days. It is not cut off, as some runtimes would begin it
 * again.
 */
const SHARED_AFTER = seconds(300);

interface Active {
  readonly wish: PullDemand;
  readonly pods: Map<string, PodName>;
  waiters: number;
  state: "waiting" | "pulling";
  sinceMs: number;
  progress: PullProgress | undefined;
  /** The reference that the runtime pulled: the name, or the signed digest. */
  pulledAs: string;
}

/**
 * Pulls of all runtimes: each image once for all that get it with the same credentials, and left alone by whom it
 * failed.
 */
export class Pulls {
  readonly #components: PullsComponents;
  readonly #init: PullsInit;
  readonly #backoff: PullBackoff;
  /** The kubelet's `registryPullQPS` and `registryBurst`. */
  readonly #bucket: TokenBucket;
  /** A queue for each runtime and lane, so that a local import never waits for the network. */
  readonly #queues = new Map<string, PullQueue>();
  /** At most MAX_PENDING_PULLS a queue. */
  readonly #active = new Map<string, Active>();

  constructor(components: PullsComponents, init: PullsInit) {
    this.#components = components;
    this.#init = init;
    this.#backoff = new PullBackoff(components);
    this.#bucket = new TokenBucket(components, { rate: init.registryPullQPS ?? 0, burst: init.registryBurst ?? 1 });
  }

  get active(): readonly ActivePull[] {
    return [...this.#active.values()].map(({ wish, pods, state, sinceMs, progress }) => ({
      image: wish.image,
      runtime: wish.adapter.name,
      state,
      sinceMs,
      progress,
      pods: [...pods.values()],
    }));
  }

  /** Reads their progress. If a runtime does not answer, the last progress stays. */
  async refresh(signal: AbortSignal): Promise<void> {
    const running = [...this.#active.values()].filter(({ state }) => state === "pulling");
    await Promise.all(running.map((active) => this.#sample(active, signal)));
  }

  /** @returns the failure of the owner's last pull of it, while its delay lasts */
  backingOff(wish: PullDemand): PullFailure | undefined {
    return this.#backoff.waiting(this.#backoffKey(wish));
  }

  /** @throws what the runtime throws, of all credentials that were tried; `cancelled` */
  async pull(wish: PullDemand, signal: AbortSignal): Promise<Pulled> {
    const key = `${wish.lane} ${this.#keyOf(wish)}`;
    const active = this.#join(key, wish);
    try {
      const pull: PullTask = (abort, place) => this.#run(active, place, abort);
      const pulled = await this.#queueOf(wish).pull(key, registryOf(wish), pull, signal);
      this.#backoff.succeeded(this.#backoffKey(wish));
      return pulled;
    } catch (error) {
      if (!signal.aborted && !isCancelled(error)) {
        const { reason, message } = failureOf(wish.image, error);
        const failure = { message: `${reason}: ${message}`, isUnreachable: isUnreachable(error) };
        this.#backoff.failed(this.#backoffKey(wish), failure);
      }
      throw error;
    } finally {
      active.waiters -= 1;
      if (wish.owner.pod !== undefined) active.pods.delete(wish.owner.pod.uid);
      if (active.waiters === 0) this.#active.delete(key);
    }
  }

  /**
   * @returns the platforms that the registry has the image for, by the same credentials. @throws as `pull`,
   *   `unimplemented`
   */
  async platforms(wish: PullDemand, signal: AbortSignal): Promise<ImagePlatforms> {
    const { images } = wish.adapter;
    const ask = async (options: PullOptions): Promise<ImagePlatforms> => {
      const found = await images.platforms?.(wish.reference, options, signal);
      if (found !== undefined) return found;
      throw new PicoletError("unimplemented", `cannot tell what ${wish.image} holds`);
    };
    await this.#bucket.take(signal);
    return (await this.#tryAll(wish, ask, signal)).found;
  }

  /** Each pod has its own, as in the kubelet: a pod made again after the image was pushed need not wait. */
  #backoffKey(wish: PullDemand): string {
    return `${wish.owner.pod?.uid ?? wish.lane} ${this.#keyOf(wish)}`;
  }

  /** The same for every way of writing the same image, on the same runtime, with the same credentials. */
  #keyOf({ adapter, parsed, owner }: PullDemand): string {
    return `${adapter.name} ${parsed.canonical} ${this.#components.credentials?.identityOf(owner) ?? ""}`;
  }

  #join(key: string, wish: PullDemand): Active {
    const sinceMs = this.#components.clock.wall().getTime();
    const known = this.#active.get(key);
    const active: Active = known ?? {
      wish,
      pods: new Map(),
      waiters: 0,
      state: "waiting",
      sinceMs,
      progress: undefined,
      pulledAs: wish.reference,
    };
    active.waiters += 1;
    const { pod } = wish.owner;
    if (pod !== undefined) {
      const { namespace, name } = pod.pod.metadata;
      active.pods.set(pod.uid, { namespace, name, uid: pod.uid });
    }
    this.#active.set(key, active);
    return active;
  }

  /** Keeps the records: once for each pull, however many share it. */
  async #run(active: Active, place: PullPlace, signal: AbortSignal): Promise<ImageInfo> {
    const { access, clock } = this.#components;
    const { wish } = active;
    const registry = wish.parsed.kind === "registry" ? wish.parsed : undefined;
    let outcome: { readonly image: ImageInfo; readonly credential: PullCredential | undefined } | undefined;
    try {
      if (registry !== undefined) this.#begin(registry);
      await this.#bucket.take(signal);
      active.state = "pulling";
      active.sinceMs = clock.wall().getTime();
      outcome = await this.#watched(active, place, signal);
      return outcome.image;
    } finally {
      if (registry !== undefined) access?.end(registry, outcome?.image, outcome?.credential);
    }
  }

  #begin(registry: RegistryReference): void {
    try {
      this.#components.access?.begin(registry);
    } catch (cause) {
      const message = `Failed to record image pull intent for container image ${JSON.stringify(registry.canonical)}`;
      throw new PicoletError("failed", message, { cause, retryable: true, reason: "ErrImagePull" });
    }
  }

  /** The pull, which ends when nothing moves any more. */
  async #watched(active: Active, place: PullPlace, signal: AbortSignal) {
    using life = joinSignals(signal);
    let stalled: PicoletError | undefined;
    this.#untilStalled(active, place, life.signal).then((error) => {
      stalled = error;
      life.abort();
    }, ignore("the pull has ended"));
    try {
      const { adapter } = active.wish;
      const pull = async (options: PullOptions) =>
        await adapter.images.pull(await this.#pulledAs(active, options, life.signal), options, life.signal);
      const { found: image, credential } = await this.#tryAll(active.wish, pull, life.signal);
      return { image, credential };
    } catch (error) {
      throw !signal.aborted && stalled !== undefined ? stalled : error;
    } finally {
      life.abort();
    }
  }

  /**
   * @returns the reference for the runtime; for an image that must be signed the signed digest, because a name could
   *   have another digest by then
   */
  async #pulledAs(active: Active, options: PullOptions, signal: AbortSignal): Promise<string> {
    const { parsed, reference } = active.wish;
    const { signatures, signatureSource } = this.#components;
    if (signatures === undefined || !signatures.requires(parsed)) return reference;
    const found = await signatureSource?.signatures?.(reference, options, signal);
    if (found === undefined) {
      const message = "cannot tell who signed an image: this node runs no components, whose pulls ask for signatures";
      throw new PicoletError("failed", message, { reason: SIGNATURE_REASON });
    }
    active.pulledAs = byDigest(parsed, signatures.verify(parsed, found));
    return active.pulledAs;
  }

  /**
   * By what the runtime knows an image that is here and may be used; undefined: none that must be signed is known to
   * be.
   */
  knownAs({ parsed, reference }: PullDemand): string | undefined {
    const { signatures } = this.#components;
    if (signatures === undefined || !signatures.requires(parsed)) return reference;
    const digest = signatures.known(parsed);
    return digest === undefined ? undefined : byDigest(parsed, digest);
  }

  /** Tries one credential after another, as long as the registry answers. */
  async #tryAll<T>(
    { parsed, owner, regarding }: PullDemand,
    ask: (options: PullOptions) => Promise<T>,
    signal: AbortSignal,
  ) {
    const { credentials: source } = this.#components;
    const { pod } = owner;
    const failed = (plugin: string, why: string): void => this.#pluginFailed(regarding, plugin, why);
    const known =
      source === undefined || parsed.kind !== "registry" ? [] : await source.lookUp(parsed, owner, failed, signal);
    const errors: unknown[] = [];
    for (const credential of known.length === 0 ? [undefined] : known) {
      try {
        const options = { credentials: credential?.credentials, credentialsFrom: whoseCredentials(credential), pod };
        return { found: await ask(options), credential };
      } catch (error) {
        if (signal.aborted || isCancelled(error) || isUnreachable(error) || isUnsigned(error)) throw error;
        errors.push(error);
      }
    }
    throw errors.length === 1 ? errors[0] : aggregate(errors);
  }

  /** @returns why the pull must be cancelled; never for a runtime that does not report a pull's progress */
  async #untilStalled(active: Active, place: PullPlace, signal: AbortSignal): Promise<PicoletError> {
    const { clock } = this.#components;
    const { images } = active.wish.adapter;
    let movedAt: MonotonicMs = clock.monotonic();
    let freeAt = movedAt;
    const pace = new MinimumRate(clock, CONTENDED_BYTES_PER_SECOND);
    for (let before: PullProgress | undefined; ; before = active.progress) {
      await clock.sleep(LOOK_INTERVAL, signal);
      if (!place.isContended) freeAt = clock.monotonic();
      else if (clock.monotonic() - freeAt >= SHARED_AFTER) {
        place.report(false);
        place[Symbol.dispose]();
      }
      if (images.progress === undefined) continue;
      await this.#sample(active, signal);
      const now = clock.monotonic();
      if (hasMoved(before, active.progress)) movedAt = now;
      pace.update(active.progress?.bytes ?? 0);
      if (place.isContended && isOnTheWay(active.progress) && pace.idle >= CONTENDED_AFTER) {
        const idle = goDuration(pace.idle);
        const message = `the pull made next to no progress for ${idle}, and others wait that are from other registries`;
        return new PicoletError("unavailable", message, { retryable: true, reason: "ErrImagePull" });
      }
      const patience = active.progress?.isTransferring === true ? STALLED_AFTER : SILENT_AFTER;
      if (now - movedAt < patience) continue;
      const message = `the pull made no progress for ${goDuration(millis(now - movedAt))}`;
      return new PicoletError("unavailable", message, { retryable: true, reason: "ErrImagePull" });
    }
  }

  async #sample(active: Active, signal: AbortSignal): Promise<void> {
    const { wish, pulledAs: reference } = active;
    const { adapter } = wish;
    try {
      active.progress = (await adapter.images.progress?.(reference, signal)) ?? active.progress;
    } catch (error) {
      if (signal.aborted) throw error;
      this.#components.log?.debug("cannot tell how far a pull is", { image: reference, error: describeError(error) });
    }
  }

  /** The kubelet logs it only. */
  #pluginFailed(regarding: ObjectReference, plugin: string, why: string): void {
    this.#components.log?.warn("no credentials of a credential provider plugin", { plugin, error: why });
    const message = `Unable to get credentials of credential provider plugin ${JSON.stringify(plugin)}: ${why}; attempting to pull the image may not succeed.`;
    this.#components.events.record({ regarding, type: "Warning", reason: "FailedToGetImageCredentials", message });
  }

  #queueOf({ adapter, lane }: PullDemand): PullQueue {
    const name = `${lane} ${adapter.name}`;
    const existing = this.#queues.get(name);
    if (existing !== undefined) return existing;
    const { serializeImagePulls, maxParallelImagePulls = MAX_PENDING_PULLS } = this.#init;
    const ofPods = serializeImagePulls ? 1 : maxParallelImagePulls;
    const maxParallel = { pods: ofPods, prefetch: 1, hand: MAX_HAND_PULLS }[lane];
    const queue = new PullQueue(this.#components, { maxParallel });
    this.#queues.set(name, queue);
    return queue;
  }
}

const byDigest = ({ domain, repository }: RegistryReference, digest: string): string =>
  `${domain}/${repository}@${digest}`;
/** @returns whether content is still being received; false while it is verified or unpacked, which is this node's own work */
const isOnTheWay = (progress: PullProgress | undefined): boolean =>
  progress === undefined || progress.bytes === 0 || progress.bytes < progress.totalBytes;

/** @returns the registry that a pull waits for; "" for a file */
const registryOf = ({ parsed }: PullDemand): string => (parsed.kind === "registry" ? parsed.domain : "");

const hasMoved = (before: PullProgress | undefined, after: PullProgress | undefined): boolean =>
  before?.bytes !== after?.bytes || before?.totalBytes !== after?.totalBytes;

/** For runtimes whose messages say which credentials were refused. */
function whoseCredentials(credential: PullCredential | undefined): string | undefined {
  if (credential === undefined) return undefined;
  const { source } = credential;
  if (source.kind === "node") return "this node's registry configuration";
  const kind = source.kind === "secret" ? "secret" : "service account";
  return `${kind} ${source.namespace}/${source.name}`;
}

/** As Kubernetes joins several: each text once. */
function aggregate(errors: readonly unknown[]): PicoletError {
  const texts = [...new Set(errors.map(describeError))];
  const text = texts.length === 1 ? texts.join() : `[${texts.join(", ")}]`;
  const last = errors.at(-1);
  const code = isPicoletError(last) ? last.code : "failed";
  return new PicoletError(code, text, { retryable: true, reason: "ErrImagePull" });
}

/** Other credentials bring no other signature. */
export const isUnsigned = (error: unknown): boolean => isPicoletError(error) && error.reason === SIGNATURE_REASON;

/** @returns whether no registry answered in time: no newer image than the local one can be pulled */
export const isUnreachable = (error: unknown): boolean => isPicoletError(error, "unavailable");

const EXPLAINED: ReadonlyMap<string, string> = new Map([
  ["RegistryUnavailable", "the registry is unavailable"],
  ["SignatureValidationFailed", "the signature validation failed"],
]);

export function failureOf(image: string, error: unknown): { readonly reason: string; readonly message: string } {
  const reason = (isPicoletError(error) ? error.reason : undefined) ?? "ErrImagePull";
  const explained = EXPLAINED.get(reason);
  const text = describeError(error);
  if (explained === undefined) return { reason, message: text };
  const details = text.startsWith(reason) ? text.slice(reason.length) : `: ${text}`;
  return { reason, message: `image pull failed for ${image} because ${explained}${details}` };
}
