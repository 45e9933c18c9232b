/** Test components of text: they need npm's wasm-tools alone. Kept in `dist/` by the content of their source. */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { appear, BUILD } from "../machine/bundles.ts";

/** Files of `test/components`. */
export type TextFile =
  | "exit-42.wat"
  | "wants-http.wat"
  | "no-run.wat"
  | "fill-at-start.wat"
  | "slow-start.wat"
  | "large-memory.wat"
  | "hostile-name.wat"
  | "parts.wat";

/** @returns the absolute path of the component. */
export function textFile(source: TextFile): Promise<string> {
  const content = readFileSync(join("test/components", source));
  return built(source, content, () => parsed(content.toString("utf8")));
}

/** A component of text given in the test itself. */
export const textComponent = (text: string): Promise<string> =>
  built("text.wat", Buffer.from(text), () => parsed(text));

/** Loads the parser when there is something to parse: it takes a processor 0.1 s, and most components are kept. */
async function parsed(text: string): Promise<Uint8Array> {
  const { parse } = await import("@bytecodealliance/jco-transpile/wasm-tools");
  return parse(text);
}

/** Several test files may build at the same moment: each result appears whole. */
export async function built(
  name: string,
  source: Uint8Array,
  make: (folder: string) => Uint8Array | Promise<Uint8Array>,
): Promise<string> {
  const hash = createHash("sha256").update(source).digest("hex").slice(0, 16);
  const path = resolve(BUILD, `${name.replace(/\.\w+$/, "")}-${hash}.wasm`);
  if (!existsSync(path)) {
    const content = await inFolder((folder) => Promise.resolve(make(folder)));
    appear(path, (temporary) => writeFileSync(temporary, content));
  }
  return path;
}

async function inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  mkdirSync(BUILD, { recursive: true });
  const folder = mkdtempSync(join(BUILD, "making-"));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
