/**
 * The kernel module that sets the tryboot flag: Debian's kernels do not pass it to the firmware. It is compiled with
 * Debian's compiler for the kernel of the image.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Architecture } from "../packages/debian-package.ts";
import type { Board } from "./boards.ts";
import { TOOLS_ARCHITECTURE } from "./build-tools.ts";
import { debianTree, type InstalledPackage, type PackageLock, type PackageTree } from "./debian-packages.ts";

const SOURCE = fileURLToPath(new URL("picolet-tryboot.c", import.meta.url));
const NAME = "picolet-tryboot";
const PREFIX = "aarch64-linux-gnu-";

/** Headers of the board's kernel, and nothing else of their packages. */
function headersOf(board: Board, lock: PackageLock): PackageTree {
  const keep = (root: string): void => {
    for (const name of readdirSync(root)) if (name !== "usr") rmSync(join(root, name), { recursive: true });
    for (const name of readdirSync(join(root, "usr")))
      if (name !== "src") rmSync(join(root, "usr", name), { recursive: true });
  };
  return debianTree(board.architecture, ["linux-headers-arm64"], lock, keep, "headers", board.backports);
}

/** The compiler's tree, in which the module is made; only the module is kept. */
function moduleTree(board: Board, kernel: string, headers: PackageTree, lock: PackageLock): PackageTree {
  const kbuild = readdirSync(join(headers.root, "usr/src")).find((name) => name.endsWith("-common")) ?? "";
  const version = kbuild.replace(/^linux-headers-|-common$/g, "");
  const compile = (root: string): void => {
    rmSync(join(root, "usr/src"), { recursive: true, force: true });
    cpSync(join(headers.root, "usr/src"), join(root, "usr/src"), { recursive: true, verbatimSymlinks: true });
    mkdirSync(join(root, "module"));
    cpSync(SOURCE, join(root, "module", `${NAME}.c`));
    writeFileSync(join(root, "module/Makefile"), `obj-m := ${NAME}.o\n`);
    symlinkSync("gawk", join(root, "usr/bin/awk"));
    const make = `make -s -C /usr/src/linux-headers-${kernel} M=/module ARCH=arm64 CROSS_COMPILE=${PREFIX} modules`;
    const strip = `${PREFIX}strip --strip-debug --remove-section=.note.gnu.build-id /module/${NAME}.ko`;
    execFileSync("/usr/bin/env", ["chroot", root, "/bin/sh", "-euc", `${make}; ${strip}`], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: "/usr/sbin:/usr/bin:/bin", LC_ALL: "C.UTF-8" },
    });
    renameSync(join(root, "module", `${NAME}.ko`), join(root, `${NAME}.ko`));
    for (const name of readdirSync(root)) if (name !== `${NAME}.ko`) rmSync(join(root, name), { recursive: true });
  };
  const names = [
    ...["base-files", "dash", "coreutils", "sed", "grep", "findutils", "gawk", "make"],
    ...["gcc-14-aarch64-linux-gnu", `linux-kbuild-${version}`],
  ];
  const recipe = [kernel, readFileSync(SOURCE, "utf8")].join("\n");
  return debianTree(TOOLS_ARCHITECTURE, names, lock, compile, recipe, board.backports);
}

export interface TrybootModule {
  readonly path: string;
  /** The packages that it was made of. */
  readonly trees: readonly { readonly architecture: Architecture; readonly packages: readonly InstalledPackage[] }[];
}

/** @param kernel release of the board's kernel @throws what the compiler says */
export function trybootModule(board: Board, kernel: string, lock: PackageLock): TrybootModule {
  const headers = headersOf(board, lock);
  const made = moduleTree(board, kernel, headers, lock);
  const trees: TrybootModule["trees"] = [
    { architecture: board.architecture, packages: headers.packages },
    { architecture: TOOLS_ARCHITECTURE, packages: made.packages },
  ];
  return { path: join(made.root, `${NAME}.ko`), trees };
}
