import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { basename } from "node:path";

/** Debian packages of the tests' real parts, each with a file that shows that it is there. */
const PACKAGES: readonly (readonly [name: string, proof: string])[] = [
  ["containerd", "/usr/bin/containerd"],
  ["runc", "/usr/sbin/runc"],
  ["containernetworking-plugins", "/usr/lib/cni/bridge"],
  ["docker-registry", "/usr/bin/docker-registry"],
  ["busybox-static", "/bin/busybox"],
  ["clang", "/usr/bin/clang"],
  ["lld", "/usr/bin/wasm-ld"],
  ["wasi-libc", "/usr/lib/wasm32-wasi/libc.a"],
  ["libclang-rt-dev-wasm32", "/usr/share/doc/libclang-rt-dev-wasm32"],
  ["iproute2", "/usr/sbin/ip"],
  ["iptables", "/usr/sbin/iptables"],
  ["strace", "/usr/bin/strace"],
  ["dbus", "/usr/bin/dbus-daemon"],
  ["systemd", "/usr/bin/systemd-inhibit"],
  ["python3-dbus", "/usr/lib/python3/dist-packages/dbus/__init__.py"],
  ["python3-gi", "/usr/lib/python3/dist-packages/gi/__init__.py"],
  ["mmdebstrap", "/usr/bin/mmdebstrap"],
  ["patchelf", "/usr/bin/patchelf"],
  ["qemu-system-x86", "/usr/bin/qemu-system-x86_64"],
  ["qemu-utils", "/usr/bin/qemu-img"],
  ["ovmf", "/usr/share/OVMF/OVMF_CODE_4M.fd"],
  ["mtools", "/usr/bin/mcopy"],
  ["fdisk", "/usr/sbin/sfdisk"],
  ["dosfstools", "/usr/sbin/mkfs.fat"],
  ["cryptsetup-bin", "/usr/sbin/veritysetup"],
  ["qemu-user", "/usr/bin/qemu-aarch64"],
  ["libc6-arm64-cross", "/usr/aarch64-linux-gnu/lib/libc.so.6"],
  ["libstdc++6-arm64-cross", "/usr/aarch64-linux-gnu/lib/libstdc++.so.6"],
  ["e2fsprogs", "/usr/sbin/mke2fs"],
  ["swtpm", "/usr/bin/swtpm"],
  ["zsh", "/usr/bin/zsh"],
  ["fish", "/usr/bin/fish"],
  ["groff-base", "/usr/bin/groff"],
  ["mandoc", "/usr/bin/mandoc"],
  ["tpm2-tools", "/usr/bin/tpm2_unseal"],
  ["lintian", "/usr/bin/lintian"],
  ["skopeo", "/usr/bin/skopeo"],
  ["openssh-server", "/usr/sbin/sshd"],
  ["rauc", "/usr/bin/rauc"],
  ["openssl", "/usr/bin/openssl"],
  ["grub-common", "/usr/bin/grub-editenv"],
  ["prometheus", "/usr/bin/prometheus"],
  ["squashfs-tools", "/usr/bin/mksquashfs"],
  ["chromium", "/usr/bin/chromium"],
];
/** For emulated boards of arm64 alone. */
const ARM64_PACKAGES: typeof PACKAGES = [["qemu-system-arm", "/usr/bin/qemu-system-aarch64"]];

/** The programs among them. */
export const TEST_SYSTEM_PROGRAMS: readonly string[] = PACKAGES.map(([, proof]) => proof)
  .filter((proof) => /\/s?bin\//.test(proof))
  .map((proof) => basename(proof));

function apt(...args: string[]): void {
  const result = spawnSync("apt-get", ["-qq", "-y", ...args], {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
  });
  if (result.status !== 0)
    throw new Error(`cannot install the tests' system packages: apt-get ${args.join(" ")} failed`);
}

/**
 * Installs what is missing where this process may (root on Debian); elsewhere the tests that need it skip and say so.
 */
export function installTestSystem({ arm64 = process.env.PICOLET_ARM64 === "1" } = {}): void {
  const missing = [...PACKAGES, ...(arm64 ? ARM64_PACKAGES : [])]
    .filter(([, proof]) => !existsSync(proof))
    .map(([name]) => name);
  if (missing.length === 0) return;
  if (process.getuid?.() !== 0 || !existsSync("/usr/bin/apt-get")) {
    console.error(`not root on Debian: the tests that need ${missing.join(", ")} are skipped`);
    return;
  }
  console.error(`installing system packages for the tests: ${missing.join(", ")}`);
  apt("update");
  apt("install", "--no-install-recommends", ...missing);
}

if (import.meta.main) installTestSystem();
