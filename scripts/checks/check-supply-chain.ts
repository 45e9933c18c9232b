/**
 * What is installed is what was reviewed: every package of package-lock.json has its SHA-512, comes from a registry by
 * name, and runs no install script but those allowed; package.json names exact versions; the Node binary has the hash
 * of node-binaries.sha256. Part of `npm run check`. Vulnerability advisories are not consulted, as they need the
 * network: `npm audit` does that.
 */
import { createHash } from "node:crypto";
import { createReadStream, existsSync, readFileSync } from "node:fs";
import { pipeline } from "node:stream/promises";

export interface LockedPackage {
  readonly version?: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly link?: boolean;
  readonly hasInstallScript?: boolean;
  readonly license?: string;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
}

export interface LockFile {
  readonly packages: Readonly<Record<string, LockedPackage>>;
}

export interface Manifest {
  /** Folders of the tree's own packages. */
  readonly workspaces?: readonly string[];
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  /** Packages with an install script that was read; npm runs it only for those that are `true`. */
  readonly allowScripts?: Readonly<Record<string, boolean>>;
}

const SHA512 = /^sha512-[A-Za-z0-9+/]{86}==$/;
/** A version of a range may be another one tomorrow. Types alone may follow a major version: nothing of them runs. */
const EXACT = /^\d+\.\d+\.\d+$/;

/** `node_modules/a/node_modules/@b/c` is `@b/c`. */
export const packageName = (path: string): string => path.slice(path.lastIndexOf("node_modules/") + 13);

/** One sentence for each fault; empty: none. */
export function supplyChainProblems(lock: LockFile, manifest: Manifest): string[] {
  const problems: string[] = [];
  for (const [path, each] of Object.entries(lock.packages)) {
    if (path === "" || each.link === true || manifest.workspaces?.includes(path)) continue;
    const name = packageName(path);
    if (!SHA512.test(each.integrity ?? "")) problems.push(`${path} has no SHA-512 in package-lock.json`);
    if (each.resolved !== undefined && !/^https:\/\/[^/]+\/.*\.tgz$/.test(each.resolved)) {
      problems.push(`${path} comes from ${each.resolved}, not from a registry`);
    }
    if (each.hasInstallScript === true && manifest.allowScripts?.[name] === undefined) {
      problems.push(`${path} has an install script: read it, then add "${name}" to allowScripts of package.json`);
    }
  }
  for (const [name, version] of Object.entries({ ...manifest.dependencies, ...manifest.devDependencies })) {
    if (!EXACT.test(version) && !name.startsWith("@types/")) {
      problems.push(`package.json names ${name} ${version}: name one exact version`);
    }
  }
  return problems;
}

/** A package of the tree names what it needs as "*": the one version of each is in the package.json of the root. */
export function workspaceProblems(folder: string, workspace: Manifest, root: Manifest): string[] {
  const versions = { ...root.dependencies, ...root.devDependencies };
  const named = Object.entries({ ...workspace.dependencies, ...workspace.devDependencies });
  return named.flatMap(([name, version]) => {
    if (version !== "*")
      return [`${folder}/package.json names ${name} ${version}: write "*", and the version in package.json`];
    const isKnown = name.startsWith("@picolet/") || versions[name] !== undefined;
    return isKnown ? [] : [`${folder}/package.json names ${name}, of which package.json names no version`];
  });
}

/** Lines of `HASH  NAME`, as sha256sum writes them. */
export function hashesOf(text: string): ReadonlyMap<string, string> {
  const lines = text.split("\n").filter((line) => line !== "");
  return new Map(lines.map((line) => [line.slice(66), line.slice(0, 64)]));
}

async function sha256OfFile(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}

/** Undefined: it is the binary that was reviewed. */
async function nodeProblem(version: string): Promise<string | undefined> {
  const known = hashesOf(readFileSync("scripts/node-binaries.sha256", "utf8"));
  for (const platform of ["linux-x64", "linux-arm64"]) {
    if (!known.has(`node-${version}-${platform}`)) {
      return `scripts/node-binaries.sha256 has no hash of Node ${version} for ${platform}`;
    }
  }
  const path = "node_modules/node/bin/node";
  const expected = known.get(`node-${version}-${process.platform}-${process.arch}`);
  if (expected === undefined || !existsSync(path)) return undefined;
  const actual = await sha256OfFile(path);
  return actual === expected ? undefined : `${path} has the SHA-256 ${actual}, not ${expected}`;
}

if (import.meta.main) {
  const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as LockFile;
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Manifest;
  const problems = supplyChainProblems(lock, manifest);
  for (const folder of manifest.workspaces ?? []) {
    const workspace = JSON.parse(readFileSync(`${folder}/package.json`, "utf8")) as Manifest;
    problems.push(...workspaceProblems(folder, workspace, manifest));
  }
  const node = await nodeProblem(manifest.dependencies?.node ?? "");
  if (node !== undefined) problems.push(node);
  for (const each of problems) console.error(each);
  console.log(`supply chain: ${Object.keys(lock.packages).length - 1} packages, ${problems.length} problems`);
  process.exit(problems.length > 0 ? 1 : 0);
}
