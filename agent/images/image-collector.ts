import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import { type Clock, type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { ImageInfo, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { NodeImages } from "../core/pods/image-pulls.ts";
import type { KeptRecords } from "../core/store/kept-records.ts";
import { type DesiredSnapshot, type EventRecorder, nodeReference } from "../core/store/store-ports.ts";
import {
  type AgedImage,
  bytesToFree,
  collectionOrder,
  type ImageGcPolicy,
  type ImageSpace,
  isTooOld,
} from "../plan/node/image-collection.ts";
import { ImageAges } from "./image-ages.ts";
import type { ImageAccess } from "./pulls/image-access.ts";
import { imagesOfPods } from "./wanted-images.ts";

/** The kubelet's. */
const INTERVAL = seconds(300);
/** After a start other work is more urgent, and running pods must be known before. */
const FIRST_DELAY = seconds(60);
/**
 * The age of images from before the agent's start depends on the wall clock, which may be wrong by years on a board
 * that was just switched on. No image is removed for its age before the agent has run for this time.
 */
const LONGEST_PATIENCE = seconds(24 * 3600);

/** Runtimes whose images are on the same file system. */
export interface ImageFilesystem extends ImageSpace {
  readonly adapters: readonly RuntimeAdapter[];
}

export interface ImageCollectorComponents {
  readonly adapters: readonly RuntimeAdapter[];
  /** With all of `adapters`, each once. */
  readonly filesystems: (signal: AbortSignal) => Promise<readonly ImageFilesystem[]>;
  readonly images: Pick<NodeImages, "isPinned" | "pulls" | "prefetches">;
  readonly access: Pick<ImageAccess, "forget">;
  readonly pods: () => readonly AgentPod[];
  readonly desired: Watch<DesiredSnapshot>;
  /** @returns whether `pods` has all pods that the runtimes had when the agent started */
  readonly isSettled: () => boolean;
  readonly kept: KeptRecords;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
}

export interface ImageCollectorInit {
  readonly nodeName: string;
  readonly policy: ImageGcPolicy;
}

interface FoundImage extends AgedImage {
  readonly adapter: RuntimeAdapter;
  readonly image: ImageInfo;
  readonly key: string;
}

/** Removes unused images: when the disk fills up, and when they are too old. */
export class ImageCollector implements Component {
  readonly name = "image garbage collection";
  readonly #components: ImageCollectorComponents;
  readonly #init: ImageCollectorInit;
  readonly #ages: ImageAges;
  /** The collection under way; there is one at a time. */
  #turn: Promise<unknown> = Promise.resolve();
  #failedBefore = false;

  constructor(components: ImageCollectorComponents, init: ImageCollectorInit) {
    this.#components = components;
    this.#init = init;
    this.#ages = new ImageAges(components);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { highThresholdPercent, maximumAge } = this.#init.policy;
    if (highThresholdPercent === 100 && maximumAge === 0) return await aborted(signal);
    const { clock } = this.#components;
    const startedAt = clock.monotonic();
    for (let delay = FIRST_DELAY; ; delay = INTERVAL) {
      await clock.sleep(delay, signal);
      if (this.#components.isSettled()) await this.collect(millis(clock.monotonic() - startedAt), signal);
    }
  }

  /** Runs one round. Throws only `cancelled`. @param uptime the agent's */
  async collect(uptime: Millis, signal: AbortSignal): Promise<void> {
    const { log, events } = this.#components;
    try {
      await this.#inTurn(() => this.#round(uptime, signal));
      if (this.#failedBefore) log.info("image garbage collection works again");
      this.#failedBefore = false;
    } catch (error) {
      if (signal.aborted || isCancelled(error)) throw error;
      const message = describeError(error);
      // As the kubelet: once is nothing, the runtime may just be starting.
      if (this.#failedBefore) this.#warn(events, "ImageGCFailed", message);
      else log.warn("image garbage collection failed", { error: message });
      this.#failedBefore = true;
    }
  }

  /**
   * Removes all images that are not kept, of any age. @returns bytes freed. @throws `unavailable` and the like when
   * nothing could be listed
   */
  async deleteUnused(signal: AbortSignal): Promise<number> {
    if (!this.#components.isSettled()) return 0;
    return await this.#inTurn(async () => {
      const found = collectionOrder(await this.#findWhatAnswers(signal));
      const { freedBytes, problems } = await this.#remove(found, Number.POSITIVE_INFINITY, "pressure", signal);
      for (const problem of problems) this.#components.log.warn("cannot remove an image", { error: problem });
      return freedBytes;
    });
  }

  /** A runtime that fails, perhaps because its disk is full, does not keep what others have to spare. */
  async #findWhatAnswers(signal: AbortSignal): Promise<readonly FoundImage[]> {
    const { adapters, log } = this.#components;
    const found: FoundImage[] = [];
    const failures: unknown[] = [];
    for (const adapter of adapters) {
      try {
        found.push(...(await this.#find([adapter], signal)));
      } catch (error) {
        if (signal.aborted || isCancelled(error)) throw error;
        failures.push(error);
        log.warn("cannot list images", { runtime: adapter.name, error: describeError(error) });
      }
    }
    if (failures.length > 0 && failures.length === adapters.length) throw failures[0];
    return found;
  }

  #inTurn<T>(task: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(task);
    this.#turn = mine.catch(ignore("its caller gets the error; the next task does not depend on it"));
    return mine;
  }

  async #round(uptime: Millis, signal: AbortSignal): Promise<void> {
    const failures: unknown[] = [];
    for (const filesystem of await this.#components.filesystems(signal)) {
      try {
        await this.#collectOn(filesystem, uptime, signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        failures.push(error);
      }
    }
    if (failures.length === 0) return;
    throw failures.length === 1 ? failures[0] : new PicoletError("failed", aggregate(failures.map(describeError)));
  }

  async #collectOn(before: ImageFilesystem, uptime: Millis, signal: AbortSignal): Promise<void> {
    const { policy } = this.#init;
    const found = collectionOrder(await this.#find(before.adapters, signal));
    const isPatient = uptime <= Math.min(policy.maximumAge, LONGEST_PATIENCE);
    const old = isPatient ? [] : found.filter((each) => isTooOld(each, policy));
    const { problems } = await this.#remove(old, Number.POSITIVE_INFINITY, "age", signal);
    if (problems.length > 0) {
      const wanted = `wanted to free images older than ${policy.maximumAge / 1000}s`;
      throw new PicoletError("failed", `${wanted}, encountered errors in image deletion: ${aggregate(problems)}`);
    }
    const space = old.length === 0 ? before : await this.#sampleAgain(before, signal);
    await this.#makeRoom(
      space,
      found.filter((each) => !old.includes(each)),
      signal,
    );
  }

  async #makeRoom(space: ImageSpace, found: readonly FoundImage[], signal: AbortSignal): Promise<void> {
    const { policy } = this.#init;
    const { log, events } = this.#components;
    if (space.capacityBytes <= 0) {
      const message = "invalid capacity 0 on image filesystem";
      this.#warn(events, "InvalidDiskCapacity", message);
      throw new PicoletError("failed", message);
    }
    if (space.availableBytes > space.capacityBytes) log.info("more is available than there is", { ...space });
    const wanted = bytesToFree(space, policy);
    if (wanted === 0) return;
    log.info("the image file system is full beyond its threshold: removing images", { wantedBytes: wanted, ...space });
    const eligible = found.filter(({ age }) => age >= policy.minimumAge);
    const { freedBytes, problems } = await this.#remove(eligible, wanted, "space", signal);
    if (problems.length > 0) {
      const attempt = `wanted to free ${wanted} bytes, but freed ${freedBytes} bytes space`;
      throw new PicoletError("failed", `${attempt} with errors in image deletion: ${aggregate(problems)}`);
    }
    if (freedBytes >= wanted) return;
    const message = `Failed to garbage collect required amount of images. Attempted to free ${wanted} bytes, but only found ${freedBytes} bytes eligible to free.`;
    this.#warn(events, "FreeDiskSpaceFailed", message);
    throw new PicoletError("failed", message);
  }

  async #sampleAgain(before: ImageFilesystem, signal: AbortSignal): Promise<ImageSpace> {
    const now = await this.#components.filesystems(signal);
    return now.find(({ adapters }) => adapters.some((each) => before.adapters.includes(each))) ?? before;
  }

  /** In this order, until so much is free. */
  async #remove(
    images: readonly FoundImage[],
    wantedBytes: number,
    why: "age" | "space" | "pressure",
    signal: AbortSignal,
  ): Promise<{ readonly freedBytes: number; readonly problems: readonly string[] }> {
    const { access, log } = this.#components;
    const problems: string[] = [];
    let freedBytes = 0;
    for (const { adapter, image, key, sizeBytes } of images) {
      if (freedBytes >= wantedBytes) break;
      // A pod may have come to need it while others were removed.
      if (isAmong(this.#wanted(), image)) continue;
      try {
        await adapter.images.remove(image.id, signal);
        log.info("removed an image", { image: image.tags[0] ?? image.id, id: image.id, sizeBytes, why });
        this.#components.counts?.add("kubelet_image_garbage_collected_total", why === "age" ? "age" : "space");
        freedBytes += sizeBytes;
        this.#ages.forget(key);
        access.forget(image.id, image.tags);
      } catch (error) {
        if (signal.aborted || isCancelled(error)) throw error;
        problems.push(describeError(error));
      }
    }
    return { freedBytes, problems };
  }

  async #find(adapters: readonly RuntimeAdapter[], signal: AbortSignal): Promise<readonly FoundImage[]> {
    const found: FoundImage[] = [];
    for (const adapter of adapters) {
      // Asked first: what is pulled and started in between is neither in the list nor free to go.
      const images = await adapter.images.list(signal);
      const holdings = await adapter.images.holdings?.(signal);
      const used = this.#usedBy(adapter, holdings?.used ?? new Set());
      const wanted = this.#wanted();
      for (const image of images) {
        const key = keyOf(adapter, image);
        const isUsed = isAmong(used, image);
        const sizeBytes = image.sizeBytes + (holdings?.derivedBytes.get(image.id) ?? 0);
        const isKept = isUsed || this.#components.images.isPinned(image) || isAmong(wanted, image);
        found.push({ adapter, image, key, isKept, sizeBytes, ...this.#ages.seen(key, isUsed) });
      }
      this.#ages.keepOnly(`${adapter.name} `, new Set(images.map((image) => keyOf(adapter, image))));
    }
    return found;
  }

  /** By every name that the runtime and the pods have for them. */
  #usedBy(adapter: RuntimeAdapter, told: ReadonlySet<string>): ReadonlySet<string> {
    const used = new Set<string>();
    for (const name of told) for (const each of spellingsOf(name)) used.add(each);
    for (const { runtime, containers } of this.#components.pods()) {
      if (runtime === adapter.name) for (const { imageId } of containers) used.add(imageId);
    }
    return used;
  }

  /** Images that must stay although no container has them: of pods about to start, pulls, prefetches. */
  #wanted(): ReadonlySet<string> {
    const { images, desired, pods } = this.#components;
    const over = new Set(
      pods()
        .filter(isOver)
        .map((each) => each.desired.uid),
    );
    const running = [...desired.current.pods.values()].filter(({ uid }) => !over.has(uid));
    const names = [...images.pulls, ...images.prefetches].map(({ image }) => image);
    return new Set([...imagesOfPods(running), ...names].flatMap(spellingsOf));
  }

  #warn(events: EventRecorder, reason: string, message: string): void {
    events.record({ regarding: nodeReference(this.#init.nodeName), type: "Warning", reason, message });
  }
}

const isOver = ({ status }: AgentPod): boolean => status?.phase === "Succeeded" || status?.phase === "Failed";

const keyOf = (adapter: RuntimeAdapter, { id }: ImageInfo): string => `${adapter.name} ${id}`;

const namesOf = ({ id, tags, digests }: ImageInfo): readonly string[] => [
  id,
  ...[...tags, ...digests].flatMap(spellingsOf),
];

const isAmong = (names: ReadonlySet<string>, image: ImageInfo): boolean =>
  namesOf(image).some((name) => names.has(name));

/** As it is, with all of its parts, and by its digest alone. */
function spellingsOf(name: string): readonly string[] {
  const parsed = parseImageReference(name);
  if (!parsed.ok) return [name];
  const { reference } = parsed;
  if (reference.kind === "file" || reference.digest === undefined) return [name, reference.canonical];
  return [name, reference.canonical, `${reference.domain}/${reference.repository}@${reference.digest}`];
}

/** As Kubernetes joins several. */
const aggregate = (texts: readonly string[]): string => {
  const unique = [...new Set(texts)];
  return unique.length === 1 ? unique.join() : `[${unique.join(", ")}]`;
};
