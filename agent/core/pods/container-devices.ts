/** Devices that containers ask for as extended resources. `agent/devices` implements it. */
import type { ResourceStatus } from "@picolet/protocol/pod/pod-status.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, Device, EnvVar, Mount } from "@picolet/runtime-contract/runtime-adapter.ts";

/** Counts of the node's devices by resource name, as in the node's status. */
export interface DeviceResources {
  readonly capacity: Readonly<Record<string, string>>;
  /** Without unhealthy devices. */
  readonly allocatable: Readonly<Record<string, string>>;
}

/** The devices of a container, and what comes with them. */
export interface DeviceLaunch {
  readonly env: readonly EnvVar[];
  readonly mounts: readonly Mount[];
  readonly devices: readonly Device[];
  readonly annotations: Readonly<Record<string, string>>;
  readonly cdiDevices: readonly string[];
}

export interface ClaimingContainer {
  readonly name: string;
  /** CDI names that its resource claims have given it. */
  readonly cdiDevices: readonly string[];
}

export interface ContainerDevices {
  /**
   * Has the pod's devices made ready, once, before anything of it starts. A plugin that refuses ends the pod.
   * @throws `unavailable` while a plugin is away
   */
  prepare(pod: DesiredPod, signal: AbortSignal): Promise<void>;
  /**
   * For each start of the container.
   * @returns with the CDI devices of its resource claims; undefined: it has no devices
   * @throws what the plugin answers, and for CDI devices that are not there or that neither agent nor runtime can apply
   */
  launch(pod: DesiredPod, container: ClaimingContainer, signal: AbortSignal): Promise<DeviceLaunch | undefined>;
  /** `allocatedResourcesStatus` of the container; empty: it has no devices. */
  health(uid: PodUid, container: string): readonly ResourceStatus[];
}
