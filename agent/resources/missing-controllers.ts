/** Finds limits that this kernel cannot enforce, and how to mend that. */
import { access, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { CgroupHierarchies } from "./cgroup-hierarchies.ts";

export interface MissingController {
  readonly controller: "cpu" | "memory" | "pids";
  /** For people: what does not work, and what would make it work. */
  readonly message: string;
}

const LIMITING = ["cpu", "memory", "pids"] as const;
const WHAT = { cpu: "CPU limits", memory: "memory limits", pids: "limits of processes" } as const;
/** Where boards that are started by Raspberry Pi's firmware have the kernel's command line, new place first. */
const COMMAND_LINES = ["boot/firmware/cmdline.txt", "boot/cmdline.txt"];
const ENABLING = "cgroup_enable=memory cgroup_memory=1";

/** @param root only tests name another one */
export async function missingControllers(
  hierarchies: CgroupHierarchies,
  withheld: readonly string[] = [],
  root = "/",
): Promise<readonly MissingController[]> {
  if (hierarchies.kind === "none") return [];
  const has = (controller: string): boolean => hierarchies.controllers.has(controller);
  const enabled = controllersOf(await readFile(join(root, "proc/cgroups"), "utf8").catch(() => ""));
  const found: MissingController[] = [];
  for (const controller of LIMITING) {
    if (has(controller)) continue;
    const begin = `${WHAT[controller]} of pods are not enforced: `;
    if (withheld.includes(controller)) {
      const why = `the root of cgroup v2 does not pass the ${controller} controller on (cgroup.subtree_control)`;
      found.push({ controller, message: begin + why });
    } else if (controller === "memory")
      found.push({ controller, message: begin + (await memoryAdvice(enabled, root)) });
    else found.push({ controller, message: `${begin}this kernel has no ${controller} controller` });
  }
  return found;
}

async function memoryAdvice(enabled: ReadonlyMap<string, boolean>, root: string): Promise<string> {
  if (enabled.size > 0 && !enabled.has("memory")) return "this kernel was built without the memory controller";
  const there = await Promise.all(COMMAND_LINES.map((path) => exists(join(root, path))));
  const file = COMMAND_LINES.find((_, index) => there[index]);
  const where = file === undefined ? "the kernel's command line" : `the line in /${file}`;
  return `the kernel's memory controller is off; add "${ENABLING}" to ${where} and restart`;
}

/**
 * Parses `/proc/cgroups`: name, hierarchy, number of cgroups, whether it is enabled. Lines of another form are skipped.
 */
export function controllersOf(text: string): ReadonlyMap<string, boolean> {
  const found = new Map<string, boolean>();
  for (const line of text.split("\n")) {
    const [, name, enabled] = /^(\w+)\t\d+\t\d+\t([01])$/.exec(line) ?? [];
    if (name !== undefined) found.set(name, enabled === "1");
  }
  return found;
}

/** Has the root of cgroup v2 pass on to its children what pods need. @returns what it does not */
export async function withheldControllers(hierarchies: CgroupHierarchies): Promise<readonly string[]> {
  if (hierarchies.kind !== "v2") return [];
  const file = join(hierarchies.mountPoint, "cgroup.subtree_control");
  const enabled = new Set((await readFile(file, "utf8").catch(() => "")).split(/\s+/));
  const withheld: string[] = [];
  for (const controller of LIMITING) {
    if (!hierarchies.controllers.has(controller) || enabled.has(controller)) continue;
    try {
      await writeFile(file, `+${controller}`, { flag: "r+" });
    } catch (error) {
      // Another user may not: that there are no cgroups for it is said when it makes one.
      if (errnoOf(error) !== "EACCES") withheld.push(controller);
    }
  }
  return withheld;
}

/** Without those. */
export function removeControllers(hierarchies: CgroupHierarchies, withheld: readonly string[]): CgroupHierarchies {
  if (hierarchies.kind !== "v2" || withheld.length === 0) return hierarchies;
  return {
    ...hierarchies,
    controllers: new Set([...hierarchies.controllers].filter((each) => !withheld.includes(each))),
  };
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
