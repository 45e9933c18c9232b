import { readFileSync } from "node:fs";
import { parseMountInfo } from "../../core/node/mount-info.ts";

const UPPER = "upperdir=";

/**
 * Where containers' own writes lie, by container id: the upper folder of the overlay that containerd mounts for each as
 * `…/<id>/rootfs`. A runtime counts what is in it every ten seconds at best, and that may be too old to choose by.
 * Containers of other runtimes, or with another snapshotter, are not among them.
 * @param mountInfo the text of /proc/self/mountinfo
 */
export function parseWritableLayers(mountInfo: string): ReadonlyMap<string, string> {
  const folders = new Map<string, string>();
  for (const { mountPoint, fileSystem, superOptions } of parseMountInfo(mountInfo)) {
    if (fileSystem !== "overlay" || !mountPoint.endsWith("/rootfs")) continue;
    const id = mountPoint.split("/").at(-2) ?? "";
    const upper = superOptions.find((option) => option.startsWith(UPPER))?.slice(UPPER.length) ?? "";
    // An option with escapes is not undone here: such a folder is left to the runtime.
    if (id !== "" && upper.startsWith("/") && !upper.includes("\\")) folders.set(id, upper);
  }
  return folders;
}

/** None where it cannot be read. */
export function readWritableLayers(): ReadonlyMap<string, string> {
  try {
    return parseWritableLayers(readFileSync("/proc/self/mountinfo", "utf8"));
  } catch {
    return new Map();
  }
}
