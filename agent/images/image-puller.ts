import { describeError, type ErrorCode, isCancelled, isPicoletError, PicoletError } from "../../protocol/errors.ts";
import { type ImageReference, parseImageReference } from "../../protocol/image-reference.ts";
import type { Container } from "../../protocol/pod.ts";
import type { Clock, Random } from "../../protocol/ports.ts";
import type {
  DesiredPod,
  ImageInfo,
  ResolvedImage,
  RuntimeAdapter,
} from "../../runtime-adapters/contract/runtime-adapter.ts";
import { apiUidOf } from "../core/pod-identity.ts";
import type { ImageManager } from "../core/pod-ports.ts";
import type { EventRecorder } from "../core/store.ts";
import { goDuration } from "./go-duration.ts";
import { PullBackoff } from "./pull-backoff.ts";
import { MAX_PENDING_PULLS, type Pulled, PullQueue } from "./pull-queue.ts";

export interface ImagePullerInit {
  /** One at a time for each runtime. The kubelet's default is true. */
  readonly serializeImagePulls: boolean;
  /** For each runtime, when they are not serialised; `undefined`: no limit but that of the queue. */
  readonly maxParallelImagePulls: number | undefined;
}

/** The kubelet's reason of a pull whose registry cannot be reached. */
const UNREACHABLE = "RegistryUnavailable";

/** One wish for an image: whose, which, and where. */
interface Wish {
  readonly pod: DesiredPod;
  readonly container: Container;
  readonly adapter: RuntimeAdapter;
  /** What the runtime is asked for: as the pod says, with the tag that is meant. */
  readonly reference: string;
  /** The same for every way of writing the same image on the same runtime. */
  readonly key: string;
}

/** Pull policies, back-off and events as the kubelet has them (pkg/kubelet/images). */
export class ImagePuller implements ImageManager {
  readonly #events: EventRecorder;
  readonly #clock: Clock;
  readonly #backoff: PullBackoff;
  readonly #maxParallel: number;
  /** One for each runtime, so that what lies on the disk of one never waits for the network of another. */
  readonly #queues = new Map<string, PullQueue>();
  /** Names of runtimes that know no registry: they have nothing newer than what they have. */
  readonly #withoutRegistry = new Set<string>();

  constructor(
    components: { readonly events: EventRecorder; readonly clock: Clock; readonly random: Random },
    init: ImagePullerInit,
  ) {
    this.#events = components.events;
    this.#clock = components.clock;
    this.#backoff = new PullBackoff(components);
    this.#maxParallel = init.serializeImagePulls ? 1 : (init.maxParallelImagePulls ?? MAX_PENDING_PULLS);
  }

  async ensure(
    pod: DesiredPod,
    container: Container,
    adapter: RuntimeAdapter,
    signal: AbortSignal,
  ): Promise<ResolvedImage> {
    try {
      const id = await this.#ensure(this.#wish(pod, container, adapter), signal);
      return { requested: container.image, id };
    } catch (error) {
      if (isPicoletError(error) && error.reason !== undefined && !isCancelled(error))
        this.#event(pod, container, "Warning", "Failed", `Error: ${error.reason}`);
      throw error;
    }
  }

  #wish(pod: DesiredPod, container: Container, adapter: RuntimeAdapter): Wish {
    const { image } = container;
    const result = parseImageReference(image);
    if (!result.ok) {
      const message = `Failed to apply default image tag ${quoted(image)}: couldn't parse image name ${quoted(image)}: ${result.problem}`;
      this.#event(pod, container, "Warning", "InspectFailed", message);
      throw new PicoletError("invalid", message, { reason: "InvalidImageName" });
    }
    const { reference } = result;
    return {
      pod,
      container,
      adapter,
      reference: withTag(image, reference),
      key: `${adapter.name} ${reference.canonical}`,
    };
  }

  async #ensure(wish: Wish, signal: AbortSignal): Promise<string> {
    const { pod, container } = wish;
    const present = await this.#status(wish, signal);
    const policy = container.imagePullPolicy;
    const mustPull = policy === "Always" && !this.#withoutRegistry.has(wish.adapter.name);
    if (present !== undefined && !mustPull) return this.#alreadyPresent(wish, present);
    if (policy === "Never") {
      const message = `Container image ${quoted(container.image)} is not present with pull policy of Never`;
      this.#event(pod, container, "Warning", "ErrImageNeverPull", message);
      throw new PicoletError("not_found", message, { reason: "ErrImageNeverPull", retryable: true });
    }
    const failure = this.#backoff.waiting(wish.key);
    if (failure !== undefined) {
      if (present !== undefined && failure.startsWith(UNREACHABLE)) return this.#unreachable(wish, present);
      const message = `Back-off pulling image ${quoted(container.image)}`;
      this.#event(pod, container, "Normal", "BackOff", message);
      throw new PicoletError("unavailable", `${message}: ${failure}`, { reason: "ImagePullBackOff", retryable: true });
    }
    return this.#pull(wish, present, signal);
  }

  async #status({ pod, container, adapter, reference }: Wish, signal: AbortSignal): Promise<ImageInfo | undefined> {
    try {
      return await adapter.images.status(reference, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      const message = `Failed to inspect image ${quoted(container.image)}: ${describeError(error)}`;
      this.#event(pod, container, "Warning", "InspectFailed", message);
      throw new PicoletError(codeOf(error), message, { reason: "ImageInspectError", retryable: true });
    }
  }

  #alreadyPresent({ pod, container }: Wish, present: ImageInfo): string {
    const message = `Container image ${quoted(container.image)} already present on machine`;
    this.#event(pod, container, "Normal", "Pulled", message);
    return present.id;
  }

  /**
   * A board that is offline runs what it ran before, whatever the policy. The kubelet would not start the container; but
   * it is not meant to be away from its registry for weeks. A registry that answers and refuses is another matter.
   */
  #unreachable({ pod, container }: Wish, present: ImageInfo): string {
    const message = `The registry of ${quoted(container.image)} cannot be reached: using the image already present on machine`;
    this.#event(pod, container, "Warning", "Pulled", message);
    return present.id;
  }

  async #pull(wish: Wish, present: ImageInfo | undefined, signal: AbortSignal): Promise<string> {
    const { pod, container, adapter, key } = wish;
    this.#missingSecrets(wish);
    this.#event(pod, container, "Normal", "Pulling", `Pulling image ${quoted(container.image)}`);
    const startedAt = this.#clock.monotonic();
    let pulled: Pulled;
    try {
      const pull = (abort: AbortSignal): Promise<ImageInfo> => this.#pullOnce(wish, abort);
      pulled = await this.#queueOf(adapter).pull(key, pull, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      if (this.#withoutRegistry.has(adapter.name) && present !== undefined) return this.#alreadyPresent(wish, present);
      if (present !== undefined && isPicoletError(error) && error.reason === UNREACHABLE)
        return this.#unreachable(wish, present);
      const text = describeError(error);
      this.#event(pod, container, "Warning", "Failed", `Failed to pull image ${quoted(container.image)}: ${text}`);
      const { reason, message } = failureOf(container.image, error);
      throw new PicoletError(codeOf(error), message, { reason, retryable: true });
    }
    const { image, duration } = pulled;
    const total = goDuration(this.#clock.monotonic() - startedAt);
    this.#event(
      pod,
      container,
      "Normal",
      "Pulled",
      `Successfully pulled image ${quoted(container.image)} in ${goDuration(duration)} (${total} including waiting). Image size: ${image.sizeBytes} bytes.`,
    );
    return image.id;
  }

  /** Keeps the back-off: once for each pull, however many share it. */
  async #pullOnce({ container, adapter, reference, key }: Wish, signal: AbortSignal): Promise<ImageInfo> {
    try {
      const image = await adapter.images.pull(reference, undefined, signal);
      this.#backoff.succeeded(key);
      return image;
    } catch (error) {
      if (signal.aborted || isCancelled(error)) throw error;
      if (isPicoletError(error, "unimplemented")) this.#withoutRegistry.add(adapter.name);
      const { reason, message } = failureOf(container.image, error);
      this.#backoff.failed(key, `${reason}: ${message}`);
      throw error;
    }
  }

  #missingSecrets({ pod }: Wish): void {
    const names = (pod.pod.spec.imagePullSecrets ?? []).map(({ name }) => name).filter((name) => name !== "");
    if (names.length === 0) return;
    const { namespace, name } = pod.pod.metadata;
    this.#events.record({
      regarding: { kind: "Pod", namespace, name, uid: apiUidOf(pod), fieldPath: "" },
      type: "Warning",
      reason: "FailedToRetrieveImagePullSecret",
      message: `Unable to retrieve some image pull secrets (${names.join(", ")}); attempting to pull the image may not succeed.`,
    });
  }

  #queueOf(adapter: RuntimeAdapter): PullQueue {
    const existing = this.#queues.get(adapter.name);
    if (existing !== undefined) return existing;
    const queue = new PullQueue({ clock: this.#clock }, { maxParallel: this.#maxParallel });
    this.#queues.set(adapter.name, queue);
    return queue;
  }

  #event(pod: DesiredPod, container: Container, type: "Normal" | "Warning", reason: string, message: string): void {
    const { namespace, name } = pod.pod.metadata;
    const list = pod.pod.spec.initContainers?.includes(container) ? "initContainers" : "containers";
    const fieldPath = `spec.${list}{${container.name}}`;
    this.#events.record({
      regarding: { kind: "Pod", namespace, name, uid: apiUidOf(pod), fieldPath },
      type,
      reason,
      message,
    });
  }
}

/** As the kubelet does: the tag that is meant is added, the rest is left to the runtime. */
function withTag(image: string, reference: ImageReference): string {
  if (reference.kind === "file" || reference.digest !== undefined || reference.tag === undefined) return image;
  return image.endsWith(`:${reference.tag}`) ? image : `${image}:${reference.tag}`;
}

const EXPLAINED: ReadonlyMap<string, string> = new Map([
  ["RegistryUnavailable", "the registry is unavailable"],
  ["SignatureValidationFailed", "the signature validation failed"],
]);

function failureOf(image: string, error: unknown): { readonly reason: string; readonly message: string } {
  const reason = (isPicoletError(error) ? error.reason : undefined) ?? "ErrImagePull";
  const explained = EXPLAINED.get(reason);
  const text = describeError(error);
  return {
    reason,
    message: explained === undefined ? text : `image pull failed for ${image} because ${explained}: ${text}`,
  };
}

const codeOf = (error: unknown): ErrorCode => (isPicoletError(error) ? error.code : "failed");

/** As Go's %q does for what occurs in names. */
const quoted = (text: string): string => JSON.stringify(text);
