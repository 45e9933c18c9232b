/** The boards that an image can be made for, and what is special to each. */
import type { Architecture } from "../packages/debian-package.ts";
import type { PackagePlatform } from "../packages/packages.ts";

export const BOARDS = ["raspberrypi", "generic-arm64", "generic-amd64"] as const;
export type BoardName = (typeof BOARDS)[number];
export const FLAVOURS = ["containers", "components"] as const;
export type Flavour = (typeof FLAVOURS)[number];

export interface Board {
  readonly name: BoardName;
  readonly architecture: Architecture;
  readonly platform: PackagePlatform;
  /** Debian packages beside those of every board. */
  readonly packages: readonly string[];
  /** Debian source packages that come from backports: a newer kernel. */
  readonly backports?: readonly string[];
  /** Kernel modules that `pruneSystem` keeps, as paths below the kernel's folder of modules; globs. */
  readonly modules?: readonly string[];
  /** Where the kernel's messages and a login go; the last is /dev/console. */
  readonly consoles: readonly string[];
  /** Further words of the kernel's command line. */
  readonly commandLine?: readonly string[];
  readonly loader: GrubLoader | RaspberryPiLoader;
  /** Size of the partition that the owner edits picolet.yaml on. */
  readonly fatMiB: number;
}

/** GRUB as an EFI program. */
export interface GrubLoader {
  readonly kind: "grub";
  readonly format: "x86_64-efi" | "arm64-efi";
  /** The name under which firmware starts it from a card. */
  readonly file: string;
}

/** The boards' own firmware, with `autoboot.txt` and tryboot. */
export interface RaspberryPiLoader {
  readonly kind: "raspberrypi";
  /** Size of each slot's FAT partition: kernel, RAM disk and firmware take 45 MiB today. */
  readonly bootMiB: number;
}

const GENERIC = { fatMiB: 64 } as const;
const TABLE: Readonly<Record<BoardName, Board>> = {
  raspberrypi: {
    ...{ ...GENERIC, name: "raspberrypi", architecture: "arm64", platform: "linux-arm64" },
    packages: ["linux-image-arm64", "raspi-firmware", "firmware-brcm80211"],
    // Linux 6.12 of Debian 13 has no driver for the Pi 5's Ethernet and USB (RP1).
    backports: ["linux", "linux-base", "linux-signed-arm64"],
    // Ethernet of a Pi 4; the screen's driver needs the sound of HDMI.
    modules: [
      "drivers/net/ethernet/broadcom/{genet,unimac}",
      "sound/core",
      "sound/soc/snd-soc-core*",
      "sound/soc/codecs/snd-soc-hdmi-codec*",
    ],
    // The mini UART on the header of 3, Zero 2 W and 4; the debug connector of 5.
    consoles: ["tty1", "ttyAMA10,115200", "ttyS1,115200"],
    loader: { kind: "raspberrypi", bootMiB: 128 },
  },
  "generic-amd64": {
    ...{ ...GENERIC, name: "generic-amd64", architecture: "amd64", platform: "linux-x64" },
    packages: ["linux-image-amd64", "grub-efi-amd64-bin"],
    consoles: ["tty0", "ttyS0,115200"],
    // Memory of each processor is in chunks of 1 MiB otherwise; the kernel takes 2 MiB to account for one.
    commandLine: ["percpu_alloc=page"],
    loader: { kind: "grub", format: "x86_64-efi", file: "BOOTX64.EFI" },
  },
  "generic-arm64": {
    ...{ ...GENERIC, name: "generic-arm64", architecture: "arm64", platform: "linux-arm64" },
    packages: ["linux-image-arm64", "grub-efi-arm64-bin"],
    consoles: ["tty0", "ttyAMA0,115200"],
    loader: { kind: "grub", format: "arm64-efi", file: "BOOTAA64.EFI" },
  },
};

export const boardOf = (name: BoardName): Board => TABLE[name];

/** Debian release of the system in the image and of the tools that make it. */
export const RELEASE = "trixie";
export const COMPONENTS = ["main", "non-free-firmware"];

const BASE = [
  ...["systemd-sysv", "udev", "dbus", "kmod", "util-linux", "mount", "login", "passwd", "base-files", "base-passwd"],
  ...["bash", "dash", "coreutils", "sed", "grep", "findutils", "gzip", "hostname", "procps", "busybox-static"],
  ...["systemd-timesyncd", "libnss-systemd", "iproute2", "wpasupplicant", "wireless-regdb"],
  ...["rauc", "rauc-service", "e2fsprogs", "dosfstools", "dmsetup", "fdisk", "openssh-server", "ca-certificates"],
  // For the key of stored Secrets, where a board has a TPM.
  "tpm2-tools",
  // Libraries that Node and its native parts are linked with.
  ...["libstdc++6", "libatomic1", "tzdata"],
];
const CONTAINERS = ["containerd", "runc", "containernetworking-plugins", "iptables", "nftables"];

export const packagesOf = (board: Board, flavour: Flavour): readonly string[] => [
  ...BASE,
  ...board.packages,
  ...(flavour === "containers" ? CONTAINERS : []),
];

/** RAUC's: a bundle of another kind of image is refused. */
export const compatibleOf = (board: Board, flavour: Flavour): string => `picolet-${board.name}-${flavour}`;
