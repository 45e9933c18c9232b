/** Figures of a process from /proc. */
import { readFileSync } from "node:fs";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

/** The kernel's, on every machine that Linux runs on (`USER_HZ`). */
const TICKS_PER_SECOND = 100;

/** 0 when it has ended. */
export function residentBytesOf(pid: number | undefined): number {
  const [kibibytes = "0"] = /(?<=^VmRSS:\s+)\d+/m.exec(read(pid, "status")) ?? [];
  return Number(kibibytes) * KIBIBYTE;
}

/** CPU time of all its threads; 0 when it has ended. */
export function cpuMsOf(pid: number | undefined): number {
  const stat = read(pid, "stat");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return ((Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * 1000) / TICKS_PER_SECOND;
}

/** "" when it has ended. */
function read(pid: number | undefined, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    return "";
  }
}
