import { statfs } from "node:fs/promises";
import type { Volume } from "@picolet/protocol/pod/pod.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import { usageOf } from "../../stats/filesystem-sampler.ts";
import type { MountedVolume } from "../../stats/summary.ts";
import type { PodPaths, VolumePlugin } from "../../volumes/files/pod-paths.ts";

/** @returns the pod's volumes in memory that exist, each of which is a file system of its own */
export async function mountedVolumes(paths: PodPaths, { desired }: AgentPod): Promise<readonly MountedVolume[]> {
  const mounted: MountedVolume[] = [];
  for (const volume of desired.pod.spec.volumes ?? []) {
    const plugin = pluginOf(volume);
    if (plugin === undefined) continue;
    const statistics = await statfs(paths.volume(desired.uid, plugin, volume.name)).catch(() => undefined);
    if (statistics?.type === TMPFS_MAGIC) mounted.push({ name: volume.name, usage: usageOf(statistics) });
  }
  return mounted;
}

const TMPFS_MAGIC = 0x01021994;

function pluginOf({ emptyDir, secret, projected, downwardAPI }: Volume): VolumePlugin | undefined {
  if (emptyDir !== undefined) return "empty-dir";
  if (secret !== undefined) return "secret";
  if (projected !== undefined) return "projected";
  return downwardAPI === undefined ? undefined : "downward-api";
}
