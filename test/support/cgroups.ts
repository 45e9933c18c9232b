import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const ROOT = "/sys/fs/cgroup";
/** Below an agent's root: of the runner that is kept ready, made with the first component. */
export const SPARE_CGROUP = "picolet-spare";

/** The cgroup and those below, which must be empty, on every controller. */
export function removeCgroups(path: string): void {
  for (const controller of readdirSync(ROOT, { withFileTypes: true })) {
    const folder = join(ROOT, controller.name, path);
    if (!controller.isDirectory() || !existsSync(folder)) continue;
    execFileSync("find", [folder, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"]);
  }
}

/** Until no process is left in that one cgroup: one that was killed stays in it for a moment. */
export async function untilCgroupEmpty(path: string): Promise<void> {
  const lists = readdirSync(ROOT).map((controller) => join(ROOT, controller, path, "cgroup.procs"));
  const isUsed = (list: string): boolean => existsSync(list) && readFileSync(list, "utf8") !== "";
  while (lists.some(isUsed)) await pause(10);
}
