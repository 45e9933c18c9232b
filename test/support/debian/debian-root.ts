/** A Debian system that packages are installed in: a root directory of its own, thrown away afterwards. */
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync } from "node:fs";
import { basename, join } from "node:path";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { debianTreeMissing, keepTree, makeDebianTree } from "./debian-tree.ts";

/** Essential packages, and what picolet's depend on. */
export const PACKAGES = ["adduser", "libstdc++6", "libgcc-s1", "init-system-helpers"];
const CACHE = "node_modules/.cache/picolet/debian-root";
const RUN_LIMIT_MS = 240_000;
/** Files that dpkg, adduser and ldconfig write themselves, for any package that comes or goes. */
const SYSTEM_FILES =
  /^\/(?:var\/lib\/dpkg|var\/log|var\/cache|proc|tmp|run)(?:\/|$)|^\/etc\/(?:passwd|shadow|group|gshadow|subuid|subgid)-?$|^\/etc\/ld\.so\.cache$/;

export interface RootResult {
  readonly exitCode: number;
  /** Standard output and error, as they came. */
  readonly output: string;
}

export const debianRootMissing = debianTreeMissing;

export class DebianRoot implements Disposable {
  readonly #folder = new TempFolder();
  readonly path = this.#folder.at("root");

  /** @param release Debian's code name; undefined: that of this machine */
  constructor(release?: string) {
    const [upper, work] = [this.#folder.at("upper"), this.#folder.at("work")];
    for (const folder of [this.path, upper, work]) mkdirSync(folder);
    // Nothing of it outlives the machine: dpkg need not wait for the disk.
    const options = `volatile,lowerdir=${cachedTree(PACKAGES, release)},upperdir=${upper},workdir=${work}`;
    execFileSync("mount", ["-t", "overlay", "overlay", "-o", options, this.path]);
  }

  /** Runs a command line of sh(1) there. */
  run(line: string): RootResult {
    const script = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -c "exec 2>&1; $1"';
    const { status, stdout } = spawnSync("unshare", ["--mount", "sh", "-c", script, this.path, line], {
      encoding: "utf8",
      timeout: RUN_LIMIT_MS,
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", DEBIAN_FRONTEND: "noninteractive", LC_ALL: "C" },
      stdio: ["ignore", "pipe", "inherit"],
    });
    return { exitCode: status ?? -1, output: stdout };
  }

  /** @returns what it printed @throws when its exit code is not 0 */
  output(line: string): string {
    const { exitCode, output } = this.run(line);
    if (exitCode !== 0) throw new Error(`${line}: exit code ${exitCode}\n${output}`);
    return output;
  }

  /** Copies a file to `/tmp` there. @returns its path there */
  bring(file: string): string {
    copyFileSync(file, join(this.path, "tmp", basename(file)));
    return `/tmp/${basename(file)}`;
  }

  /** All files, folders and links that packages answer for. */
  files(): string[] {
    return this.output("find / -xdev")
      .split("\n")
      .filter((path) => path !== "" && !SYSTEM_FILES.test(path))
      .sort();
  }

  [Symbol.dispose](): void {
    execFileSync("umount", [this.path]);
    this.#folder[Symbol.dispose]();
  }
}

/** The lower tree of every root with these packages; it is read only. Made once, in 10 to 15 s. */
export function cachedTree(packages: readonly string[], release?: string): string {
  const name = [...packages, ...(release === undefined ? [] : [release])].join("+");
  const make = (making: string): void => makeDebianTree(making, { variant: "essential", packages, release });
  return keepTree(join(process.cwd(), CACHE), name, () => true, make);
}
