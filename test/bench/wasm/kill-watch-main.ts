/**
 * Kills a process and sees when it has exited: one that only waits for that sees it to a tenth of a millisecond, for
 * `wasm-restarts.ts`.
 */
import { readFileSync } from "node:fs";

export interface KillTimes {
  /** Milliseconds since the epoch, as is `exitedMs`. */
  readonly killedMs: number;
  /** The kernel has taken its memory back, and notifies its parent. */
  readonly exitedMs: number;
}

const LOOK_INTERVAL_MS = 0.1;
const cell = new Int32Array(new SharedArrayBuffer(4));

const nowMs = (): number => performance.timeOrigin + performance.now();

function hasExited(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // Behind the command, which may hold anything (proc_pid_stat(5)): the state of its first thread, and how many there
    // are.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (fields[0] === "Z" || fields[0] === "X") && Number(fields[17]) <= 1;
  } catch {
    return true;
  }
}

process.on("message", (pid: number) => {
  const killedMs = nowMs();
  process.kill(pid, "SIGKILL");
  while (!hasExited(pid)) Atomics.wait(cell, 0, 0, LOOK_INTERVAL_MS);
  process.send?.({ killedMs, exitedMs: nowMs() } satisfies KillTimes);
});
