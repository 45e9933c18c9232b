/**
 * Parses what the kernel writes about processes that its OOM killer has killed, in the forms of Linux 4.9 to 6.18
 * (mm/oom_kill.c, mm/memcontrol.c; Documentation/ABI/testing/dev-kmsg). A process chooses its own name, so a name may
 * look like anything.
 */

export interface OomKill {
  readonly pid: number;
  /** The name of the process, at most 15 bytes. */
  readonly process: string;
  /** The whole machine was out of memory, not one cgroup. */
  readonly isSystem: boolean;
  /** The victim's cgroup, as the kernel names it; undefined where the record has none. */
  readonly cgroup: string | undefined;
}

/** Facility 0 is the kernel's own; no process can write with it. */
const KERNEL_RECORD = /^(\d+),\d+,\d+,[^;]*;([^\n]*)/;
const VERDICT =
  /^oom-kill:constraint=[A-Z_]+,nodemask=.*?,(?:(global_oom)|oom_memcg=(.*?)),task_memcg=(.*?),task=(.{0,60}),pid=(\d{1,10}),uid=\d+$/;
/** Before 5.0, with the line after it that says whom it hit in the end. */
const OLD_CGROUP = /^Task in (.*) killed as a result of limit of (.*)$/;
const CANDIDATE = /^(Memory cgroup o|O)ut of memory(?: \([a-z_]+\))?: Kill process \d/;
const KILLED =
  /^(?:(Memory cgroup o|O)ut of memory(?: \([a-z_]+\))?: )?Killed process (\d{1,10}) \((.{0,60}?)\),? (?:UID:\d+,? )?total-vm:/;
/**
 * The record of a cgroup with `memory.oom.group`, after the first of its processes. Unlike the verdict it is never
 * omitted.
 */
const GROUP = /^Tasks in (.*) are going to be killed due to memory\.oom\.group set$/;

/** @param record one read of /dev/kmsg. @returns the cgroup that it says is killed as a whole */
export function killedGroupIn(record: string): string | undefined {
  const [, prefix, message = ""] = KERNEL_RECORD.exec(record) ?? [];
  return Number(prefix) < 8 ? GROUP.exec(message)?.[1] : undefined;
}

interface Pending {
  readonly isSystem: boolean;
  readonly cgroup: string | undefined;
}

/** Reads record after record. What it remembers of the last ones is bounded. */
export class OomKillReader {
  #pending: Pending | undefined;
  /** The last process that was returned. The next line repeats it, and another one if its whole cgroup is killed. */
  #lastPid: number | undefined;

  /** @param record one read of /dev/kmsg. Never throws. @returns undefined: no kill, or one that was returned before */
  read(record: string): OomKill | undefined {
    const [, prefix, escaped] = KERNEL_RECORD.exec(record) ?? [];
    if (prefix === undefined || escaped === undefined || Number(prefix) >= 8) return undefined;
    return this.#verdict(escaped) ?? this.#old(escaped) ?? this.#killed(escaped);
  }

  #verdict(message: string): OomKill | undefined {
    const [, global, memcg, cgroup, process = "", digits] = VERDICT.exec(message) ?? [];
    if (digits === undefined) return undefined;
    const pid = Number(digits);
    this.#lastPid = pid;
    return { pid, process: unescaped(process), isSystem: global !== undefined || memcg === "/", cgroup };
  }

  #old(message: string): undefined {
    const [, cgroup, limit] = OLD_CGROUP.exec(message) ?? [];
    if (cgroup !== undefined) this.#pending = { isSystem: limit === "/", cgroup };
    else if (CANDIDATE.test(message))
      this.#pending ??= { isSystem: !message.startsWith("Memory cgroup"), cgroup: undefined };
  }

  #killed(message: string): OomKill | undefined {
    const [, prefix, digits, process = ""] = KILLED.exec(message) ?? [];
    if (digits === undefined) return undefined;
    const pid = Number(digits);
    const pending = this.#pending;
    this.#pending = undefined;
    if (this.#lastPid === pid && pending === undefined) return undefined;
    if (prefix === undefined && pending === undefined) return undefined;
    this.#lastPid = pid;
    const isSystem = pending?.isSystem ?? prefix === "O";
    return { pid, process: unescaped(process), isSystem, cgroup: pending?.cgroup };
  }
}

/** The kernel writes `\x0a` for what cannot be printed; that is left out here. */
const unescaped = (text: string): string => text.replace(/\\x([0-9a-f]{2})/g, (_, hex: string) => printable(hex));

function printable(hex: string): string {
  const code = Number.parseInt(hex, 16);
  return code >= 0x20 && code < 0x7f ? String.fromCharCode(code) : "?";
}
