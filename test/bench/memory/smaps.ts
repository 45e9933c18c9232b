/** Finds the owners of a Node process's anonymous memory by its mappings. Source: proc_pid_smaps(5). */
import { readdirSync, readFileSync } from "node:fs";

/** Owners of mappings, each with a rule below. */
export const MAPPING_OWNERS = [
  "V8 heap",
  "V8 code",
  "malloc: brk",
  "malloc: mapped",
  "stacks of threads",
  "data of node",
  "data of libraries",
  "not attributed",
] as const;
export type MappingOwner = (typeof MAPPING_OWNERS)[number];

export interface Mapping {
  readonly start: number;
  readonly end: number;
  readonly permissions: string;
  /** "" for an anonymous one. */
  readonly path: string;
  readonly anonKiB: number;
  readonly rssKiB: number;
}

export interface MappedMemory {
  readonly anonKiB: Readonly<Record<MappingOwner, number>>;
  /** Resident and droppable: pages of files that are as on the disk. */
  readonly filesKiB: Readonly<Record<string, number>>;
}

/**
 * V8 takes its heap in aligned pages of this size at random addresses of 46 bits, which the kernel itself never
 * chooses.
 */
const V8_PAGE = 256 * 1024;
const V8_ADDRESSES = 2 ** 46;
/** Machine code lies in one reservation. */
const LEAST_CODE_RANGE = 16 * 1024 * 1024;

export function mappedMemoryOf(pid: number): MappedMemory {
  const mappings = parseSmaps(readFileSync(`/proc/${pid}/smaps`, "utf8"));
  return classify(mappings, stackPointersOf(pid));
}

export function parseSmaps(text: string): Mapping[] {
  const mappings: Mapping[] = [];
  for (const block of text.split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m)) {
    const head = /^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)$/m.exec(block);
    if (head === null) continue;
    const [, start = "", end = "", permissions = "", path = ""] = head;
    const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(block)?.[1] ?? 0);
    const [from, to] = [Number.parseInt(start, 16), Number.parseInt(end, 16)];
    mappings.push({ start: from, end: to, permissions, path, anonKiB: field("Anonymous"), rssKiB: field("Rss") });
  }
  return mappings;
}

export function classify(mappings: readonly Mapping[], stackPointers: readonly number[]): MappedMemory {
  const anonKiB = Object.fromEntries(MAPPING_OWNERS.map((owner) => [owner, 0])) as Record<MappingOwner, number>;
  const filesKiB: Record<string, number> = {};
  for (const [index, mapping] of mappings.entries()) {
    const { path, anonKiB: anon, rssKiB } = mapping;
    anonKiB[ownerOf(mapping, mappings[index - 1], mappings[index + 1], stackPointers)] += anon;
    if (path.startsWith("/")) filesKiB[nameOf(path)] = (filesKiB[nameOf(path)] ?? 0) + rssKiB - anon;
  }
  return { anonKiB, filesKiB };
}

function ownerOf(
  mapping: Mapping,
  before: Mapping | undefined,
  after: Mapping | undefined,
  stackPointers: readonly number[],
): MappingOwner {
  const { path, start, end } = mapping;
  if (path === "[heap]") return "malloc: brk";
  if (path === "[stack]" || stackPointers.some((pointer) => pointer >= start && pointer < end))
    return "stacks of threads";
  if (path.startsWith("/")) return dataOf(path);
  if (path !== "" && !path.startsWith("[anon")) return "not attributed";
  // The zero-filled part of a file's data directly follows its mapping.
  if (before?.path.startsWith("/") && before.end === start) return dataOf(before.path);
  if (isOfCodeRange(mapping, before, after)) return "V8 code";
  if (start % V8_PAGE === 0 && start < V8_ADDRESSES) return "V8 heap";
  return "malloc: mapped";
}

const isOfCodeRange = (mapping: Mapping, before: Mapping | undefined, after: Mapping | undefined): boolean =>
  mapping.permissions.includes("x") ||
  (isReserved(before) && before?.end === mapping.start) ||
  (isReserved(after) && after?.start === mapping.end);

const isReserved = (mapping: Mapping | undefined): boolean =>
  mapping?.path === "" && mapping.permissions === "---p" && mapping.end - mapping.start >= LEAST_CODE_RANGE;

const nameOf = (path: string): string => path.split("/").at(-1) ?? path;

const dataOf = (path: string): MappingOwner => (nameOf(path) === "node" ? "data of node" : "data of libraries");

/** The stack pointer of each thread that waits in the kernel. */
function stackPointersOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((thread) => {
    const words = readFileSync(`/proc/${pid}/task/${thread}/syscall`, "utf8").trim().split(" ");
    const pointer = Number(words.at(-2));
    return Number.isFinite(pointer) ? [pointer] : [];
  });
}
