/** Debian's packages of this machine's own release as a tree, from the machine's own package sources. */
import { execFileSync } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";

export interface DebianTreeOptions {
  /** mmdebstrap's: `extract` runs no script of a package, `essential` makes a system that dpkg goes on with. */
  readonly variant: "extract" | "essential";
  readonly packages: readonly string[];
  /** Default amd64. */
  readonly architecture?: "amd64" | "arm64";
  /** Another than this machine's, from the first of its sources: `trixie`. */
  readonly release?: string | undefined;
}

/** Why none can be made here; `undefined` when one can. */
export function debianTreeMissing(): string | undefined {
  if (process.getuid?.() !== 0) return "a tree of Debian's packages needs root";
  return existsSync("/usr/bin/mmdebstrap") ? undefined : "not installed: mmdebstrap";
}

/** Takes 10 to 30 s. @throws what mmdebstrap says */
export function makeDebianTree(tree: string, options: DebianTreeOptions): void {
  const { variant, packages, architecture = "amd64" } = options;
  const own = /^VERSION_CODENAME=(.*)$/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "";
  const release = options.release ?? own;
  const sources = globSync(["/etc/apt/sources.list", "/etc/apt/sources.list.d/debian*.{list,sources}"]);
  if (sources.length === 0) throw new Error("cannot make a tree: this machine has no package sources of Debian");
  const proxies = execFileSync("apt-config", ["dump", "Acquire"], { encoding: "utf8" })
    .split("\n")
    .filter((line) => /^Acquire::https?::[Pp]roxy/.test(line));
  const args = [
    ...["--quiet", "--mode=root", "--format=directory", `--architectures=${architecture}`, `--variant=${variant}`],
    ...proxies.map((line) => `--aptopt=${line}`),
    ...[
      `--include=${packages.join(",")}`,
      release,
      tree,
      ...(release === own ? sources : [sourceOf(release, sources)]),
    ],
  ];
  execFileSync("mmdebstrap", args, { stdio: ["ignore", "pipe", "pipe"], maxBuffer: 256 * 2 ** 20 });
}

/** One line of a sources.list, with the mirror that this machine uses. */
function sourceOf(release: string, sources: readonly string[]): string {
  const text = sources.map((path) => readFileSync(path, "utf8")).join("\n");
  const mirror = /^(?:URIs:|deb(?: \[[^\]]*\])?)\s+(\S+)/m.exec(text)?.[1];
  if (mirror === undefined) throw new Error(`cannot make a tree of ${release}: ${sources.join()} name no mirror`);
  return `deb ${mirror} ${release} main`;
}
