/**
 * Trees of Debian packages, extracted by mmdebstrap without running anything of them, so that any architecture's can be
 * made. The versions are those of `packages.lock`. Kept in a cache by what they are made of.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { Architecture } from "../packages/debian-package.ts";
import { COMPONENTS, RELEASE } from "./boards.ts";

export const LOCK_FILE = fileURLToPath(new URL("packages.lock", import.meta.url));
export const FIRMWARE_CACHE = "node_modules/.cache/picolet/firmware";

export interface InstalledPackage {
  readonly name: string;
  readonly version: string;
  /** `all` for packages of every architecture. */
  readonly architecture: string;
  /** SHA-256 of the .deb. */
  readonly sha256: string;
}

export interface PackageTree {
  /** Never written: it is copied. */
  readonly root: string;
  readonly packages: readonly InstalledPackage[];
}

/** By `NAME:ARCHITECTURE` of the tree; packages of backports by `NAME:ARCHITECTURE~bpo`. */
export type PackageLock = ReadonlyMap<string, string>;

const BACKPORT = "~bpo";

export const lockKey = (name: string, architecture: Architecture, version: string): string =>
  `${name}:${architecture}${version.includes(BACKPORT) ? BACKPORT : ""}`;

/** One `NAME:ARCHITECTURE=VERSION` a line. */
export function readLock(text: string): PackageLock {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const [, key, version] = /^([a-z0-9.+-]+:(?:amd64|arm64)(?:~bpo)?)=([A-Za-z0-9.+:~-]+)$/.exec(line) ?? [];
      if (key === undefined || version === undefined)
        throw new PicoletError(
          "invalid",
          `cannot read packages.lock: ${JSON.stringify(line)} is not NAME:ARCHITECTURE=VERSION`,
        );
      return [key, version];
    }),
  );
}

export function lockText(lock: PackageLock): string {
  const lines = [...lock].map(([key, version]) => `${key}=${version}\n`).sort();
  return `# Versions of the Debian packages of images and of the tools that make them: npm run firmware -- --update-lock\n${lines.join("")}`;
}

export const currentLock = (): PackageLock =>
  existsSync(LOCK_FILE) ? readLock(readFileSync(LOCK_FILE, "utf8")) : new Map();

/** Packages of a tree that the lock has in another version, or not at all. */
export const driftOf = (
  packages: readonly InstalledPackage[],
  lock: PackageLock,
  architecture: Architecture,
): readonly string[] =>
  packages
    .map(({ name, version }) => ({ name, version, locked: lock.get(lockKey(name, architecture, version)) }))
    .filter(({ version, locked }) => version !== locked)
    .map(({ name, version, locked }) => `${name} is ${version}, locked is ${locked ?? "none"}`);

/** The proxies of this machine's apt, which mmdebstrap's own does not know. */
function proxyOptions(): readonly string[] {
  const dump = execFileSync("apt-config", ["dump", "Acquire"], { encoding: "utf8" });
  const lines = dump.split("\n").filter((line) => /^Acquire::https?::[Pp]roxy/.test(line));
  return lines.map((line) => `--aptopt=${line}`);
}

/** Written by mmdebstrap's hook: the names of .deb files, with what is in their control files. */
const LIST_PACKAGES =
  'for each in "$1"/var/cache/apt/archives/*.deb; do ' +
  "printf '%s\\t%s\\n' \"$(dpkg-deb -f $each Package Version Architecture | cut -d' ' -f2 | tr '\\n' '\\t')\" " +
  '"$(sha256sum <$each)"; done > ';

/**
 * Takes 20 to 60 s the first time.
 * @param prune removes what is not wanted before the tree is kept
 * @param recipe changes with what `prune` does
 * @param backports source packages that come from the release's backports
 * @throws what mmdebstrap says
 */
export function debianTree(
  architecture: Architecture,
  names: readonly string[],
  lock: PackageLock,
  prune: (root: string) => void = () => undefined,
  recipe = "",
  backports: readonly string[] = [],
): PackageTree {
  const key = createHash("sha256")
    .update(JSON.stringify([RELEASE, architecture, names, [...lock], recipe, backports]))
    .digest("hex");
  const folder = resolve(FIRMWARE_CACHE, `tree-${key.slice(0, 16)}`);
  const root = join(folder, "root");
  if (!existsSync(folder)) {
    mkdirSync(FIRMWARE_CACHE, { recursive: true });
    const making = mkdtempSync(resolve(FIRMWARE_CACHE, "making-"));
    try {
      extract(architecture, names, lock, making, backports);
      prune(join(making, "root"));
      renameSync(making, folder);
    } finally {
      rmSync(making, { recursive: true, force: true });
    }
  }
  const packages = readFileSync(join(folder, "packages"), "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [name = "", version = "", own = "", sum = ""] = line.split(/\t+/);
      return { name, version, architecture: own, sha256: sum.split(" ")[0] ?? "" };
    });
  return { root, packages: packages.sort((one, other) => (one.name < other.name ? -1 : 1)) };
}

/** The entries of an architecture; where backports are used, theirs win. */
function pinsOf(lock: PackageLock, architecture: Architecture, withBackports: boolean): readonly string[] {
  const versions = new Map<string, string>();
  for (const suffix of withBackports ? ["", BACKPORT] : [""])
    for (const [key, version] of lock) {
      const [name = "", rest] = key.split(":");
      if (rest === `${architecture}${suffix}`) versions.set(name, version);
    }
  return [...versions].map(([name, version]) => `Package: ${name}\nPin: version ${version}\nPin-Priority: 1001\n`);
}

/** Adds the archive of backports, as this machine's own settings name it. */
const ADD_BACKPORTS = `sed -n 's/ ${RELEASE} / ${RELEASE}-backports /p' "$1"/etc/apt/sources.list >"$1"/etc/apt/sources.list.d/backports.list`;

function extract(
  architecture: Architecture,
  names: readonly string[],
  lock: PackageLock,
  folder: string,
  backports: readonly string[],
): void {
  const pins = [...pinsOf(lock, architecture, backports.length > 0)];
  if (backports.length > 0) {
    const sources = backports.map((name) => `src:${name}`).join(" ");
    pins.push(`Package: ${sources}\nPin: release n=${RELEASE}-backports\nPin-Priority: 900\n`);
  }
  const preferences = join(folder, "lock");
  writeFileSync(preferences, pins.join("\n"));
  const args = [
    ...["--quiet", "--mode=root", "--format=directory", "--variant=extract"],
    // Nothing of the packages is run, so nothing needs /proc or /dev.
    "--skip=chroot/mount",
    ...[`--architectures=${architecture}`, `--components=${COMPONENTS.join(",")}`, `--include=${names.join(",")}`],
    ...(backports.length > 0 ? [`--setup-hook=${ADD_BACKPORTS}`] : []),
    ...[`--setup-hook=upload '${preferences}' /etc/apt/preferences.d/lock`],
    ...[`--extract-hook=${LIST_PACKAGES}'${join(folder, "packages")}'`],
    ...proxyOptions(),
    ...[RELEASE, join(folder, "root")],
  ];
  execFileSync("mmdebstrap", args, { stdio: ["ignore", "pipe", "pipe"], maxBuffer: 256 * MEBIBYTE });
}
