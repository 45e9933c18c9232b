/**
 * Finds the disks that wear when a folder is written to: whole disks, below partitions, device mapper, RAID and loop
 * devices.
 */
import { existsSync, readdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** Bounds the walk; a loop device on a file on device mapper on a partition is four levels. */
const MAX_DEPTH = 8;
/** Memory, and what is not written to. */
const NEVER_WORN = /^(?:zram|ram|sr|fd)\d/;

/**
 * @param paths folders or files; what is not there, and what lies in memory, has no disk
 * @param root only tests name another one
 * @returns kernel names such as `mmcblk0`, sorted; where no file system tells its disk (an overlay), all that there are
 */
export function flashDisks(paths: readonly string[], root = "/"): readonly string[] {
  const found = new Set(paths.flatMap((path) => disksOfPath(path, root, 0)));
  const disks = found.size > 0 ? [...found] : realDisks(root);
  // Pieces of a text that was read would keep all of it.
  return structuredClone(disks.filter((name) => !NEVER_WORN.test(name)).toSorted());
}

/** The disks that are hardware, or represent it in a virtual machine. */
const realDisks = (root: string): string[] =>
  namesIn(join(root, "sys/block")).filter((name) => existsSync(join(root, "sys/block", name, "device")));

function disksOfPath(path: string, root: string, depth: number): string[] {
  const numbers = deviceOf(path);
  const name = numbers === undefined ? undefined : (nameOf(numbers, root) ?? sourceOf(numbers, root));
  return name === undefined ? [] : disksBelow(name, root, depth);
}

function disksBelow(name: string, root: string, depth: number): string[] {
  if (depth >= MAX_DEPTH) return [];
  const link = join(root, "sys/class/block", name);
  if (!existsSync(link)) return [];
  const folder = realpathSync(link);
  if (existsSync(join(folder, "partition"))) return disksBelow(basename(dirname(folder)), root, depth + 1);
  const backing = textOf(join(folder, "loop/backing_file"));
  if (backing !== "") return disksOfPath(join(root, backing), root, depth + 1);
  const slaves = namesIn(join(folder, "slaves"));
  return slaves.length === 0 ? [name] : slaves.flatMap((slave) => disksBelow(slave, root, depth + 1));
}

/** `major:minor`, as the C library packs them into one number. */
function deviceOf(path: string): string | undefined {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined) return undefined;
  const device = BigInt(found.dev);
  const major = ((device >> 8n) & 0xfffn) | ((device >> 32n) & ~0xfffn);
  const minor = (device & 0xffn) | ((device >> 12n) & ~0xffn);
  return `${major}:${minor}`;
}

function nameOf(numbers: string, root: string): string | undefined {
  try {
    return basename(realpathSync(join(root, "sys/dev/block", numbers)));
  } catch {
    return undefined;
  }
}

/** A file system that spans devices (btrfs) has numbers of its own; the mount names one of them. */
function sourceOf(numbers: string, root: string): string | undefined {
  for (const line of textOf(join(root, "proc/self/mountinfo")).split("\n")) {
    const fields = line.split(" ");
    const source = fields[fields.indexOf("-", 6) + 2] ?? "";
    if (fields[2] === numbers && source.startsWith("/dev/")) return basename(realOr(join(root, source)));
  }
  return undefined;
}

function realOr(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}
