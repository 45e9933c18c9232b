import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { Volume } from "@picolet/protocol/pod/pod.ts";
import type { Clock, Log, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ResolvedImage } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import type { Sealer } from "../../core/store/sealer.ts";
import type { EventRecorder } from "../../core/store/store-ports.ts";
import type { Mounter } from "../files/mounter.ts";
import type { PodPaths } from "../files/pod-paths.ts";

/** One volume type on a node: a line of `VOLUME_TYPES`. */
export interface VolumeType {
  /** The name in `volumes/kubernetes.io~<folder>`, where the pod has its volumes of this type. Missing: nowhere. */
  readonly folder?: string;
  /**
   * True when the files follow objects of the API server while the pod runs. A restarted agent prepares a running pod
   * again to resume that.
   */
  readonly isRefreshed?: true;
  /** True when the runtime mounts the volume with its container's image, after the set-up of the others. */
  readonly isMadeWithImage?: true;
  /**
   * Missing or undefined: the volume uses none of the disk that pods share. Else its folder counts for the pod;
   * `sizeLimit` is the volume's own limit.
   */
  readonly diskUse?: (volume: Volume) => { readonly sizeLimit?: string | undefined } | undefined;
  /** Called once for each agent. Several types can share a handler (`services.once`). */
  readonly makeHandler: (services: VolumeServices) => VolumeHandler;
}

/** The volumes of all pods that one handler serves. */
export interface VolumeHandler {
  /** A task that runs with the agent, such as one that refreshes files. */
  readonly task?: Component;
  /**
   * Reads what the volume refers to, and changes nothing.
   * @returns what makes or updates the volume; it is called for each preparation of the pod
   * @throws PicoletError for a volume that cannot be processed, such as an unbound claim; the pod's others are set up
   */
  plan(pod: DesiredPod, volume: Volume, use: VolumeUse): VolumeSetUp;
  /** The place of a volume that was set up. */
  locate(pod: DesiredPod, volume: Volume): VolumeLocation | undefined;
  /** Ends the work for a pod, whose folders are removed next. The agent may not know the pod (`sweep`). */
  forget?(uid: PodUid, signal: AbortSignal): Promise<void> | void;
  /** Removes what no pod uses any more. Called after the folders of pods were removed. */
  collect?(signal: AbortSignal): Promise<void>;
}

export type VolumeSetUp = (signal: AbortSignal) => Promise<void>;

/** How the pod's containers use a volume. */
export interface VolumeUse {
  readonly mounted: boolean;
  readonly asDevice: boolean;
}

/** A folder or file to mount, or a device. */
export interface VolumeLocation {
  readonly path: string;
  /** True when containers cannot write to it, even through a mount that is not read-only. */
  readonly readOnly: boolean;
  readonly isDevice?: boolean;
  /** The group of its files, which the pod's processes get. */
  readonly group?: number | undefined;
  /** The image that the runtime mounts by itself instead of `path`. */
  readonly image?: ResolvedImage | undefined;
}

/** The parts of the agent that handlers use. */
export interface VolumeServices extends VolumeComponents, VolumeInit {
  /** @returns one result of `make` for all types */
  once<T>(make: (services: VolumeServices) => T): T;
}

export interface VolumeComponents {
  readonly paths: PodPaths;
  readonly mounter: Mounter;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
  readonly objects: ClusterObjects;
  /** Fires when `objects` may have changed. */
  readonly objectsChanged: Watch<unknown>;
  /** Encrypts tokens on disk; undefined: they are plain. */
  readonly sealer?: Sealer | undefined;
  /** Labels of the node, for the node affinity of persistent volumes. */
  readonly nodeLabels: () => Readonly<Record<string, string>>;
  /** Volumes made of images; undefined before the runtimes are known. */
  readonly imageVolumes: () => ImageVolumeMounts | undefined;
  /** Removes folders of orphaned pods whose volumes could not be taken back before. */
  readonly sweepAgain?: (signal: AbortSignal, onSwept: () => void) => Promise<void>;
}

export interface VolumeInit {
  readonly nodeName: string;
  /** By resource name. */
  readonly allocatable: Readonly<Record<string, string>>;
  /** The size of a volume in memory that neither its own nor its pod's limit bounds. */
  readonly memoryBytes: number;
}

export interface ImageVolumeMounts {
  /** @returns the image that the runtime mounts by itself; undefined: the volume's path has the files */
  byRuntime(uid: PodUid, volume: string): ResolvedImage | undefined;
  /** Unmounts all images of the pod. */
  forget(uid: PodUid, signal: AbortSignal): Promise<void>;
}
