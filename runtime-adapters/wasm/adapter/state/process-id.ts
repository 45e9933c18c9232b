/**
 * A process that is not mistaken for a later one with the same pid: proc(5), field 22 (`starttime`) of
 * /proc/<pid>/stat.
 */

import { readFileSync } from "node:fs";
import { ignore } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

export interface ProcessId {
  readonly pid: number;
  /** Clock ticks since boot. */
  readonly startTime: string;
}

/** `<pid> <start time>`, one line; undefined for anything else, also for a line that is not whole yet. */
export function parseProcessId(text: string): ProcessId | undefined {
  const [, pid, startTime] = /^(\d+) (\d+)\n$/.exec(text) ?? [];
  return pid === undefined || startTime === undefined ? undefined : { pid: Number(pid), startTime };
}

/** A zombie has ended: only its exit code is waited for. */
export function isAlive({ pid, startTime }: ProcessId): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name in parentheses may hold anything; the fields begin behind its last one, with the third.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[19] === startTime && fields[0] !== "Z" && fields[0] !== "X";
  } catch {
    return false;
  }
}

/** @returns whether any process has the pid: one system call, for a check that runs often */
export function mayBeAlive({ pid }: ProcessId): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return errnoOf(error) === "EPERM";
  }
}

export function signalProcess(id: ProcessId, signal: "SIGTERM" | "SIGKILL"): void {
  if (isAlive(id)) signalPid(id.pid, signal);
}

/** The group that the process leads, with all that it has started. */
export function killGroup(leader: ProcessId): void {
  if (isAlive(leader)) signalPid(-leader.pid, "SIGKILL");
}

function signalPid(pid: number, signal: "SIGTERM" | "SIGKILL"): void {
  try {
    process.kill(pid, signal);
  } catch {
    ignore("it ended just now");
  }
}
