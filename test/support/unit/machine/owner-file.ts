/** The file by which a folder of the system's temporary folder names the process that made it. */
import { existsSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const FILE = "owner";

/** Process IDs are those of one namespace; test runs in another one may share the temporary folder. */
const namespace = (): string => readlinkSync("/proc/self/ns/pid");

export function writeOwner(folder: string): void {
  writeFileSync(join(folder, FILE), `${process.pid} ${namespace()}`);
}

/** @returns true when the process that made the folder has ended. False where this cannot be known */
export function isAbandoned(folder: string): boolean {
  const path = join(folder, FILE);
  if (!existsSync(path)) return false;
  const [pid = "", where] = readFileSync(path, "utf8").split(" ");
  return where === namespace() && !existsSync(`/proc/${pid}`);
}
