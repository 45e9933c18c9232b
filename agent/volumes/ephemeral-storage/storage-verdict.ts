/** Whether a pod has written more to this node's disk than it may: the kubelet's three limits, in its order. Pure. */

import { formatQuantity, parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, Pod, Volume } from "@picolet/protocol/pod/pod.ts";
import { podLimits } from "@picolet/protocol/pod/pod-resources.ts";
import type { PodDiskUsage } from "../../core/node/usage.ts";

export interface StorageUsage {
  /** Of emptyDir volumes on disk, by name. */
  readonly emptyDirs: ReadonlyMap<string, number>;
  /** Its log and what it has written to its own file system, by container. */
  readonly containers: ReadonlyMap<string, number>;
  /** Whatever else counts for the pod: ConfigMaps, /etc/hosts. */
  readonly otherBytes: number;
}

/** What was measured, as the limits have it. */
export function storageUsage({ spec }: Pod, { rootfs, logs, volumes, otherBytes }: PodDiskUsage): StorageUsage {
  const isEmptyDir = new Set((spec.volumes ?? []).filter(isOnDisk).map(({ name }) => name));
  const emptyDirs = new Map<string, number>();
  let others = otherBytes;
  for (const [name, { bytes }] of volumes) {
    if (isEmptyDir.has(name)) emptyDirs.set(name, bytes);
    else others += bytes;
  }
  const names = new Set([...rootfs.keys(), ...logs.keys()]);
  const bytesOfContainer = (name: string): number => (rootfs.get(name)?.bytes ?? 0) + (logs.get(name)?.bytes ?? 0);
  return {
    emptyDirs,
    containers: new Map([...names].map((name) => [name, bytesOfContainer(name)])),
    otherBytes: others,
  };
}

const RESOURCE = "ephemeral-storage";

/** Whether the volume's files are on the disk that pods share. */
export const isOnDisk = ({ emptyDir }: Volume): boolean => emptyDir !== undefined && (emptyDir.medium ?? "") === "";

/** Emptydirs alone are measured for one with no other limit. */
export const hasStorageLimit = (pod: Pod): boolean => podLimits(pod).has(RESOURCE);

export const limitedVolumes = ({ spec }: Pod): readonly Volume[] =>
  (spec.volumes ?? []).filter((volume) => isOnDisk(volume) && bytesOf(volume.emptyDir?.sizeLimit) > 0);

/** @returns the kubelet's message of the eviction; `undefined`: it is within its limits. */
export function storageExcess(pod: Pod, usage: StorageUsage): string | undefined {
  for (const { name, emptyDir } of limitedVolumes(pod)) {
    const limit = emptyDir?.sizeLimit ?? "";
    if ((usage.emptyDirs.get(name) ?? 0) > bytesOf(limit))
      return `Usage of EmptyDir volume ${JSON.stringify(name)} exceeds the limit ${JSON.stringify(limit)}. `;
  }
  const ofPod = podLimits(pod).get(RESOURCE);
  if (ofPod === undefined) return undefined;
  const total = [...usage.emptyDirs.values(), ...usage.containers.values()].reduce((sum, bytes) => sum + bytes, 0);
  if (total + usage.otherBytes > Number(quantityValue(ofPod)))
    return `Pod ephemeral local storage usage exceeds the total limit of containers ${formatQuantity(ofPod)}. `;
  const greedy = pod.spec.containers.find((container) => exceeds(container, usage));
  if (greedy === undefined) return undefined;
  const limit = greedy.resources.limits?.[RESOURCE] ?? "";
  return `Container ${greedy.name} exceeded its local ephemeral storage limit ${JSON.stringify(limit)}. `;
}

function exceeds({ name, resources }: Container, { containers }: StorageUsage): boolean {
  const limit = bytesOf(resources.limits?.[RESOURCE]);
  return limit > 0 && (containers.get(name) ?? 0) > limit;
}

function bytesOf(text: string | undefined): number {
  const parsed = text === undefined ? undefined : parseQuantity(text);
  return parsed?.ok === true ? Number(quantityValue(parsed.quantity)) : 0;
}
