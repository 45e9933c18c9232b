/**
 * Folders in a volume for other volumes that a container mounts inside it: one that is read-only could not get them
 * later.
 */
import { mkdir } from "node:fs/promises";
import { join, normalize } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";

const FOLDER_MODE = 0o755;

/** @param folder of the volume. @throws `invalid` for a mount that would lead out of the container */
export async function makeNestedMountpoints(pod: Pod, volume: string, folder: string): Promise<void> {
  for (const path of nestedMountpoints(pod, volume)) {
    await mkdir(join(folder, path), { recursive: true, mode: FOLDER_MODE });
  }
}

/** Relative to the volume. Of mounts within one another only the outermost: the others lie in that one's volume. */
export function nestedMountpoints({ spec }: Pod, volume: string): readonly string[] {
  const { containers, initContainers = [], ephemeralContainers = [] } = spec;
  const found = new Set<string>();
  for (const { volumeMounts = [] } of [...initContainers, ...containers, ...ephemeralContainers]) {
    const all = volumeMounts.map(({ mountPath }) => cleaned(mountPath)).sort();
    for (const { name, mountPath } of volumeMounts) {
      if (name !== volume) continue;
      const own = cleaned(mountPath);
      if (own.startsWith("../")) throw new PicoletError("invalid", `invalid container mount point ${own}`);
      for (const path of outermostWithin(own, all)) found.add(path);
    }
  }
  return [...found];
}

function outermostWithin(own: string, all: readonly string[]): readonly string[] {
  const prefix = own === "/" ? own : `${own}/`;
  const found: string[] = [];
  for (const path of all) {
    if (path === own || !path.startsWith(prefix)) continue;
    if (!found.some((other) => path === other || path.startsWith(`${other}/`))) found.push(path);
  }
  return found.map((path) => path.slice(prefix.length));
}

const cleaned = (path: string): string => {
  const normal = normalize(path);
  return normal.length > 1 && normal.endsWith("/") ? normal.slice(0, -1) : normal;
};
