import { mkdir, readdir, realpath } from "node:fs/promises";
import { join } from "node:path";
import { describeError, ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Container, Volume } from "@picolet/protocol/pod/pod.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type {
  DesiredPod,
  ImageMounts,
  ResolvedImage,
  RuntimeAdapter,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ImageConsumer, ImageManager } from "../../core/pods/pod-ports.ts";
import { warnOfPod } from "../../core/pods/pod-warning.ts";
import type { EventRecorder } from "../../core/store/store-ports.ts";
import type { PodPaths } from "../files/pod-paths.ts";
import type { ImageVolumeMounts, VolumeType } from "./volume-type.ts";

const FOLDER_MODE = 0o750;
const FOLDER = "image";

export interface ImageVolumesComponents {
  readonly paths: PodPaths;
  readonly images: ImageManager;
  readonly events: EventRecorder;
  /** All of the node's, because after a crash it is unknown which of them has mounted an image. */
  readonly runtimes: readonly RuntimeAdapter[];
}

interface PodImageVolumes {
  /** Images that the runtime mounts by itself, by the name of the volume. */
  readonly byRuntime: Map<string, ResolvedImage>;
  /** The mount under way. Mounts run one after another, and end before the folders are removed. */
  working: Promise<unknown>;
  gone: boolean;
}

/**
 * Gets the images of volumes together with those of the containers that mount them, as the kubelet does: a container
 * whose volume has no image yet waits with the reason of the pull, for as long as it takes. Pods of a runtime that has
 * no such images, which is that of components, get them from the one that has.
 */
export class ImageVolumes implements ImageManager, ImageVolumeMounts {
  readonly #components: ImageVolumesComponents;
  readonly #pods = new Map<PodUid, PodImageVolumes>();

  constructor(components: ImageVolumesComponents) {
    this.#components = components;
  }

  async ensure(
    pod: DesiredPod,
    consumer: ImageConsumer,
    adapter: RuntimeAdapter,
    signal: AbortSignal,
  ): Promise<ResolvedImage> {
    for (const volume of imageVolumesOf(pod, consumer)) await this.#provide(pod, volume, adapter, signal);
    return this.#components.images.ensure(pod, consumer, adapter, signal);
  }

  /** An image that is not to be mounted from the volume's path, but by the runtime. */
  byRuntime(uid: PodUid, volume: string): ResolvedImage | undefined {
    return this.#pods.get(uid)?.byRuntime.get(volume);
  }

  /** Unmounts all of them; the pod's folder is about to go. */
  async forget(uid: PodUid, signal: AbortSignal): Promise<void> {
    const entry = this.#pods.get(uid);
    if (entry !== undefined) entry.gone = true;
    await entry?.working;
    this.#pods.delete(uid);
    await this.release(uid, signal);
  }

  /** Unmounts the images of a pod, known or not. @throws `unavailable`, to be tried again */
  async release(uid: string, signal: AbortSignal): Promise<void> {
    const folder = this.#components.paths.images(uid);
    for (const name of await namesIn(folder)) {
      const target = join(await realpath(folder), name);
      for (const { imageMounts } of this.#components.runtimes) await imageMounts?.unmount(target, signal);
    }
  }

  async #provide(pod: DesiredPod, volume: Volume, adapter: RuntimeAdapter, signal: AbortSignal): Promise<void> {
    const { reference = "", pullPolicy: imagePullPolicy = "IfNotPresent" } = volume.image ?? {};
    const consumer: ImageConsumer = { name: volume.name, image: reference, imagePullPolicy };
    const able = adapter.imageMounts === undefined ? this.#components.runtimes.find(canMount) : adapter;
    const { imageMounts } = able ?? {};
    if (able === undefined || imageMounts === undefined) {
      throw this.#failure(pod, volume.name, reference, new Error("this node has no runtime that can mount images"));
    }
    const image = await this.#components.images.ensure(pod, consumer, able, signal);
    const entry = this.#pods.get(pod.uid) ?? { byRuntime: new Map(), working: Promise.resolve(), gone: false };
    this.#pods.set(pod.uid, entry);
    const mounts = { imageMounts, forOthers: able !== adapter };
    const mine = entry.working.then(() => this.#mount(pod, volume.name, image, mounts, entry, signal));
    entry.working = mine.catch(ignore("its caller gets the error; the next mount does not depend on it"));
    await mine;
  }

  async #mount(
    pod: DesiredPod,
    volume: string,
    image: ResolvedImage,
    { imageMounts, forOthers }: { readonly imageMounts: ImageMounts; readonly forOthers: boolean },
    entry: PodImageVolumes,
    signal: AbortSignal,
  ): Promise<void> {
    if (entry.gone || signal.aborted) throw new PicoletError("cancelled", "the pod is being removed");
    try {
      const { paths } = this.#components;
      const path = paths.volume(pod.uid, FOLDER, volume);
      await mkdir(path, { recursive: true, mode: FOLDER_MODE });
      const how = await imageMounts.mount(image, await realpath(path), forOthers, signal);
      if (how === "byRuntime") entry.byRuntime.set(volume, image);
      // Another runtime may have run the pod before.
      else entry.byRuntime.delete(volume);
    } catch (error) {
      if (isCancelled(error)) throw error;
      throw this.#failure(pod, volume, image.requested, error);
    }
  }

  #failure(pod: DesiredPod, volume: string, image: string, cause: unknown): PicoletError {
    const what = `failed to mount image ${JSON.stringify(image)} for volume ${JSON.stringify(volume)}`;
    const message = `${what}: ${describeError(cause)}`;
    warnOfPod(this.#components.events, pod, "Failed", `Error: ${message}`);
    return new PicoletError("failed", message, { reason: "CreateContainerError", retryable: true });
  }
}

/** The images themselves come with those of the containers that mount the volume: `ImageVolumes.ensure`. */
export const imageVolume: VolumeType = {
  folder: FOLDER,
  isMadeWithImage: true,
  makeHandler: ({ paths, imageVolumes }) => ({
    plan: () => () => Promise.resolve(),
    locate: ({ uid }, { name }) => ({
      path: paths.volume(uid, FOLDER, name),
      readOnly: true,
      image: imageVolumes()?.byRuntime(uid, name),
    }),
    forget: (uid, signal) => imageVolumes()?.forget(uid, signal),
  }),
};

const canMount = ({ imageMounts }: RuntimeAdapter): boolean => imageMounts !== undefined;

/** @returns the volumes that this container mounts */
function imageVolumesOf({ pod }: DesiredPod, consumer: ImageConsumer): readonly Volume[] {
  const { containers, initContainers = [], ephemeralContainers = [], volumes = [] } = pod.spec;
  if (!volumes.some(({ image }) => image !== undefined)) return [];
  const all: readonly Pick<Container, "name" | "volumeMounts">[] = [
    ...initContainers,
    ...containers,
    ...ephemeralContainers,
  ];
  const mounted = new Set(all.find(({ name }) => name === consumer.name)?.volumeMounts?.map(({ name }) => name));
  return volumes.filter(({ name, image }) => image !== undefined && mounted.has(name));
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return [];
    throw error;
  }
}
