/** Volumes of CSI drivers that pods use through claims, read from cached objects. Pure. */
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { attachedVolumeName } from "@picolet/hub-core/volume-attachments.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { hasEnded } from "../../api/typed-objects.ts";
import type { ObjectCache } from "../object-cache.ts";
import { claimsOf } from "./pod-claims.ts";
import { type Claim, refersToClaim, type Volume } from "./volume-objects.ts";

/** A persistent volume of a driver. */
export interface DriverVolume {
  /** In the Node's `volumesAttached`; the same for each persistent volume that names the same disk. */
  readonly id: string;
  readonly driver: string;
  readonly handle: string;
  /** The PersistentVolume's name. */
  readonly volume: string;
  /** True when several nodes may have it attached at once. */
  readonly isShared: boolean;
}

export interface CsiVolumeObject extends Volume {
  readonly spec?: Volume["spec"] & { readonly csi?: { readonly driver?: string; readonly volumeHandle?: string } };
}

/** @returns undefined for a volume of no CSI driver */
export function driverVolume(object: KubeObject | undefined): DriverVolume | undefined {
  const { metadata, spec } = (object ?? {}) as Partial<CsiVolumeObject>;
  const { driver = "", volumeHandle: handle = "" } = spec?.csi ?? {};
  if (metadata === undefined || driver === "" || handle === "") return undefined;
  const modes = spec?.accessModes ?? [];
  // Without a mode nothing is known to forbid it, as in Kubernetes.
  const isShared = modes.length === 0 || modes.some((mode) => mode === "ReadWriteMany" || mode === "ReadOnlyMany");
  return { id: attachedVolumeName(driver, handle), driver, handle, volume: metadata.name, isShared };
}

/** The volumes of a pod's bound claims that belong to CSI drivers. */
export function driverVolumesOf(
  pod: Pod,
  { claims, volumes }: { readonly claims: ObjectCache; readonly volumes: ObjectCache },
): readonly DriverVolume[] {
  return claimsOf(pod).flatMap((name) => {
    const claim = claims.find(pod.metadata.namespace, name) as Claim | undefined;
    const volumeName = claim?.spec?.volumeName ?? "";
    if (claim === undefined || volumeName === "") return [];
    const object = volumes.get(volumeName) as CsiVolumeObject | undefined;
    return refersToClaim(claim, object?.spec?.claimRef) ? (driverVolume(object) ?? []) : [];
  });
}

/** True when the pod needs its volumes no more: it has ended, or is being deleted and nothing of it runs. */
export function hasReleased(pod: Pod): boolean {
  if (hasEnded(pod)) return true;
  const statuses = pod.status?.containerStatuses ?? [];
  const isStopped = statuses.every(({ state }) => state?.terminated !== undefined || state?.waiting !== undefined);
  return pod.metadata.deletionTimestamp !== undefined && isStopped;
}
