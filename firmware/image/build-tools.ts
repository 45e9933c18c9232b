/**
 * The programs that make file systems, boot loaders and bundles: Debian's of the image's own release, run in their own
 * tree, so that an image does not depend on the machine that it is made on. They need root and chroot(2), no mounts.
 */
import { execFileSync } from "node:child_process";
import { globSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { debianTree, type InstalledPackage, type PackageLock } from "./debian-packages.ts";

const PACKAGES = [
  ...[
    "rauc",
    "squashfs-tools",
    "e2fsprogs",
    "mtools",
    "dosfstools",
    "cryptsetup-bin",
    "fdisk",
    "zstd",
    "kmod",
    "cpio",
    "xz-utils",
  ],
  ...["grub-common", "systemd", "udev", "openssl", "dash", "coreutils", "findutils"],
];

/** The architecture of the programs: they run here. */
export const TOOLS_ARCHITECTURE = process.arch === "arm64" ? "arm64" : "amd64";

const TRIPLET = { amd64: "x86_64-linux-gnu", arm64: "aarch64-linux-gnu" } as const;

/** A folder, and programs that run in it. */
export type Tools = Pick<BuildTools, "work" | "run" | "shell">;

export class BuildTools implements Disposable {
  readonly packages: readonly InstalledPackage[];
  /** A folder for what is built, which the programs see as `workInside`. */
  readonly work: string;
  readonly #root: string;
  readonly #environment: NodeJS.ProcessEnv;

  constructor(lock: PackageLock, epoch: number) {
    const { root, packages } = debianTree(TOOLS_ARCHITECTURE, PACKAGES, lock);
    this.packages = packages;
    this.#root = root;
    mkdirSync(join(root, "work"), { recursive: true });
    this.work = mkdtempSync(join(root, "work/"));
    this.#environment = {
      ...{ PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C.UTF-8", TZ: "UTC0", HOME: "/" },
      ...{ SOURCE_DATE_EPOCH: String(epoch), MTOOLS_SKIP_CHECK: "1" },
    };
  }

  get architecture(): "amd64" | "arm64" {
    return TOOLS_ARCHITECTURE;
  }

  /** Runs one in the work folder; paths are relative to it. @returns its standard output @throws what it says */
  run(program: string, args: readonly string[], input?: string | Uint8Array): Buffer {
    const inside = this.work.slice(this.#root.length);
    const command = ["--chdir", inside, program, ...args];
    return execFileSync("/usr/bin/env", ["chroot", this.#root, "/usr/bin/env", ...command], {
      stdio: ["pipe", "pipe", "pipe"],
      input: input ?? "",
      env: this.#environment,
      maxBuffer: 512 * MEBIBYTE,
    });
  }

  /**
   * Runs one that needs /proc, which its own tree has not: outside of it, with the libraries of its tree, and so with
   * the `others` that it starts.
   */
  runOutside(program: string, args: readonly string[], others: readonly string[]): Buffer {
    const wrappers = join(this.work, "wrappers");
    mkdirSync(wrappers, { recursive: true });
    const [loader = ""] = globSync("usr/lib{,64}/{,*-linux-gnu/}ld-linux-*.so.?", { cwd: this.#root });
    const libraries = join(this.#root, "usr/lib", TRIPLET[TOOLS_ARCHITECTURE]);
    for (const name of [program, ...others]) {
      const command = `exec '${this.#root}/${loader}' --library-path '${libraries}' '${this.#root}/usr/bin/${name}' "$@"`;
      writeFileSync(join(wrappers, name), `#!/bin/sh\n${command}\n`, { mode: 0o755 });
    }
    return execFileSync(join(wrappers, program), args, {
      stdio: ["ignore", "pipe", "pipe"],
      cwd: this.work,
      env: { ...this.#environment, PATH: `${wrappers}:/usr/sbin:/usr/bin:/sbin:/bin` },
      maxBuffer: 64 * MEBIBYTE,
    });
  }

  /** A line of shell. */
  shell(line: string): string {
    return this.run("sh", ["-euc", line]).toString("utf8");
  }

  [Symbol.dispose](): void {
    rmSync(this.work, { recursive: true, force: true });
  }
}
