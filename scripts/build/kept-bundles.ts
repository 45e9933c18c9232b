/**
 * Keeps what a distribution is bundled into for the next build of the same sources: `npm test` builds five times, three
 * of them in clones that share `node_modules`.
 */
import { createHash, hash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { deserialize, serialize } from "node:v8";
import type { Metafile } from "esbuild";

const CACHE = "node_modules/.cache/picolet/bundles";
/** Files and folders that bundles are made of, and what makes them. The lock file names all packages, and Node. */
const SOURCES = [
  ...["package-lock.json", "package.json", "tsconfig.json"],
  ...["agent", "hub", "kubelet-api", "page", "protocol", "runtime-adapters", "scripts/build"],
];
const NO_SOURCE = /\.test\.ts$|\.md$/;
const DIGEST_LENGTH = 64;

export interface BundledFile {
  /** Below the distribution. */
  readonly path: string;
  readonly content: string | Uint8Array;
}

export interface Bundles {
  readonly files: readonly BundledFile[];
  readonly metafiles: readonly Metafile[];
}

/**
 * @param root of the distribution
 * @param make bundles the sources; not called when the same sources were bundled last
 * @param paths where the sources are, and where bundles are kept
 */
export async function keptBundles(
  root: string,
  make: () => Promise<Bundles>,
  { sources = SOURCES, cache = CACHE }: { readonly sources?: readonly string[]; readonly cache?: string } = {},
): Promise<Bundles> {
  const digest = digestOf(sources);
  const path = join(cache, root.replaceAll("/", "-"));
  const kept = existsSync(path) ? readKept(path, digest) : undefined;
  if (kept !== undefined) return kept;
  const made = await make();
  const content = serialize(made);
  mkdirSync(cache, { recursive: true });
  const temporary = `${path}.${process.pid}`;
  writeFileSync(temporary, Buffer.concat([Buffer.from(digest + hash("sha256", content)), content]));
  renameSync(temporary, path);
  return made;
}

/** @returns undefined for the bundles of other sources, and for a file that was not written to its end */
function readKept(path: string, digest: string): Bundles | undefined {
  const all = readFileSync(path);
  const content = all.subarray(2 * DIGEST_LENGTH);
  const head = all.subarray(0, 2 * DIGEST_LENGTH).toString("latin1");
  return head === digest + hash("sha256", content) ? (deserialize(content) as Bundles) : undefined;
}

/** Includes the names: a new file may be found in the place of another. */
function digestOf(sources: readonly string[]): string {
  const all = createHash("sha256");
  for (const source of sources)
    for (const path of filesOf(source)) all.update(`${path}\0`).update(hash("sha256", readFileSync(path)));
  return all.digest("hex");
}

function filesOf(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter(({ name }) => name !== "node_modules" && !NO_SOURCE.test(name))
      .sort((a, b) => (a.name < b.name ? -1 : 1))
      .flatMap((entry) => (entry.isFile() ? [join(path, entry.name)] : filesOf(join(path, entry.name))));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOTDIR") return [path];
    throw error;
  }
}
