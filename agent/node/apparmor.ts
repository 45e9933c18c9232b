import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** @returns whether the kernel enforces AppArmor profiles. @param root only tests name another one */
export function isApparmorEnabled(root = "/"): boolean {
  if (!existsSync(join(root, "sys/kernel/security/apparmor"))) return false;
  try {
    return readFileSync(join(root, "sys/module/apparmor/parameters/enabled"), "utf8").startsWith("Y");
  } catch {
    return false;
  }
}
