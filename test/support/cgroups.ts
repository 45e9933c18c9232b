import { execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

const ROOT = "/sys/fs/cgroup";

/** The cgroup and those below, which must be empty, on every controller. */
export function removeCgroups(path: string): void {
  for (const controller of readdirSync(ROOT, { withFileTypes: true })) {
    const folder = join(ROOT, controller.name, path);
    if (!controller.isDirectory() || !existsSync(folder)) continue;
    execFileSync("find", [folder, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"]);
  }
}
