/**
 * The seccomp filter of runners, which `seccomp-loader.ts` loads: classic BPF, `struct sock_filter` of linux/filter.h.
 * It forbids what Node never does and what would help an attacker who has taken over a runner: new processes, signals
 * to others (all components may be one user), other processes' memory, mounts, namespaces, keys, the kernel's younger
 * and wider interfaces. User, namespaces and cgroup bound all else: a list of what Node needs would change with each of
 * its versions. Pure.
 */

interface Machine {
  /** linux/audit.h */
  readonly audit: number;
  readonly clone: number;
  readonly forbidden: readonly number[];
  /** From here on the numbers are another ABI's. */
  readonly end?: number;
}

/**
 * Numbers of a younger kernel are the same everywhere: pidfd, io_uring, the mount API, quotactl_fd, process_madvise.
 */
const YOUNGER = [424, 425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 438, 440, 442, 443];
const CLONE3 = 435;

/** asm/unistd_64.h and asm-generic/unistd.h. Each line is the same calls on both. */
const MACHINES: Readonly<Record<string, Machine>> = {
  x64: {
    audit: 0xc000003e,
    clone: 56,
    end: 0x40000000,
    forbidden: [
      // fork, vfork, execveat, kill
      ...[57, 58, 322, 62],
      // ptrace, process_vm_readv, process_vm_writev, kcmp, move_pages, migrate_pages
      ...[101, 310, 311, 312, 279, 256],
      // mount, umount2, pivot_root, chroot, unshare, setns, name_to_handle_at, open_by_handle_at
      ...[165, 166, 155, 161, 272, 308, 303, 304],
      // bpf, perf_event_open, userfaultfd, add_key, request_key, keyctl
      ...[321, 298, 323, 248, 249, 250],
      // init_module, finit_module, delete_module, kexec_load, kexec_file_load, reboot
      ...[175, 313, 176, 246, 320, 169],
      // swapon, swapoff, acct, quotactl, syslog, vhangup, personality
      ...[167, 168, 163, 179, 103, 153, 135],
      // settimeofday, clock_settime, adjtimex, clock_adjtime, sethostname, setdomainname
      ...[164, 227, 159, 305, 170, 171],
      // iopl, ioperm, modify_ldt, uselib
      ...[172, 173, 154, 134],
      ...YOUNGER,
    ],
  },
  arm64: {
    audit: 0xc00000b7,
    clone: 220,
    forbidden: [
      ...[281, 129],
      ...[117, 270, 271, 272, 239, 238],
      ...[40, 39, 41, 51, 97, 268, 264, 265],
      ...[280, 241, 282, 217, 218, 219],
      ...[105, 273, 106, 104, 294, 142],
      ...[224, 225, 89, 60, 116, 58, 92],
      ...[170, 112, 171, 266, 161, 162],
      ...YOUNGER,
    ],
  },
};

// linux/bpf_common.h, linux/seccomp.h
const LOAD_WORD = 0x20;
const JUMP_EQUAL = 0x15;
const JUMP_GREATER_OR_EQUAL = 0x35;
const JUMP_SET = 0x45;
const RETURN = 0x06;
const ALLOW = 0x7fff0000;
const ERROR = 0x00050000;
const EPERM = 1;
const ENOSYS = 38;
/** Offsets in `struct seccomp_data`. */
const NUMBER_OFFSET = 0;
const ARCHITECTURE_OFFSET = 4;
const FIRST_ARGUMENT_OFFSET = 16;
const CLONE_THREAD = 0x00010000;
const INSTRUCTION_BYTES = 8;

type Target = "allow" | "forbid" | "unknown" | "next";
type Instruction = readonly [code: number, value: number, ifSo?: Target, ifNot?: Target];

/** @param machine as `process.arch`. @returns undefined for one whose system calls are not known here */
export function seccompFilter(machine: string): Uint8Array | undefined {
  const known = MACHINES[machine];
  if (known === undefined) return undefined;
  const { audit, clone, end, forbidden } = known;
  const body: Instruction[] = [
    [LOAD_WORD, ARCHITECTURE_OFFSET],
    [JUMP_EQUAL, audit, "next", "forbid"],
    [LOAD_WORD, NUMBER_OFFSET],
    ...(end === undefined ? [] : [[JUMP_GREATER_OR_EQUAL, end, "forbid", "next"] as const]),
    // glibc takes clone then, whose flags can be seen.
    [JUMP_EQUAL, CLONE3, "unknown", "next"],
    ...forbidden.map((number): Instruction => [JUMP_EQUAL, number, "forbid", "next"]),
    [JUMP_EQUAL, clone, "next", "allow"],
    [LOAD_WORD, FIRST_ARGUMENT_OFFSET],
    [JUMP_SET, CLONE_THREAD, "allow", "forbid"],
  ];
  const ends = { allow: body.length, forbid: body.length + 1, unknown: body.length + 2 };
  const program: Instruction[] = [...body, [RETURN, ALLOW], [RETURN, ERROR | EPERM], [RETURN, ERROR | ENOSYS]];
  const bytes = new DataView(new ArrayBuffer(program.length * INSTRUCTION_BYTES));
  for (const [index, [code, value, ifSo = "next", ifNot = "next"]] of program.entries()) {
    const distance = (target: Target): number => (target === "next" ? 0 : ends[target] - index - 1);
    const at = index * INSTRUCTION_BYTES;
    bytes.setUint16(at, code, true);
    bytes.setUint8(at + 2, distance(ifSo));
    bytes.setUint8(at + 3, distance(ifNot));
    bytes.setUint32(at + 4, value, true);
  }
  return new Uint8Array(bytes.buffer);
}
