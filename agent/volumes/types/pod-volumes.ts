import { isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { Container, Pod, Volume } from "@picolet/protocol/pod/pod.ts";
import type { Clock, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import { isStatic } from "../../plan/admission/critical-pods.ts";
import type { Mounter } from "../files/mounter.ts";
import type { PodPaths } from "../files/pod-paths.ts";
import type { ClaimLocation, ClaimVolumes } from "./claim-volumes.ts";
import { type ClaimedVolume, claimedVolume, claimNameOf, type VolumeUse } from "./claimed-volume.ts";
import type { EmptyDirs } from "./empty-dirs.ts";
import { checkHostPath } from "./host-path.ts";
import { MountFailures } from "./mount-failures.ts";
import type { PayloadVolumes } from "./payload-volumes.ts";
import { setUpFailure } from "./set-up-failure.ts";
import { isPayloadVolume } from "./volume-payload.ts";

export interface PodVolumesComponents {
  readonly paths: PodPaths;
  readonly mounter: Mounter;
  readonly payloads: PayloadVolumes;
  readonly emptyDirs: EmptyDirs;
  readonly claims: ClaimVolumes;
  readonly objects: Pick<ClusterObjects, "object">;
  readonly clock: Pick<Clock, "monotonic">;
}

/** Volumes as folders, files and devices of this node. */
export class PodVolumes {
  readonly #components: PodVolumesComponents;
  /** Where the claims of pods that were set up by this agent have led, by the name of the volume. */
  readonly #claimed = new Map<PodUid, Map<string, ClaimLocation>>();

  readonly #failures: MountFailures;

  constructor(components: PodVolumesComponents) {
    this.#components = components;
    this.#failures = new MountFailures(components);
  }

  /**
   * Makes every volume that a container mounts; others are left alone, as the kubelet does. Volumes made of images come
   * with the images.
   * @throws PicoletError @see MountFailures
   */
  async setUp(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    const used = usedVolumes(pod.pod);
    const claims = new Map<string, ClaimedVolume>();
    const unprocessed = new Map<string, PicoletError>();
    for (const { volume, use } of used) {
      if (claimNameOf(pod.pod, volume) === undefined) continue;
      try {
        claims.set(volume.name, this.#claimedVolume(pod, volume, use));
      } catch (error) {
        if (!(error instanceof PicoletError)) throw error;
        unprocessed.set(volume.name, error);
      }
    }
    const failures = new Map<string, PicoletError>();
    for (const { volume } of used.filter((each) => !unprocessed.has(each.volume.name))) {
      try {
        await this.#setUpOne(pod, volume, claims.get(volume.name), signal);
        await this.#share(pod, volume, signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        failures.set(volume.name, setUpFailure(volume.name, error));
      }
    }
    const failure = this.#failures.report(pod.uid, failures, unprocessed);
    if (failure !== undefined) throw failure;
  }

  /** The pod's folder is about to go. */
  forget(uid: PodUid): void {
    this.#claimed.delete(uid);
    this.#failures.forget(uid);
  }

  /** Where a volume that was set up is. `undefined` when the pod has none of that name, or it is a device. */
  locate(pod: DesiredPod, name: string): { readonly path: string; readonly readOnly: boolean } | undefined {
    const { payloads, paths } = this.#components;
    const volume = pod.pod.spec.volumes?.find((each) => each.name === name);
    if (volume === undefined) return undefined;
    if (volume.hostPath !== undefined) return { path: volume.hostPath.path, readOnly: false };
    if (isPayloadVolume(volume)) return { path: payloads.locate(pod, volume), readOnly: true };
    if (volume.image !== undefined) return { path: paths.volume(pod.uid, "image", name), readOnly: true };
    if (claimNameOf(pod.pod, volume) !== undefined) {
      const location = this.#claimed.get(pod.uid)?.get(name);
      return location?.isDevice === false ? location : undefined;
    }
    return { path: paths.volume(pod.uid, "empty-dir", name), readOnly: false };
  }

  /** The device that a volume of mode Block is. */
  device(pod: DesiredPod, name: string): ClaimLocation | undefined {
    const location = this.#claimed.get(pod.uid)?.get(name);
    return location?.isDevice === true ? location : undefined;
  }

  #claimedVolume(pod: DesiredPod, volume: Volume, use: VolumeUse): ClaimedVolume {
    if (isStatic(pod)) throw new PicoletError("invalid", "static pods may not reference persistentvolumeclaims");
    return claimedVolume(pod.pod, volume, use, this.#components.objects);
  }

  async #setUpOne(
    pod: DesiredPod,
    volume: Volume,
    claimed: ClaimedVolume | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { payloads, emptyDirs, claims } = this.#components;
    if (isPayloadVolume(volume)) return payloads.setUp(pod, volume, signal);
    if (claimed !== undefined) {
      const location = await claims.setUp(pod, claimed, signal);
      const locations = this.#claimed.get(pod.uid) ?? new Map<string, ClaimLocation>();
      this.#claimed.set(pod.uid, locations.set(volume.name, location));
      return;
    }
    const kind = kindOf(volume);
    switch (kind) {
      case "emptyDir":
        return emptyDirs.setUp(pod, volume, signal);
      case "hostPath":
        return checkHostPath(volume.hostPath?.path ?? "", volume.hostPath?.type ?? "");
      case "image":
        return;
      default:
        throw new PicoletError("unavailable", missingDriver(kind, volume), { retryable: true });
    }
  }

  /**
   * A container that passes mounts on, or wants to see new ones, needs a mount with peers. The node's own paths are the
   * node's.
   */
  async #share(pod: DesiredPod, volume: Volume, signal: AbortSignal): Promise<void> {
    const { mounter, paths } = this.#components;
    const propagates = containersOf(pod.pod).some((container) =>
      container.volumeMounts?.some(
        ({ name, mountPropagation = "None" }) => name === volume.name && mountPropagation !== "None",
      ),
    );
    const location = propagates && mounter.allowed ? this.locate(pod, volume.name) : undefined;
    if (location?.path.startsWith(`${paths.pod(pod.uid)}/`) !== true || volume.image !== undefined) return;
    await mounter.share(location.path, signal);
  }
}

interface UsedVolume {
  readonly volume: Volume;
  readonly use: VolumeUse;
}

function usedVolumes(pod: Pod): readonly UsedVolume[] {
  const mounted = new Set<string>();
  const devices = new Set<string>();
  for (const container of containersOf(pod)) {
    for (const { name } of container.volumeMounts ?? []) mounted.add(name);
    for (const { name } of container.volumeDevices ?? []) devices.add(name);
  }
  return (pod.spec.volumes ?? [])
    .map((volume) => ({ volume, use: { mounted: mounted.has(volume.name), asDevice: devices.has(volume.name) } }))
    .filter(({ use }) => use.mounted || use.asDevice);
}

const containersOf = ({ spec }: Pod): readonly Pick<Container, "volumeMounts" | "volumeDevices">[] => [
  ...(spec.initContainers ?? []),
  ...spec.containers,
  ...(spec.ephemeralContainers ?? []),
];

const KINDS = ["emptyDir", "hostPath", "image"] as const;

/** The field that is set beside the name; a volume with no source is an emptyDir. */
function kindOf(volume: Volume): string {
  const known = KINDS.find((kind) => volume[kind] !== undefined);
  if (known !== undefined) return known;
  const source = Object.entries(volume).find(([field, value]) => field !== "name" && value !== undefined);
  return source?.[0] ?? "emptyDir";
}

/** Somebody may install it. */
function missingDriver(kind: string, { csi }: Volume): string {
  if (csi === undefined) return `no volume plugin matched: this node has none for volumes of type ${kind}`;
  return `kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name ${csi.driver} not found in the list of registered CSI drivers`;
}
