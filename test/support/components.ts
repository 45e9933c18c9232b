/**
 * Test components: C programs made with Debian's clang and the command adapter that jco brings, and component text.
 * Built when first asked for, kept in `dist/` by the content of their source.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { extname, join, resolve } from "node:path";
import { componentNew, parse } from "@bytecodealliance/jco-transpile/wasm-tools";
import { build } from "esbuild";

const SOURCES = "test/components";
const HEADER = "test/components/realloc.h";
const BUILD = "dist/test-components";
/** From the preview 1 that wasi-libc knows to WASI 0.2. */
const COMMAND_ADAPTER = "node_modules/@bytecodealliance/jco/lib/wasi_snapshot_preview1.command.wasm";

/** The components of `test/components`, by file name. */
export type TestComponent =
  | "workload.c"
  | "files.c"
  | "script.c"
  | "exit-42.wat"
  | "wants-http.wat"
  | "no-run.wat"
  | "slow-start.wat"
  | "large-memory.wat"
  | "hostile-name.wat";

/** @returns the absolute path of the component. */
export async function testComponent(source: TestComponent): Promise<string> {
  const content = sourceOf(source);
  return built(source, content, async (folder) =>
    extname(source) === ".c" ? commandComponent(moduleOf(source, folder)) : parse(content.toString("utf8")),
  );
}

/** A core module, as a compiler makes it: not a component yet. */
export async function testCoreModule(source: "workload.c"): Promise<string> {
  const content = sourceOf(source);
  return built(`core-${source}`, content, async (folder) => moduleOf(source, folder));
}

/** With the header of all C programs, which is part of what is built. */
function sourceOf(source: TestComponent): Buffer {
  const own = readFileSync(join(SOURCES, source));
  return extname(source) === ".c" ? Buffer.concat([readFileSync(HEADER), own]) : own;
}

/** A component of text given in the test itself. */
export const textComponent = (text: string): Promise<string> => built("text.wat", Buffer.from(text), () => parse(text));

/** The programs that the adapter starts, as they are shipped: one small file each. */
export async function testPrograms(): Promise<{ readonly runnerPath: string; readonly transpilePath: string }> {
  return {
    runnerPath: await bundled("runner-main.ts", "cjs"),
    transpilePath: await bundled("transpile-main.ts", "esm"),
  };
}

async function bundled(source: string, format: "cjs" | "esm"): Promise<string> {
  const path = resolve(BUILD, source.replace(/\.ts$/, format === "cjs" ? ".cjs" : ".mjs"));
  const { outputFiles } = await build({
    entryPoints: [join("runtime-adapters/wasm", source)],
    format,
    bundle: true,
    minify: true,
    platform: "node",
    target: "node24",
    external: ["@bytecodealliance/jco-transpile"],
    logLevel: "warning",
    write: false,
  });
  const content = Buffer.from(outputFiles[0]?.contents ?? []);
  if (!existsSync(path) || !readFileSync(path).equals(content))
    appear(path, (temporary) => writeFileSync(temporary, content));
  return path;
}

/** Several test files may build at the same moment: each result appears whole. */
async function built(
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

function appear(path: string, write: (temporary: string) => void): void {
  mkdirSync(BUILD, { recursive: true });
  const temporary = `${path}.${process.pid}`;
  write(temporary);
  renameSync(temporary, path);
}

function moduleOf(source: string, folder: string): Uint8Array {
  const output = join(folder, "core.wasm");
  execFileSync("clang", [
    "--target=wasm32-wasi",
    "-Os",
    "-s",
    "-Wno-infinite-recursion",
    "-include",
    HEADER,
    "-o",
    output,
    join(SOURCES, source),
  ]);
  return readFileSync(output);
}

function commandComponent(module: Uint8Array): Promise<Uint8Array> {
  return componentNew(module, [["wasi_snapshot_preview1", readFileSync(COMMAND_ADAPTER)]]);
}
