import { readdirSync, readFileSync, readlinkSync } from "node:fs";

export interface RunningProcess {
  readonly pid: number;
  readonly parent: number;
  /** Its command line; none for a thread of the kernel and for a process that has ended and is not yet waited for. */
  readonly words: readonly string[];
}

/** All processes of the machine, by /proc. Those that end while it is read may be missing. */
export function runningProcesses(): RunningProcess[] {
  const found: RunningProcess[] = [];
  for (const entry of readdirSync("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const stat = readFileSync(`/proc/${entry}/stat`, "utf8");
      const parent = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
      const words = readFileSync(`/proc/${entry}/cmdline`, "utf8").split("\0").filter(Boolean);
      found.push({ pid: Number(entry), parent, words });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT" && code !== "ESRCH") throw error;
    }
  }
  return found;
}

/** Kills those that have not ended by themselves. */
export function killAll(pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  }
}

/** The targets of a process's open files. A file that it closes meanwhile is left out. */
export function openFilesOf(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw error;
    }
  });
}
