/** Status and times of a file, as wasi:filesystem reports them. */
import type { BigIntStats } from "node:fs";
import { type DescriptorType, typeOf } from "./opened-file.ts";

interface DateTime {
  readonly seconds: bigint;
  readonly nanoseconds: number;
}

export type NewTimestamp =
  | { readonly tag: "no-change" }
  | { readonly tag: "now" }
  | { readonly tag: "timestamp"; readonly val: DateTime };

export interface DescriptorStat {
  readonly type: DescriptorType;
  readonly linkCount: bigint;
  readonly size: bigint;
  readonly dataAccessTimestamp: DateTime;
  readonly dataModificationTimestamp: DateTime;
  readonly statusChangeTimestamp: DateTime;
}

export interface MetadataHash {
  readonly lower: bigint;
  readonly upper: bigint;
}

const NANOSECONDS = 1_000_000_000n;

const dateTime = (nanoseconds: bigint): DateTime => {
  const rest = ((nanoseconds % NANOSECONDS) + NANOSECONDS) % NANOSECONDS;
  return { seconds: BigInt.asUintN(64, (nanoseconds - rest) / NANOSECONDS), nanoseconds: Number(rest) };
};

export const statOf = (stats: BigIntStats): DescriptorStat => ({
  type: typeOf(stats),
  linkCount: stats.nlink,
  size: stats.size,
  dataAccessTimestamp: dateTime(stats.atimeNs),
  dataModificationTimestamp: dateTime(stats.mtimeNs),
  statusChangeTimestamp: dateTime(stats.ctimeNs),
});

/** Seconds, as Node takes them. Nanoseconds that do not fit a double (below about 200) are lost. */
export function timesFor(
  access: NewTimestamp,
  modification: NewTimestamp,
  nowMs: number,
  current: () => BigIntStats,
): [number, number] {
  const now = nowMs / 1000;
  const before = access.tag === "no-change" || modification.tag === "no-change" ? current() : undefined;
  const secondsOf = (time: NewTimestamp, unchanged: bigint | undefined): number => {
    if (time.tag === "now") return now;
    if (time.tag === "no-change") return Number(unchanged ?? 0n) / 1e9;
    return Number(BigInt.asIntN(64, time.val.seconds)) + time.val.nanoseconds / 1e9;
  };
  return [secondsOf(access, before?.atimeNs), secondsOf(modification, before?.mtimeNs)];
}

/**
 * A hash of the object's identity, not of its content: the command adapter shows it as the inode number, which must not
 * change when a file is written.
 */
export function hashOf(stats: BigIntStats): MetadataHash {
  return { lower: mixed(stats.ino + (stats.dev << 32n)), upper: mixed(stats.dev ^ (stats.ino << 1n)) };
}

/** The finaliser of SplitMix64. */
function mixed(value: bigint): bigint {
  let bits = BigInt.asUintN(64, value + 0x9e3779b97f4a7c15n);
  bits = BigInt.asUintN(64, (bits ^ (bits >> 30n)) * 0xbf58476d1ce4e5b9n);
  bits = BigInt.asUintN(64, (bits ^ (bits >> 27n)) * 0x94d049bb133111ebn);
  return bits ^ (bits >> 31n);
}
