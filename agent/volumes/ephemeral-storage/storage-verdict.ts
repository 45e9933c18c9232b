/** Judges the disk usage of a pod by the kubelet's three limits, in its order. Pure. */

import { formatQuantity, parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import { podLimits } from "@picolet/protocol/pod/pod-resources.ts";
import type { PodDiskUsage } from "../../core/node/usage.ts";
import { volumeTypeOf } from "../types/volume-types.ts";

export interface StorageUsage {
  /** Bytes of volumes on disk, by name. */
  readonly volumes: ReadonlyMap<string, number>;
  /** Bytes of the log and of what the container has written to its own file system, by container. */
  readonly containers: ReadonlyMap<string, number>;
  /** Bytes of all else that counts for the pod, such as /etc/hosts. */
  readonly otherBytes: number;
}

/** The measured figures, summed up as the limits count them. */
export function storageUsage({ rootfs, logs, volumes, otherBytes }: PodDiskUsage): StorageUsage {
  const names = new Set([...rootfs.keys(), ...logs.keys()]);
  const bytesOfContainer = (name: string): number => (rootfs.get(name)?.bytes ?? 0) + (logs.get(name)?.bytes ?? 0);
  return {
    volumes: new Map([...volumes].map(([name, { bytes }]) => [name, bytes])),
    containers: new Map([...names].map((name) => [name, bytesOfContainer(name)])),
    otherBytes,
  };
}

const RESOURCE = "ephemeral-storage";

export const hasStorageLimit = (pod: Pod): boolean => podLimits(pod).has(RESOURCE);

/** The volumes that have a limit of their own. */
export const limitedVolumes = ({ spec }: Pod): readonly LimitedVolume[] =>
  (spec.volumes ?? []).flatMap((volume) => {
    const limit = volumeTypeOf(volume)?.diskUse?.(volume)?.sizeLimit ?? "";
    return bytesOf(limit) > 0 ? [{ name: volume.name, limit }] : [];
  });

interface LimitedVolume {
  readonly name: string;
  readonly limit: string;
}

/** @returns the kubelet's message of the eviction; `undefined`: the pod is within its limits */
export function storageExcess(pod: Pod, usage: StorageUsage): string | undefined {
  for (const { name, limit } of limitedVolumes(pod)) {
    if ((usage.volumes.get(name) ?? 0) > bytesOf(limit))
      return `Usage of EmptyDir volume ${JSON.stringify(name)} exceeds the limit ${JSON.stringify(limit)}. `;
  }
  const ofPod = podLimits(pod).get(RESOURCE);
  if (ofPod === undefined) return undefined;
  const total = [...usage.volumes.values(), ...usage.containers.values()].reduce((sum, bytes) => sum + bytes, 0);
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
