/**
 * The volume types that this node has, a line each, by the name of their field in a volume. A type without a line needs
 * a driver: its pods wait. `protocol/pod/volumes/volume-models.ts` has each type's schema and rules.
 */
import type { Pod, Volume } from "@picolet/protocol/pod/pod.ts";
import { claimVolume } from "./claim-volumes.ts";
import { csiVolume } from "./csi-on-demand.ts";
import { emptyDir } from "./empty-dirs.ts";
import { hostPath } from "./host-path.ts";
import { imageVolume } from "./image-volumes.ts";
import { nfs } from "./nfs.ts";
import { configMap, downwardAPI, projected, secret } from "./payload-volumes.ts";
import type { VolumeType } from "./volume-type.ts";

export const VOLUME_TYPES: Readonly<Record<string, VolumeType>> = {
  emptyDir,
  hostPath,
  configMap,
  secret,
  downwardAPI,
  projected,
  image: imageVolume,
  csi: csiVolume,
  nfs,
  persistentVolumeClaim: claimVolume,
  ephemeral: claimVolume,
};

const KINDS = Object.keys(VOLUME_TYPES);

/** @returns the field that is set beside the name: a known type's first; a volume without a source is an emptyDir */
export function volumeKind(volume: Volume): string {
  const known = KINDS.find((kind) => volume[kind as keyof Volume] !== undefined);
  if (known !== undefined) return known;
  const source = Object.entries(volume).find(([field, value]) => field !== "name" && value !== undefined);
  return source?.[0] ?? "emptyDir";
}

export const volumeTypeOf = (volume: Volume): VolumeType | undefined => VOLUME_TYPES[volumeKind(volume)];

/** @returns whether a restarted agent must prepare the running pod again, because files of a volume follow objects */
export const hasRefreshedVolumes = ({ spec }: Pod): boolean =>
  (spec.volumes ?? []).some((volume) => volumeTypeOf(volume)?.isRefreshed === true);
