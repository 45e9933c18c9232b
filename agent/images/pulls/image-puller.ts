import { describeError, type ErrorCode, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { type ImageReference, parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type {
  DesiredPod,
  ImageInfo,
  ImagePlatforms,
  ResolvedImage,
  RuntimeAdapter,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import { containerFieldPath } from "../../core/pods/container-field-path.ts";
import type { ActivePull } from "../../core/pods/image-pulls.ts";
import { apiUidOf } from "../../core/pods/pod-identity.ts";
import type { ImageManager } from "../../core/pods/pod-ports.ts";
import type { EventRecorder, ObjectReference } from "../../core/store/store-ports.ts";
import type { PullCredential, PullCredentials, PullOwner } from "../credentials/pull-credentials.ts";
import { goDuration } from "./go-duration.ts";
import type { ImageAccess } from "./image-access.ts";
import type { Pulled } from "./pull-queue.ts";
import {
  failureOf,
  isUnreachable,
  isUnsigned,
  type PullDemand,
  type PullLane,
  Pulls,
  type PullsComponents,
  type PullsInit,
} from "./pulls.ts";

export type ImagePullerInit = PullsInit;

/** What is wanted of an image, besides which. */
export interface ImageRequest {
  readonly image: string;
  readonly policy: "Always" | "IfNotPresent" | "Never";
  readonly adapter: RuntimeAdapter;
  readonly owner: PullOwner;
  /** The object of its events. */
  readonly regarding: ObjectReference;
  readonly lane: PullLane;
}

/** Pull policies, back-off and events as the kubelet has them (pkg/kubelet/images). */
export class ImagePuller implements ImageManager {
  readonly #events: EventRecorder;
  readonly #clock: Clock;
  readonly #credentials: PullCredentials | undefined;
  readonly #access: ImageAccess | undefined;
  readonly #pulls: Pulls;
  readonly #counts: NodeCounts | undefined;
  /** Names of runtimes that know no registry: they have nothing newer than what they have. */
  readonly #withoutRegistry = new Set<string>();

  constructor(components: PullsComponents, init: ImagePullerInit) {
    this.#events = components.events;
    this.#clock = components.clock;
    this.#credentials = components.credentials;
    this.#access = components.access;
    this.#pulls = new Pulls(components, init);
    this.#counts = components.counts;
  }

  /** What is being pulled, and what waits for that. */
  get active(): readonly ActivePull[] {
    return this.#pulls.active;
  }

  /** Reads the progress of the pulls. */
  refresh(signal: AbortSignal): Promise<void> {
    return this.#pulls.refresh(signal);
  }

  knowsRegistries(adapter: RuntimeAdapter): boolean {
    return !this.#withoutRegistry.has(adapter.name);
  }

  async ensure(
    pod: DesiredPod,
    container: Container,
    adapter: RuntimeAdapter,
    signal: AbortSignal,
  ): Promise<ResolvedImage> {
    const { id } = await this.provide(requestOf(pod, container, adapter), signal);
    return { requested: container.image, id };
  }

  /** @returns for each of these runtimes whether it has the image. @throws `InvalidImageName` */
  async present(
    pod: DesiredPod,
    container: Container,
    runtimes: readonly RuntimeAdapter[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<RuntimeAdapter, boolean>> {
    const found = runtimes.map(async (adapter): Promise<[RuntimeAdapter, boolean]> => {
      const wish = this.#wish(requestOf(pod, container, adapter));
      try {
        const name = this.#pulls.knownAs(wish);
        const info = name === undefined ? undefined : await adapter.images.status(name, signal);
        return [adapter, info !== undefined];
      } catch (error) {
        if (isCancelled(error)) throw error;
        // A name that means nothing to this runtime, or a runtime that is away: it has nothing now.
        return [adapter, false];
      }
    });
    return new Map(await Promise.all(found));
  }

  /** @returns the platforms that the registry has the image for. @throws with the kubelet's reasons, as a pull does */
  async platforms(
    pod: DesiredPod,
    container: Container,
    adapter: RuntimeAdapter,
    signal: AbortSignal,
  ): Promise<ImagePlatforms> {
    const wish = this.#wish(requestOf(pod, container, adapter));
    this.#reportSecrets(wish);
    try {
      return await this.#pulls.platforms(wish, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      const { reason, message } = failureOf(wish.image, error);
      throw new PicoletError(codeOf(error), message, { reason, retryable: true });
    }
  }

  /**
   * @returns the runtime that the image is for: that of components where the registry has nothing else, or the first
   */
  async runtimeFor(
    request: Omit<ImageRequest, "adapter">,
    adapters: readonly RuntimeAdapter[],
    signal: AbortSignal,
  ): Promise<RuntimeAdapter | undefined> {
    const [first, ...others] = adapters;
    const asking = others.find(({ images }) => images.platforms !== undefined);
    if (asking === undefined) return first;
    const wish = this.#wish({ ...request, adapter: asking });
    try {
      const { component, container } = await this.#pulls.platforms(wish, signal);
      return component && !container ? asking : first;
    } catch (error) {
      if (isCancelled(error)) throw error;
      // The pull itself reports problems of the registry.
      return first;
    }
  }

  /** The image on this node, by the policy. @throws with the kubelet's reasons, as `ImageManager.ensure` */
  async provide(request: ImageRequest, signal: AbortSignal): Promise<ImageInfo> {
    try {
      return await this.#provide(this.#wish(request), request.policy, signal);
    } catch (error) {
      if (isPicoletError(error) && error.reason !== undefined && !isCancelled(error))
        this.#event(request, "Warning", "Failed", `Error: ${error.reason}`);
      throw error;
    }
  }

  #wish(request: ImageRequest): PullDemand {
    const { image } = request;
    const result = parseImageReference(image);
    if (result.ok) return { ...request, parsed: result.reference, reference: withTag(image, result.reference) };
    const message = `Failed to apply default image tag ${quoted(image)}: couldn't parse image name ${quoted(image)}: ${result.problem}`;
    this.#event(request, "Warning", "InspectFailed", message);
    throw new PicoletError("invalid", message, { reason: "InvalidImageName" });
  }

  async #provide(wish: PullDemand, policy: ImageRequest["policy"], signal: AbortSignal): Promise<ImageInfo> {
    const present = await this.#status(wish, signal);
    const mustPull = policy === "Always" && !this.#withoutRegistry.has(wish.adapter.name);
    if (present !== undefined && !mustPull && (await this.#mayUse(wish, present, signal)))
      return this.#alreadyPresent(wish, present);
    if (policy === "Never") {
      // Also when other pods may use it, because its presence is private to them.
      const message = `Container image ${quoted(wish.image)} is not present with pull policy of Never`;
      this.#event(wish, "Warning", "ErrImageNeverPull", message);
      throw new PicoletError("not_found", message, { reason: "ErrImageNeverPull", retryable: true });
    }
    const failure = wish.lane === "hand" ? undefined : this.#pulls.backingOff(wish);
    if (failure !== undefined) {
      if (failure.isUnreachable && present !== undefined && (await this.#mayUse(wish, present, signal)))
        return this.#unreachable(wish, present);
      const message = `Back-off pulling image ${quoted(wish.image)}`;
      this.#event(wish, "Normal", "BackOff", message);
      throw new PicoletError("unavailable", `${message}: ${failure.message}`, {
        reason: "ImagePullBackOff",
        retryable: true,
      });
    }
    return await this.#pull(wish, present, signal);
  }

  async #status(wish: PullDemand, signal: AbortSignal): Promise<ImageInfo | undefined> {
    try {
      const name = this.#pulls.knownAs(wish);
      return name === undefined ? undefined : await wish.adapter.images.status(name, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      if (isUnsigned(error)) {
        this.#event(wish, "Warning", "Failed", `Failed to pull image ${quoted(wish.image)}: ${describeError(error)}`);
        throw error;
      }
      const message = `Failed to inspect image ${quoted(wish.image)}: ${describeError(error)}`;
      this.#event(wish, "Warning", "InspectFailed", message);
      throw new PicoletError(codeOf(error), message, { reason: "ImageInspectError", retryable: true });
    }
  }

  /** @returns whether the owner could have pulled it */
  async #mayUse({ parsed, owner, adapter }: PullDemand, present: ImageInfo, signal: AbortSignal): Promise<boolean> {
    if (this.#access === undefined || parsed.kind !== "registry" || this.#withoutRegistry.has(adapter.name))
      return true;
    const lookUp = async (): Promise<readonly PullCredential[]> =>
      (await this.#credentials?.lookUp(parsed, owner, () => undefined, signal)) ?? [];
    return await this.#access.mayUse(parsed, present.id, lookUp);
  }

  #alreadyPresent(wish: PullDemand, present: ImageInfo): ImageInfo {
    const message = `Container image ${quoted(wish.image)} already present on machine`;
    // No event for prefetched images, which each start of the agent finds again.
    if (wish.lane === "pods") this.#event(wish, "Normal", "Pulled", message);
    return present;
  }

  /**
   * An offline board runs the image that it has, under any pull policy. The kubelet would not start the container, but
   * it is not made to be offline for weeks. The refusal of a registry that answers still counts.
   */
  #unreachable(wish: PullDemand, present: ImageInfo): ImageInfo {
    const message = `The registry of ${quoted(wish.image)} cannot be reached: using the image already present on machine`;
    this.#event(wish, "Warning", "Pulled", message);
    return present;
  }

  async #pull(wish: PullDemand, present: ImageInfo | undefined, signal: AbortSignal): Promise<ImageInfo> {
    const { adapter, image: wanted } = wish;
    this.#reportSecrets(wish);
    this.#event(wish, "Normal", "Pulling", `Pulling image ${quoted(wanted)}`);
    const startedAt = this.#clock.monotonic();
    let pulled: Pulled;
    try {
      pulled = await this.#pulls.pull(wish, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      if (isPicoletError(error, "unimplemented")) this.#withoutRegistry.add(adapter.name);
      if (this.#withoutRegistry.has(adapter.name) && present !== undefined) return this.#alreadyPresent(wish, present);
      if (
        isUnreachable(error) &&
        wish.lane !== "hand" &&
        present !== undefined &&
        (await this.#mayUse(wish, present, signal))
      )
        return this.#unreachable(wish, present);
      this.#event(wish, "Warning", "Failed", `Failed to pull image ${quoted(wanted)}: ${describeError(error)}`);
      const { reason, message } = failureOf(wanted, error);
      throw new PicoletError(codeOf(error), message, { reason, retryable: true });
    }
    const { image, duration } = pulled;
    this.#counts?.observe("kubelet_image_pull_duration_seconds", duration, sizeLabel(image.sizeBytes));
    const total = goDuration(this.#clock.monotonic() - startedAt);
    const times = `${goDuration(duration)} (${total} including waiting)`;
    const size = `Image size: ${image.sizeBytes} bytes.`;
    this.#event(wish, "Normal", "Pulled", `Successfully pulled image ${quoted(wanted)} in ${times}. ${size}`);
    return image;
  }

  /** The pull ignores unusable secrets. */
  #reportSecrets({ owner, regarding }: PullDemand): void {
    const { missing, unusable } = this.#credentials?.problemsOf(owner) ?? { missing: owner.secrets, unusable: [] };
    const ofPod = { ...regarding, fieldPath: "" };
    const tell = (message: string): void =>
      this.#events.record({
        regarding: ofPod,
        type: "Warning",
        reason: "FailedToRetrieveImagePullSecret",
        message: `${message}; attempting to pull the image may not succeed.`,
      });
    if (missing.length > 0) tell(`Unable to retrieve some image pull secrets (${missing.join(", ")})`);
    for (const { name, why } of unusable) tell(`Unable to use image pull secret ${quoted(name)}: ${why}`);
  }

  #event(
    { regarding }: Pick<PullDemand, "regarding">,
    type: "Normal" | "Warning",
    reason: string,
    message: string,
  ): void {
    this.#events.record({ regarding, type, reason, message });
  }
}

/**
 * A pod that was switched to components to save memory uses the prepared ones: a request to a registry takes memory.
 */
function requestOf(pod: DesiredPod, container: Container, adapter: RuntimeAdapter): ImageRequest {
  const { image, imagePullPolicy } = container;
  const isReady = pod.runtime?.reason === "MemoryPressure" && imagePullPolicy === "Always";
  const policy = isReady ? "IfNotPresent" : imagePullPolicy;
  return {
    image,
    policy,
    adapter,
    owner: pullOwnerOf(pod),
    regarding: containerReference(pod, container),
    lane: "pods",
  };
}

export function pullOwnerOf(pod: DesiredPod): PullOwner {
  const secrets = (pod.pod.spec.imagePullSecrets ?? []).map(({ name }) => name).filter((name) => name !== "");
  return { namespace: pod.pod.metadata.namespace, secrets, pod };
}

export function podReference(pod: DesiredPod): ObjectReference {
  const { namespace, name } = pod.pod.metadata;
  return { kind: "Pod", namespace, name, uid: apiUidOf(pod), fieldPath: "" };
}

const containerReference = (pod: DesiredPod, { name }: Container): ObjectReference => ({
  ...podReference(pod),
  fieldPath: containerFieldPath(pod.pod, name),
});

/** As the kubelet does: the tag that is meant is added, the rest is left to the runtime. */
function withTag(image: string, reference: ImageReference): string {
  if (reference.kind === "file" || reference.digest !== undefined || reference.tag === undefined) return image;
  return image.endsWith(`:${reference.tag}`) ? image : `${image}:${reference.tag}`;
}

const codeOf = (error: unknown): ErrorCode => (isPicoletError(error) ? error.code : "failed");

/** As Go's %q does for what occurs in names. */
const quoted = (text: string): string => JSON.stringify(text);

/** The kubelet's labels of image sizes, with the size above which each is used. */
const SIZE_LABELS: readonly (readonly [aboveMiB: number, label: string])[] = [
  [102_400, "GT100GB"],
  [61_440, "60GB-100GB"],
  [40_960, "40GB-60GB"],
  [30_720, "30GB-40GB"],
  [20_480, "20GB-30GB"],
  [10_240, "10GB-20GB"],
  [5_120, "5GB-10GB"],
  [1_024, "1GB-5GB"],
  [500, "500MB-1GB"],
  [100, "100MB-500MB"],
  [10, "10MB-100MB"],
  [0, "0-10MB"],
];

const sizeLabel = (bytes: number): string =>
  SIZE_LABELS.find(([aboveMiB]) => bytes > aboveMiB * MEBIBYTE)?.[1] ?? "N/A";
