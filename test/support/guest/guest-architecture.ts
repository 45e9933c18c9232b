/** The architectures that test guests are emulated for, and all in which they differ. */
import type { Platform } from "@picolet/scripts/build/platform-parts.ts";
import { RUNTIME_RELEASES, type RuntimeReleaseName } from "../containerd/runtime-release.ts";

export type GuestArchitectureName = "amd64" | "arm64";

/** Parts of a guest that may differ from the usual ones of its architecture. */
export interface GuestVariant {
  /** Default arm64: the release's own containerd and runc; amd64: those of this machine's release. */
  readonly runtime?: RuntimeReleaseName | undefined;
  /** A kernel with memory pages of 16 KiB, as a Raspberry Pi 5 has: arm64 only. Default 4 KiB. */
  readonly pages?: "16k" | undefined;
}

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
  /** Debian's suite whose containerd, runc and crun the guest has besides; undefined: those of its release alone. */
  readonly runtimeSuite?: string;
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

/** kmod finds it at run time, for the modules of Debian 13 are compressed. */
const MODULE_PACKAGE = "liblzma5";
const VIRTIO_MODULES = ["virtio_pci", "virtio_blk", "virtio_console"];
/** The generic kernel has the file system, and the checksum that it asks for by name, as modules. */
const BOOT_MODULES = [...VIRTIO_MODULES, "crc32c_generic", "ext4"];
/** The release of the images for boards, and of guests with another runtime than their own. */
const BOARD_RELEASE = "trixie";

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
    release: BOARD_RELEASE,
    packages: ["linux-image-arm64", MODULE_PACKAGE, "libc6-dev", "libgcc-14-dev"],
    bootModules: BOOT_MODULES,
    compilerFlags: (tree) => ["--target=aarch64-linux-gnu", `--sysroot=${tree}`, "-fuse-ld=lld"],
    run: (tree, path, args) => ["qemu-aarch64", "-L", tree, "-0", path, `${tree}${path}`, ...args(tree)],
    needed: ["/usr/bin/qemu-system-aarch64", "/usr/bin/qemu-aarch64", "/usr/bin/ld.lld"],
  },
};

/** Raspberry Pi 5's processor: the one of a Raspberry Pi 4 has no pages of 16 KiB. */
const LARGE_PAGES = { kernel: "linux-image-arm64-16k", cpu: "cortex-a76" };

/** @throws when the architecture has no such pages */
export function guestArchitecture(name: GuestArchitectureName, { runtime, pages }: GuestVariant): GuestArchitecture {
  let architecture: GuestArchitecture = GUEST_ARCHITECTURES[name];
  if (pages !== undefined) {
    if (name !== "arm64") throw new Error(`there is no kernel of ${name} with pages of ${pages}: only of arm64`);
    const packages = architecture.packages.map((each) => (each === "linux-image-arm64" ? LARGE_PAGES.kernel : each));
    architecture = { ...architecture, packages, cpu: LARGE_PAGES.cpu };
  }
  if (runtime === undefined || runtime === "installed") return architecture;
  const runtimeSuite = RUNTIME_RELEASES[runtime].suite;
  const packages = [...new Set([...architecture.packages, MODULE_PACKAGE])];
  return { ...architecture, release: BOARD_RELEASE, runtimeSuite, packages, bootModules: BOOT_MODULES };
}
