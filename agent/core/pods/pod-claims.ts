/** Port of the devices that pods get by claims (dynamic resource allocation, KEP 4381). */
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** A device that a driver has prepared for a claim. */
export interface ClaimedDevice {
  readonly pool: string;
  readonly device: string;
  /** The claim's requests that the device answers. Empty: all of them. */
  readonly requests: readonly string[];
  /** `vendor.com/class=name`: what the runtime puts into the container. */
  readonly cdiDevices: readonly string[];
}

/** The devices of one claim for one container. */
export interface ContainerClaim {
  readonly namespace: string;
  readonly name: string;
  readonly devices: readonly (ClaimedDevice & { readonly driver: string })[];
}

export interface PodClaims {
  /**
   * Has the drivers prepare the pod's claims. Does nothing for what is prepared already.
   * @throws PicoletError of reason `FailedPrepareDynamicResources`, whose message is the kubelet's event
   */
  prepare(pod: DesiredPod, signal: AbortSignal): Promise<void>;
  /** @returns the claims that the container names. @throws `internal` before `prepare` */
  ofContainer(pod: DesiredPod, container: Container): readonly ContainerClaim[];
  /** @returns whether claims are prepared for the pod, or were begun to be */
  holds(uid: PodUid): boolean;
  /**
   * Has the drivers unprepare the claims that no other pod uses. Called when nothing of the pod runs any more.
   * @throws `unavailable` when a driver did not; the claims stay prepared, and a later call tries again
   */
  release(uid: PodUid, signal: AbortSignal): Promise<void>;
  /** Releases the claims of unknown pods, those that cannot be released now excepted. */
  sweep(known: Pick<ReadonlySet<string>, "has">, signal: AbortSignal): Promise<void>;
}
