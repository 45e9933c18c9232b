/**
 * A program of a few hundred bytes that loads the runners' seccomp filter and becomes its arguments: `LOADER PROGRAM
 * ARGUMENT…`. setpriv(1) can load a filter since util-linux 2.40, which Debian 12, Raspberry Pi OS and Ubuntu 24.04 do
 * not have yet; koffi's native part could from within a runner, for 1.8 MiB of each. This costs nothing: it is replaced
 * by execve(2).
 *
 * It is a static ELF file made here: header, machine code, `struct sock_fprog`, the filter. It calls prctl(2) and
 * execve(2), and ends with 126 and a message when the kernel refuses either. no_new_privs has to be set before (setpriv
 * does). Pure; the tests compare the machine code with what an assembler makes of the source beside it.
 */
import { seccompFilter } from "./seccomp-filter.ts";

/** elf.h: e_machine */
const ELF_MACHINES: Readonly<Record<string, number>> = { x64: 62, arm64: 183 };
const HEADER_BYTES = 64;
const PROGRAM_HEADER_BYTES = 56;
const CODE_OFFSET = HEADER_BYTES + PROGRAM_HEADER_BYTES;
/** Any address of user space; a multiple of the largest page size, 64 KiB. */
const LOAD_ADDRESS = 0x400000;
const PAGE_BYTES = 0x10000;
const EXECUTABLE = 2;
const READ_AND_EXECUTE = 5;
const INSTRUCTION_BYTES = 8;
/** The size of `struct sock_fprog`: a count in two bytes, and a pointer in the last eight. */
const PROGRAM_BYTES = 16;
export const LOADER_MESSAGE = "the kernel refuses the seccomp filter of components\n";

/** The machine code up to `struct sock_fprog`, which follows it aligned to eight bytes, as the message follows that. */
const CODE: Readonly<Record<string, string>> = {
  x64: `
    bf 16 00 00 00         ; mov edi, 22               PR_SET_SECCOMP
    be 02 00 00 00         ; mov esi, 2                SECCOMP_MODE_FILTER
    48 8d 15 47 00 00 00   ; lea rdx, [rip + program]
    b8 9d 00 00 00         ; mov eax, 157              prctl
    0f 05                  ; syscall
    85 c0                  ; test eax, eax
    75 18                  ; jne refused
    48 8b 0c 24            ; mov rcx, [rsp]            argc
    48 8d 74 24 10         ; lea rsi, [rsp + 16]       argv + 1
    48 8d 54 cc 10         ; lea rdx, [rsp + rcx*8 + 16]  envp
    48 8b 3e               ; mov rdi, [rsi]
    b8 3b 00 00 00         ; mov eax, 59               execve
    0f 05                  ; syscall
    bf 02 00 00 00         ; refused: mov edi, 2
    48 8d 35 28 00 00 00   ; lea rsi, [rip + message]
    ba 34 00 00 00         ; mov edx, 52
    b8 01 00 00 00         ; mov eax, 1                write
    0f 05                  ; syscall
    bf 7e 00 00 00         ; mov edi, 126
    b8 3c 00 00 00         ; mov eax, 60               exit
    0f 05                  ; syscall`,
  arm64: `
    c0 02 80 d2            ; mov x0, #22               PR_SET_SECCOMP
    41 00 80 d2            ; mov x1, #2                SECCOMP_MODE_FILTER
    42 02 00 10            ; adr x2, program
    e8 14 80 d2            ; mov x8, #167              prctl
    01 00 00 d4            ; svc #0
    e0 00 00 b5            ; cbnz x0, refused
    e3 03 40 f9            ; ldr x3, [sp]              argc
    e1 43 00 91            ; add x1, sp, #16           argv + 1
    22 0c 03 8b            ; add x2, x1, x3, lsl #3    envp
    20 00 40 f9            ; ldr x0, [x1]
    a8 1b 80 d2            ; mov x8, #221              execve
    01 00 00 d4            ; svc #0
    40 00 80 d2            ; refused: mov x0, #2
    61 01 00 10            ; adr x1, message
    82 06 80 d2            ; mov x2, #52
    08 08 80 d2            ; mov x8, #64               write
    01 00 00 d4            ; svc #0
    c0 0f 80 d2            ; mov x0, #126
    a8 0b 80 d2            ; mov x8, #93               exit
    01 00 00 d4            ; svc #0`,
};

/**
 * The source that the machine code was assembled from, for the test that assembles it again. @param machine as
 * `process.arch`
 */
export const loaderSource = (machine: string): string =>
  (CODE[machine] ?? "").replaceAll(/^.*; ([^;]*?)( {2}.*)?$/gm, "$1");

/** @param machine as `process.arch`. @returns undefined for one that is not known here */
export function loaderCode(machine: string): Uint8Array | undefined {
  const hex = CODE[machine]?.replaceAll(/;.*$/gm, "").replaceAll(/\s/g, "");
  return hex === undefined ? undefined : Buffer.from(hex, "hex");
}

/**
 * The whole file, to be made executable. @param machine as `process.arch`. @returns undefined for one that is not known
 * here
 */
export function seccompLoader(machine: string): Uint8Array | undefined {
  const [code, filter, elfMachine] = [loaderCode(machine), seccompFilter(machine), ELF_MACHINES[machine]];
  if (code === undefined || filter === undefined || elfMachine === undefined) return undefined;
  const programOffset = CODE_OFFSET + aligned(code.length);
  const messageOffset = programOffset + PROGRAM_BYTES;
  const filterOffset = aligned(messageOffset + LOADER_MESSAGE.length);
  const file = Buffer.alloc(filterOffset + filter.length);
  writeHeaders(file, elfMachine);
  file.set(code, CODE_OFFSET);
  file.writeUInt16LE(filter.length / INSTRUCTION_BYTES, programOffset);
  file.writeBigUInt64LE(BigInt(LOAD_ADDRESS + filterOffset), programOffset + PROGRAM_BYTES / 2);
  file.write(LOADER_MESSAGE, messageOffset, "latin1");
  file.set(filter, filterOffset);
  return file;
}

const aligned = (offset: number): number => Math.ceil(offset / 8) * 8;

/** elf(5): Elf64_Ehdr, and one Elf64_Phdr that maps the whole file. */
function writeHeaders(file: Buffer, machine: number): void {
  file.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  file.writeUInt16LE(EXECUTABLE, 16);
  file.writeUInt16LE(machine, 18);
  file.writeUInt32LE(1, 20);
  file.writeBigUInt64LE(BigInt(LOAD_ADDRESS + CODE_OFFSET), 24);
  file.writeBigUInt64LE(BigInt(HEADER_BYTES), 32);
  file.writeUInt16LE(HEADER_BYTES, 52);
  file.writeUInt16LE(PROGRAM_HEADER_BYTES, 54);
  file.writeUInt16LE(1, 56);
  file.writeUInt32LE(1, HEADER_BYTES);
  file.writeUInt32LE(READ_AND_EXECUTE, HEADER_BYTES + 4);
  for (const offset of [16, 24]) file.writeBigUInt64LE(BigInt(LOAD_ADDRESS), HEADER_BYTES + offset);
  for (const offset of [32, 40]) file.writeBigUInt64LE(BigInt(file.length), HEADER_BYTES + offset);
  file.writeBigUInt64LE(BigInt(PAGE_BYTES), HEADER_BYTES + 48);
}
