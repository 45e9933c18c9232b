/** Ports of pod workers besides the runtime adapter, implemented by the agent and by the simulation. */
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import type {
  ContainerLaunch,
  DesiredPod,
  ObservedPod,
  ResolvedImage,
  RuntimeAdapter,
  SandboxLaunch,
} from "@picolet/runtime-contract/runtime-adapter.ts";

/** The `runtimeClassName` of pods whose containers are components. */
export const COMPONENT_RUNTIME_CLASS = "wasm";

/**
 * Routes pods to runtimes: pods with `runtimeClassName: wasm`, and those for which components were chosen, to the
 * component adapter, all others to CRI.
 */
export interface RuntimeRouter {
  readonly adapters: readonly RuntimeAdapter[];
  /** @throws `invalid` with the pod's runtimeClassName when no runtime of this node has that name. */
  adapterFor(pod: DesiredPod): RuntimeAdapter;
}

/** For pods that may be either, components or containers. */
export interface RuntimeChoices {
  /**
   * Chooses a pod's runtime; the choice is in the store when this resolves.
   * @param holder the runtime that already has it
   * @throws the reasons of unavailable images, and `CreateContainerConfigError` for wrong annotations
   */
  choose(pod: DesiredPod, holder: RuntimeAdapter | undefined, signal: AbortSignal): Promise<void>;
}

/** Folders, volumes, cgroup and values of one pod on this node. Every method is idempotent. */
export interface PodEnvironment {
  /**
   * Makes folders, the pod's cgroup, and its volumes, and has its resource claims prepared. Errors carry the reason
   * `FailedMount`, `CreateContainerConfigError` or `FailedPrepareDynamicResources`; what several volumes have to say,
   * each in an event of its own, is in an `AggregateError` that is their cause.
   */
  prepare(pod: DesiredPod, signal: AbortSignal): Promise<void>;
  /** @returns whether files of its volumes follow objects of the API server while the pod runs */
  hasRefreshedVolumes(pod: DesiredPod): boolean;
  sandbox(pod: DesiredPod, attempt: number): SandboxLaunch;
  /** Errors carry the reason `CreateContainerConfigError`. */
  container(
    pod: DesiredPod,
    container: Container,
    run: { readonly attempt: number; readonly backoff: Millis; readonly image: ResolvedImage },
    observed: ObservedPod,
  ): ContainerLaunch;
  /** @returns whether drivers have resource claims prepared for the pod */
  holdsClaims(pod: DesiredPod): boolean;
  /** Has drivers take back the pod's resource claims. Nothing of it runs by then. */
  releaseClaims(pod: DesiredPod, signal: AbortSignal): Promise<void>;
  /** Takes away all of it: volumes, cgroup, logs. The pod's processes are gone by then. */
  cleanup(pod: DesiredPod, signal: AbortSignal): Promise<void>;
}

/** The user of an image: a container, or an image volume if the pod's spec has no container of that name. */
export type ImageConsumer = Pick<Container, "name" | "image" | "imagePullPolicy">;

export interface ImageManager {
  /**
   * The image on this node, by the consumer's pull policy; several pods pulling one image pull once. Errors carry the
   * kubelet's reasons: ErrImageNeverPull, ErrImagePull, ImagePullBackOff, InvalidImageName, ErrImageNotFound.
   */
  ensure(
    pod: DesiredPod,
    consumer: ImageConsumer,
    adapter: RuntimeAdapter,
    signal: AbortSignal,
  ): Promise<ResolvedImage>;
}
