/** Debian's packages of this machine's own release as a tree, from the machine's own package sources. */
import { execFileSync } from "node:child_process";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { debianSources } from "@picolet/firmware/hub-image/debian-files.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";

export interface DebianTreeOptions {
  /** Debian's code name; undefined: that of this machine. */
  readonly release?: string | undefined;
  /** mmdebstrap's: `extract` runs no script of a package, `essential` makes a system that dpkg goes on with. */
  readonly variant: "extract" | "essential";
  readonly packages: readonly string[];
  /** Default amd64. */
  readonly architecture?: "amd64" | "arm64";
}

/** Why none can be made here; `undefined` when one can. */
export function debianTreeMissing(): string | undefined {
  if (process.getuid?.() !== 0) return "a tree of Debian's packages needs root";
  return existsSync("/usr/bin/mmdebstrap") ? undefined : "not installed: mmdebstrap";
}

const ownSources = (): string[] =>
  globSync(["/etc/apt/sources.list", "/etc/apt/sources.list.d/debian*.{list,sources}"]);

function otherSources(folder: TempFolder, release: string): string {
  const { text, ending } = debianSources(release);
  const file = folder.at(`debian${ending}`);
  writeFileSync(file, release === "sid" ? withoutPockets(text) : text);
  return file;
}

/** Debian's unstable suite has neither updates nor security updates beside it. */
const withoutPockets = (text: string): string =>
  text
    .split(/\n{2,}/)
    .map((stanza) => stanza.replaceAll(/^deb .* sid-.*$| sid-\S+/gm, ""))
    .filter((stanza) => !/^Suites:\s*$/m.test(stanza))
    .join("\n\n");

/** Takes 10 to 30 s. @throws what mmdebstrap says */
export function makeDebianTree(tree: string, options: DebianTreeOptions): void {
  const { variant, packages, release: other, architecture = "amd64" } = options;
  using folder = new TempFolder();
  const release = other ?? /^VERSION_CODENAME=(.*)$/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "";
  const sources = other === undefined ? ownSources() : [otherSources(folder, other)];
  if (sources.length === 0) throw new Error("cannot make a tree: this machine has no package sources of Debian");
  const proxies = execFileSync("apt-config", ["dump", "Acquire"], { encoding: "utf8" })
    .split("\n")
    .filter((line) => /^Acquire::https?::[Pp]roxy/.test(line));
  // A mirror may keep a moving suite as it was at a time; the signature is checked all the same.
  const old = other === undefined ? [] : [`--aptopt=Acquire::Check-Valid-Until "false"`];
  const args = [
    ...["--quiet", "--mode=root", "--format=directory", `--architectures=${architecture}`, `--variant=${variant}`],
    ...old,
    ...proxies.map((line) => `--aptopt=${line}`),
    ...[`--include=${packages.join(",")}`, release, tree, ...sources],
  ];
  execFileSync("mmdebstrap", args, { stdio: ["ignore", "pipe", "pipe"], maxBuffer: 256 * 2 ** 20 });
}

/**
 * Keeps a tree for all processes and later runs; it is read only.
 * @param isUsable of a tree that is there; one that is not is made again
 * @param make makes the tree in the folder `making`, which is moved to `tree` then
 */
export function keepTree(
  cache: string,
  name: string,
  isUsable: (tree: string) => boolean,
  make: (making: string, tree: string) => void,
): string {
  const tree = join(cache, name);
  if (existsSync(tree)) {
    if (isUsable(tree)) return tree;
    rmSync(tree, { recursive: true });
  }
  mkdirSync(cache, { recursive: true });
  for (const left of readdirSync(cache).filter((each) => each.startsWith("making-")))
    if (!existsSync(`/proc/${left.split("-")[1]}`)) rmSync(join(cache, left), { recursive: true });
  const making = mkdtempSync(join(cache, `making-${process.pid}-`));
  try {
    make(join(making, "tree"), tree);
    renameSync(join(making, "tree"), tree);
  } catch (error) {
    // Another process was faster.
    if (!existsSync(tree)) throw error;
  } finally {
    rmSync(making, { recursive: true, force: true });
  }
  return tree;
}
