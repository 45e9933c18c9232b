/**
 * How a component's process is isolated, read from the kernel while it runs: what was asked for may not be what it has.
 */

import { readFileSync, readlinkSync } from "node:fs";
import { describeError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

export interface KernelIsolation {
  /** Measures that the kernel enforces: "no capabilities". */
  readonly measures: readonly string[];
  /** Measures that the kernel could enforce, and does not. */
  readonly missing: readonly string[];
}

/** linux/seccomp.h */
const SECCOMP_MODE_FILTER = "2";
/** Inheritable ones are left out: without any of these, and with no_new_privs, no process can regain them. */
const SETS = ["CapPrm", "CapEff", "CapBnd", "CapAmb"];
const ROOT = "0";

/** @param pid of a process that runs a component. @returns undefined when it has just ended. Loaded on demand */
export function isolationOf(pid: number): KernelIsolation | { readonly problem: string } | undefined {
  let status: ReadonlyMap<string, string>;
  const measures: string[] = [];
  const missing: string[] = [];
  const judge = (holds: boolean, measure: string, otherwise: string): void => {
    if (holds) measures.push(measure);
    else missing.push(otherwise);
  };
  try {
    status = fieldsOf(readFileSync(`/proc/${pid}/status`, "utf8"));
    const isOwn = (kind: string): boolean =>
      readlinkSync(`/proc/${pid}/ns/${kind}`) !== readlinkSync(`/proc/self/ns/${kind}`);
    judge(isOwn("mnt"), "own file system tree", "own file system tree");
    judge(isOwn("ipc"), "own IPC", "own IPC");
    // A grant of network is one of the node's: within its policy, this is as it should be.
    measures.push(isOwn("net") ? "no network" : "network of the node, within its grants");
  } catch (error) {
    const code = errnoOf(error);
    return code === "ENOENT" || code === "ESRCH" ? undefined : { problem: describeError(error) };
  }
  judge(status.get("Seccomp") === SECCOMP_MODE_FILTER, "seccomp filter", "seccomp filter");
  judge(status.get("NoNewPrivs") === "1", "no new privileges", "no_new_privs");
  const sets = SETS.filter((set) => /[^0]/.test(status.get(set) ?? "?"));
  judge(sets.length === 0, "no capabilities", `capabilities dropped (${sets.join(", ")} are not empty)`);
  const [uid = ""] = (status.get("Uid") ?? "").split(/\s+/);
  measures.push(uid === ROOT ? "user 0 (root, as its pod says)" : `user ${uid}`);
  return { measures, missing };
}

function fieldsOf(text: string): ReadonlyMap<string, string> {
  return new Map(
    text.split("\n").map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at), line.slice(at + 1).trim()] as const;
    }),
  );
}
