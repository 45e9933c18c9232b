import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { readTextSync } from "./cgroup-filesystem.ts";
import type { CgroupHierarchies } from "./cgroup-hierarchies.ts";

/** The controllers that pods get on v2, as far as the kernel has them. */
const V2_DELEGATED: ReadonlySet<string> = new Set(["cpu", "cpuset", "memory", "pids", "io", "hugetlb"]);

/** Makes cgroups as folders, with what their parents have to pass on to them. */
export class CgroupFolders {
  readonly #hierarchies: CgroupHierarchies;

  constructor(hierarchies: CgroupHierarchies) {
    this.#hierarchies = hierarchies;
  }

  /**
   * Makes a cgroup. Parents exist except for the first pod after a boot, so they are made only after a failure.
   * Synchronous, like all calls that the kernel answers without waiting: file access through the thread pool would take
   * longer for each step than all of them together.
   * @returns whether it did not exist
   */
  make(mountPoint: string, folder: string): boolean {
    if (folder === mountPoint) return false;
    const parent = dirname(folder);
    let isNew = true;
    try {
      if (this.#hierarchies.kind === "v2") this.#delegate(parent, this.#hierarchies.controllers);
      mkdirSync(folder, { mode: 0o755 });
    } catch (error) {
      if (errnoOf(error) === "ENOENT" && parent !== mountPoint) {
        this.make(mountPoint, parent);
        return this.make(mountPoint, folder);
      }
      if (errnoOf(error) !== "EEXIST") throw error;
      isNew = false;
    }
    const isCpuset = this.#hierarchies.kind === "v1" && this.#hierarchies.controllers.get("cpuset") === mountPoint;
    if (isCpuset) inheritCpuset(mountPoint, folder);
    return isNew;
  }

  /** v2: children have a controller only when the parent passes it on. */
  #delegate(folder: string, controllers: ReadonlySet<string>): void {
    const file = join(folder, "cgroup.subtree_control");
    const enabled = new Set(readTextSync(file).split(/\s+/));
    const missing = [...controllers].filter((name) => V2_DELEGATED.has(name) && !enabled.has(name));
    if (missing.length > 0) writeFileSync(file, missing.map((name) => `+${name}`).join(" "));
  }
}

/** A new cpuset is empty and refuses every process; one that a crash left half-made is made good, its parents too. */
function inheritCpuset(mountPoint: string, folder: string): void {
  for (const file of ["cpuset.cpus", "cpuset.mems"]) {
    if (readTextSync(join(folder, file)).trim() !== "") continue;
    const parent = dirname(folder);
    if (parent !== mountPoint && readTextSync(join(parent, file)).trim() === "") inheritCpuset(mountPoint, parent);
    const inherited = readTextSync(join(parent, file)).trim();
    if (inherited !== "") writeFileSync(join(folder, file), inherited);
  }
}
