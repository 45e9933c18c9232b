/** Programs as they are shipped, one file each, and what else the tests build once: in `dist/`. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, resolve } from "node:path";
import { build } from "esbuild";

export const BUILD = "dist/test-components";

/**
 * A program of the tests that is started many times: as a bundle it takes a fifth of the time to begin. @param source
 * its path
 */
export const testProgram = (source: string): Promise<string> => bundled(source, "esm");

export type Format = "cjs" | "esm";

/** Each once in a process: their sources do not change while it runs. */
const bundles = new Map<string, Promise<string>>();

export function bundled(source: string, format: Format): Promise<string> {
  const made = bundles.get(source) ?? bundle(source, format);
  bundles.set(source, made);
  return made;
}

async function bundle(source: string, format: Format): Promise<string> {
  const path = resolve(BUILD, basename(source).replace(/\.ts$/, format === "cjs" ? ".cjs" : ".mjs"));
  const { outputFiles } = await build({
    entryPoints: [source],
    format,
    bundle: true,
    minify: true,
    platform: "node",
    target: "node24",
    external: ["@bytecodealliance/jco-transpile", "better-sqlite3"],
    logLevel: "warning",
    write: false,
  });
  const content = Buffer.from(outputFiles[0]?.contents ?? []);
  if (!existsSync(path) || !readFileSync(path).equals(content))
    appear(path, (temporary) => writeFileSync(temporary, content));
  return path;
}

/** Several test files may build at the same moment: each result appears whole. */
export function appear(path: string, write: (temporary: string) => void): void {
  mkdirSync(BUILD, { recursive: true });
  const temporary = `${path}.${process.pid}`;
  write(temporary);
  renameSync(temporary, path);
}
