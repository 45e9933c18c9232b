/** Bundles programs for tests, each into one file as they are shipped. The files are kept in `dist/`. */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, resolve } from "node:path";
import type { BuildOptions } from "esbuild";

export const BUILD = "dist/test-components";

/**
 * Bundles a program that tests start many times: a bundle starts in a fifth of the time.
 *
 * @param source the program's path
 */
export const testProgram = (source: string): Promise<string> => bundled(source, "esm");

export type Format = "cjs" | "esm";

/** A bundle is checked once in a process, because sources do not change while tests run. */
const bundles = new Map<string, Promise<string>>();

export function bundled(source: string, format: Format): Promise<string> {
  const made = bundles.get(source) ?? bundle(source, format);
  bundles.set(source, made);
  return made;
}

/** Kept beside a bundle: the digest of the options and of all files that it was made of, and of the bundle itself. */
interface BundleRecord {
  readonly inputs: readonly string[];
  readonly inputDigest: string;
  readonly outputDigest: string;
}

/** esbuild takes half a second of a processor, and each test file of components has five programs. */
async function bundle(source: string, format: Format): Promise<string> {
  const path = resolve(BUILD, basename(source).replace(/\.ts$/, format === "cjs" ? ".cjs" : ".mjs"));
  const recordPath = `${path}.json`;
  const options = {
    entryPoints: [source],
    format,
    bundle: true,
    minify: true,
    platform: "node",
    target: "node24",
    external: ["@bytecodealliance/jco-transpile", "better-sqlite3"],
    logLevel: "warning",
  } as const satisfies BuildOptions;
  if (isUpToDate(path, recordPath, options)) return path;
  const { build } = await import("esbuild");
  const { outputFiles, metafile } = await build({ ...options, write: false, metafile: true });
  const content = Buffer.from(outputFiles[0]?.contents ?? []);
  const inputs = Object.keys(metafile.inputs);
  const record: BundleRecord = { inputs, inputDigest: digestOf(options, inputs), outputDigest: hashOf(content) };
  if (!existsSync(path) || !readFileSync(path).equals(content))
    appear(path, (temporary) => writeFileSync(temporary, content));
  appear(recordPath, (temporary) => writeFileSync(temporary, JSON.stringify(record)));
  return path;
}

function isUpToDate(path: string, recordPath: string, options: BuildOptions): boolean {
  if (!existsSync(recordPath)) return false;
  const { inputs, inputDigest, outputDigest } = JSON.parse(readFileSync(recordPath, "utf8")) as BundleRecord;
  const exist = [path, ...inputs].every((each) => existsSync(each));
  return exist && hashOf(readFileSync(path)) === outputDigest && digestOf(options, inputs) === inputDigest;
}

/** Includes the lock file: another version of esbuild or of a package makes another bundle. */
function digestOf(options: BuildOptions, inputs: readonly string[]): string {
  const hash = createHash("sha256").update(JSON.stringify(options));
  for (const input of ["package-lock.json", ...inputs]) hash.update(input).update(readFileSync(input));
  return hash.digest("hex");
}

const hashOf = (content: Uint8Array): string => createHash("sha256").update(content).digest("hex");

/** Several test files may build at the same moment: each result appears whole. */
export function appear(path: string, write: (temporary: string) => void): void {
  mkdirSync(BUILD, { recursive: true });
  const temporary = `${path}.${process.pid}`;
  write(temporary);
  renameSync(temporary, path);
}
