/**
 * The parts of a distribution that differ between platforms: the Node binary, and packages with native code. This
 * machine's lie in `node_modules`. Another platform's are fetched once by `npm pack` into a cache; a file without its
 * reviewed hash (`package-lock.json`, `node-binaries.sha256`) is refused.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
} from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { hashesOf, type LockFile } from "../checks/check-supply-chain.ts";

export const PLATFORMS = ["linux-x64", "linux-arm64"] as const;
export type Platform = (typeof PLATFORMS)[number];

const CACHE = "node_modules/.cache/picolet/packages";
/** elf(5), e_machine */
const MACHINES: Readonly<Record<Platform, number>> = { "linux-x64": 62, "linux-arm64": 183 };
const ELF_MAGIC = "\x7fELF";
const MACHINE_OFFSET = 18;

/** @throws `invalid` for one that picolet is not built for */
export function platformOf(name: string): Platform {
  const platform = PLATFORMS.find((each) => each === name);
  if (platform !== undefined) return platform;
  throw new PicoletError("invalid", `cannot build for ${name}: picolet is built for ${PLATFORMS.join(" and ")}`);
}

/** The platform of this process. */
export const ownPlatform = (): Platform => platformOf(`${process.platform}-${process.arch}`);

export const readLockFile = (): LockFile => JSON.parse(readFileSync("package-lock.json", "utf8")) as LockFile;

export interface NodeParts {
  readonly binary: string;
  /** The folder that has its licence. */
  readonly folder: string;
}

export function nodeParts(lock: LockFile, platform: Platform): NodeParts {
  const name = `node-${platform}`;
  if (platform === ownPlatform()) {
    // `run.sh` has compared it with its hash. The install script of the package `node` fetches the package of the
    // platform.
    const binary = "node_modules/node/bin/node";
    const folder = `node_modules/node/node_modules/${name}`;
    if (existsSync(binary) && existsSync(folder)) return { binary, folder };
  }
  const version = versionOf(lock, "node");
  const expected = hashesOf(readFileSync("scripts/node-binaries.sha256", "utf8")).get(`node-${version}-${platform}`);
  const folder = fetchedPackage(name, version, ["bin/node", "LICENSE"]);
  try {
    requireHash(`${folder}/bin/node`, "sha256", "hex", expected);
  } catch (error) {
    // The next build fetches it again.
    rmSync(folder, { recursive: true });
    throw error;
  }
  return { binary: `${folder}/bin/node`, folder };
}

/** @returns the folder of a package of package-lock.json, which may be one for another platform than this */
export function packageFolder(lock: LockFile, name: string): string {
  const installed = `node_modules/${name}`;
  if (existsSync(`${installed}/package.json`)) return installed;
  const integrity = lock.packages[installed]?.integrity?.replace(/^sha512-/, "");
  return fetchedPackage(name, versionOf(lock, name), [], (tarball) =>
    requireHash(tarball, "sha512", "base64", integrity),
  );
}

function versionOf(lock: LockFile, name: string): string {
  const { version } = lock.packages[`node_modules/${name}`] ?? {};
  if (version === undefined) throw new PicoletError("not_found", `package-lock.json has no package ${name}`);
  return version;
}

/**
 * @param files those that are kept; all when empty
 * @param verify called before anything of it is unpacked
 */
function fetchedPackage(
  name: string,
  version: string,
  files: readonly string[],
  verify?: (tarball: string) => void,
): string {
  const folder = join(CACHE, `${name.replace("/", "+")}@${version}`);
  if (existsSync(folder)) return folder;
  mkdirSync(CACHE, { recursive: true });
  const scratch = mkdtempSync(join(CACHE, "making-"));
  try {
    const options = ["--pack-destination", scratch, "--ignore-scripts", "--loglevel=error"];
    execFileSync("npm", ["pack", `${name}@${version}`, ...options], { stdio: ["ignore", "ignore", "inherit"] });
    const tarball = join(scratch, readdirSync(scratch).find((each) => each.endsWith(".tgz")) ?? "");
    verify?.(tarball);
    const members = files.map((each) => `package/${each}`);
    execFileSync("tar", ["--no-same-owner", "-xzf", tarball, "-C", scratch, ...members]);
    renameSync(join(scratch, "package"), folder);
  } catch (error) {
    throw new PicoletError("failed", `cannot fetch the package ${name}@${version}`, { cause: error });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  return folder;
}

/** @throws `corrupt` */
export function requireHash(
  path: string,
  algorithm: "sha256" | "sha512",
  encoding: "hex" | "base64",
  expected = "",
): void {
  const actual = createHash(algorithm).update(readFileSync(path)).digest(encoding);
  if (actual !== expected)
    throw new PicoletError(
      "corrupt",
      `${path} has the ${algorithm} ${actual}, not the reviewed ${expected || "(none)"}`,
    );
}

/** @returns whether the file is an ELF file for the platform; undefined: it is no ELF file */
export function isNativeFor(platform: Platform, path: string): boolean | undefined {
  const header = Buffer.alloc(MACHINE_OFFSET + 2);
  const file = openSync(path, "r");
  try {
    readSync(file, header, 0, header.length, 0);
  } finally {
    closeSync(file);
  }
  if (header.toString("latin1", 0, ELF_MAGIC.length) !== ELF_MAGIC) return undefined;
  return header.readUInt16LE(MACHINE_OFFSET) === MACHINES[platform];
}
