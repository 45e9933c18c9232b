/** The architectures that test guests are emulated for, and all in which they differ. */
import type { Platform } from "@picolet/scripts/build/platform-parts.ts";

export type GuestArchitectureName = "amd64" | "arm64";

export interface GuestArchitecture {
  readonly name: GuestArchitectureName;
  /** The platform of the distributions that the guest has. */
  readonly platform: Platform;
  /** The distributions that it has. */
  readonly programs: readonly ("board" | "hub")[];
  readonly emulator: string;
  readonly machine: string;
  readonly cpu: string;
  readonly console: string;
  /** Debian's release; undefined: this machine's. */
  readonly release: string | undefined;
  /** Kernel, and what else is of this architecture alone. */
  readonly packages: readonly string[];
  /** Modules of the kernel, in the order to load them in. */
  readonly bootModules: readonly string[];
  /** For clang. `tree` is the guest's root. */
  readonly compilerFlags: (tree: string) => readonly string[];
  /** The command that runs a program of the guest's tree on this machine; `args` gets where the tree is for it. */
  readonly run: (tree: string, path: string, args: (root: string) => readonly string[]) => readonly string[];
  /** Files of the packages that must be installed here for it. */
  readonly needed: readonly string[];
}

const VIRTIO_MODULES = ["virtio_pci", "virtio_blk", "virtio_console"];

export const GUEST_ARCHITECTURES: Readonly<Record<GuestArchitectureName, GuestArchitecture>> = {
  amd64: {
    name: "amd64",
    platform: "linux-x64",
    programs: ["board"],
    emulator: "qemu-system-x86_64",
    machine: "pc",
    // 5-level page tables make each access dearer. With fast string instructions (ERMS) kernel and C library copy
    // and clear byte by byte, which the emulator does one at a time.
    cpu: "max,la57=off,erms=off",
    console: "ttyS0",
    release: undefined,
    packages: ["linux-image-cloud-amd64"],
    bootModules: VIRTIO_MODULES,
    compilerFlags: () => [],
    run: (tree, path, args) => ["chroot", tree, path, ...args("/")],
    needed: ["/usr/bin/qemu-system-x86_64"],
  },
  arm64: {
    name: "arm64",
    platform: "linux-arm64",
    programs: ["board", "hub"],
    emulator: "qemu-system-aarch64",
    machine: "virt",
    // ARMv8.0 as a Raspberry Pi 4 has it: an instruction of a later version is an error here too.
    cpu: "cortex-a72",
    console: "ttyAMA0",
    // The release and the kernel of the images for boards.
    release: "trixie",
    // kmod finds liblzma at run time, for its modules are compressed.
    packages: ["linux-image-arm64", "liblzma5", "libc6-dev", "libgcc-14-dev"],
    // The generic kernel has the file system, and the checksum that it asks for by name, as modules.
    bootModules: [...VIRTIO_MODULES, "crc32c_generic", "ext4"],
    compilerFlags: (tree) => ["--target=aarch64-linux-gnu", `--sysroot=${tree}`, "-fuse-ld=lld"],
    run: (tree, path, args) => ["qemu-aarch64", "-L", tree, "-0", path, `${tree}${path}`, ...args(tree)],
    needed: ["/usr/bin/qemu-system-aarch64", "/usr/bin/qemu-aarch64", "/usr/bin/ld.lld"],
  },
};
