import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type MountEntry, parseMountInfo } from "../core/node/mount-info.ts";

/** The cgroup hierarchies of this machine. */
export type CgroupHierarchies =
  | {
      readonly kind: "v1";
      /** Mount point by controller (`cpu`, `memory` …; `systemd` for the named hierarchy). Two may share one. */
      readonly controllers: ReadonlyMap<string, string>;
      /**
       * Mount points of the other hierarchies, among them the v2 beside v1: runtimes put containers into cgroups of the
       * same path there, and leave the pod's own folder when the container goes.
       */
      readonly runtimesOwn: readonly string[];
    }
  | {
      readonly kind: "v2";
      readonly mountPoint: string;
      /** The controllers that the root delegates to its children, or can be made to. */
      readonly controllers: ReadonlySet<string>;
    }
  | { readonly kind: "none"; readonly why: string };

/** Those in which the kubelet makes pod cgroups; others (`net_cls`, `perf_event`, `misc` …) are the runtime's. */
const V1_CONTROLLERS: ReadonlySet<string> = new Set([
  "cpu",
  "cpuacct",
  "cpuset",
  "memory",
  "pids",
  "blkio",
  "devices",
  "freezer",
  "hugetlb",
]);

/**
 * Controllers mounted as v1 (alone or in a hybrid with an empty v2), else v2, else none. What is returned is a copy: a
 * piece of the text that was read keeps all of it, 90 KiB on a machine with hundreds of mounts.
 * @param mountInfoPath only tests name another one
 */
export async function detectCgroups(mountInfoPath = "/proc/self/mountinfo"): Promise<CgroupHierarchies> {
  const text = await readFile(mountInfoPath, "utf8").catch(() => "");
  const mounts = parseMountInfo(text);
  const controllers = v1Controllers(mounts);
  if (controllers.has("cpu") || controllers.has("memory")) {
    const all = mounts.filter(({ fileSystem }) => fileSystem === "cgroup" || fileSystem === "cgroup2");
    const own = new Set(controllers.values());
    const runtimesOwn = new Set(all.map(({ mountPoint }) => mountPoint).filter((each) => !own.has(each)));
    return structuredClone({ kind: "v1", controllers, runtimesOwn: [...runtimesOwn] });
  }
  const unified = mounts.find((mount) => mount.fileSystem === "cgroup2");
  if (unified === undefined) return { kind: "none", why: "no cgroup file system is mounted" };
  const listed = await readFile(join(unified.mountPoint, "cgroup.controllers"), "utf8").catch(() => "");
  const available = new Set(listed.split(/\s+/).filter((name) => name !== ""));
  if (!available.has("cpu") && !available.has("memory"))
    return { kind: "none", why: `${unified.mountPoint} offers neither the cpu nor the memory controller` };
  return structuredClone({ kind: "v2", mountPoint: unified.mountPoint, controllers: available });
}

function v1Controllers(mounts: readonly MountEntry[]): Map<string, string> {
  const controllers = new Map<string, string>();
  for (const mount of mounts) {
    if (mount.fileSystem !== "cgroup") continue;
    for (const option of mount.superOptions) {
      const controller = option === "name=systemd" ? "systemd" : option;
      // The first mount counts: a later one of the same hierarchy is a copy for other users.
      const known = controller === "systemd" || V1_CONTROLLERS.has(controller);
      if (known && !controllers.has(controller)) controllers.set(controller, mount.mountPoint);
    }
  }
  return controllers;
}
