import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { hugePageName } from "@picolet/protocol/cgroup/huge-pages.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

/** The facts of the machine that decide which limits a container can have. */
export interface RuntimeMachine {
  /** cgroup v2 alone, as runc sees it. */
  readonly unifiedCgroups: boolean;
  /** True when cgroups count swap. */
  readonly swapAccounting: boolean;
  readonly swapBytes: number;
  /** Sizes by the names of the kernel's hugetlb controller: `2MB`, `1GB`. */
  readonly hugePageSizes: readonly string[];
  /** Folders of the processors' thermal counters, which x86 alone has. */
  readonly thermalFolders: readonly string[];
}

/** @param root only tests name another one */
export function readRuntimeMachine(root = "/"): RuntimeMachine {
  const unifiedCgroups = existsSync(join(root, "sys/fs/cgroup/cgroup.controllers"));
  return {
    unifiedCgroups,
    swapAccounting: existsSync(join(root, unifiedCgroups ? ownSwapLimit(root) : V1_SWAP_LIMIT)),
    swapBytes: Number(/^SwapTotal:\s*(\d+) kB/m.exec(textOf(root, "proc/meminfo"))?.[1] ?? 0) * KIBIBYTE,
    hugePageSizes: hugePageSizes(root),
    thermalFolders: thermalFolders(root),
  };
}

const V1_SWAP_LIMIT = "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes";

/** The root cgroup has no such file. */
function ownSwapLimit(root: string): string {
  const own = /^0::(.*)$/m.exec(textOf(root, "proc/self/cgroup"))?.[1] ?? "/";
  return join("sys/fs/cgroup", own, "memory.swap.max");
}

/** `hugepages-2048kB` is called `2MB`. */
function hugePageSizes(root: string): string[] {
  const folder = join(root, "sys/kernel/mm/hugepages");
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .map((name) => Number(/^hugepages-(\d+)kB$/.exec(name)?.[1]))
    .filter((kilobytes) => kilobytes > 0)
    .sort((a, b) => a - b)
    .map((kilobytes) => hugePageName(kilobytes * KIBIBYTE));
}

function thermalFolders(root: string): string[] {
  const processors = "sys/devices/system/cpu";
  if (!existsSync(join(root, processors))) return [];
  const numbers = readdirSync(join(root, processors)).map((name) => Number(/^cpu(\d+)$/.exec(name)?.[1] ?? Number.NaN));
  return numbers
    .filter((number) => number >= 0)
    .sort((a, b) => a - b)
    .map((number) => join(processors, `cpu${number}`, "thermal_throttle"))
    .filter((folder) => existsSync(join(root, folder)))
    .map((folder) => join("/", folder));
}

function textOf(root: string, path: string): string {
  try {
    return readFileSync(join(root, path), "utf8");
  } catch {
    return "";
  }
}
