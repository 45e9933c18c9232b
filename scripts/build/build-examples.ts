/**
 * Builds the components of `examples/`, one in each of three languages: text, JavaScript, C. What is up to date is left
 * as it is. Text and JavaScript need nothing but npm's packages; C needs Debian's clang, lld, wasi-libc and
 * libclang-rt-dev-wasm32, and is left out where they are not.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { componentNew, parse } from "@bytecodealliance/jco-transpile/wasm-tools";
import { componentize } from "componentize-qjs";

const OUTPUT = "dist/examples";
/** For other clones that share `node_modules`, and after `dist` was removed. */
const CACHE = "node_modules/.cache/picolet/examples";
const JCO = "node_modules/@bytecodealliance/jco/lib";
/** From the preview 1 that wasi-libc knows to WASI 0.2. */
const COMMAND_ADAPTER = `${JCO}/wasi_snapshot_preview1.command.wasm`;
const WASI_WIT = `${JCO}/wit/builtin/0.2.12`;
/** One file of each package that the C example needs. */
const C_TOOLS = ["/usr/bin/clang", "/usr/bin/wasm-ld", "/usr/lib/wasm32-wasi/libc.a"];

type Build = (folder: string, name: string) => Uint8Array | Promise<Uint8Array>;

/** `examples/<name>/` → `dist/examples/<name>.wasm`. @returns those that were made or are up to date */
export async function buildExamples(): Promise<readonly string[]> {
  mkdirSync(OUTPUT, { recursive: true });
  const builds: (readonly [name: string, build: Build])[] = [
    ["hello", fromText],
    ["beat", fromJavaScript],
  ];
  if (C_TOOLS.every((path) => existsSync(path))) builds.push(["starts", fromC]);
  for (const [name, build] of builds) await buildIfChanged(name, build);
  return builds.map(([name]) => name);
}

async function buildIfChanged(name: string, build: Build): Promise<void> {
  const folder = `examples/${name}`;
  const [output, stamp] = [`${OUTPUT}/${name}.wasm`, `${OUTPUT}/${name}.source`];
  const source = digestOf(folder);
  if (existsSync(output) && existsSync(stamp) && readFileSync(stamp, "utf8") === source) return;
  const kept = `${CACHE}/${name}-${source.slice(0, 16)}.wasm`;
  if (!existsSync(kept)) {
    mkdirSync(CACHE, { recursive: true });
    writeFileSync(`${kept}.${process.pid}`, await build(folder, name));
    renameSync(`${kept}.${process.pid}`, kept);
  }
  copyFileSync(kept, output);
  writeFileSync(stamp, source);
}

/** Hashes the sources and the tools that make components of them. */
function digestOf(folder: string): string {
  const hash = createHash("sha256").update(readFileSync("package-lock.json"));
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) hash.update(entry.name).update(readFileSync(join(entry.parentPath, entry.name)));
  }
  return hash.digest("hex");
}

const fromText: Build = async (folder, name) => parse(readFileSync(`${folder}/${name}.wat`, "utf8"));

/** With the engine, its state made ready at build time. */
async function fromJavaScript(folder: string, name: string): Promise<Uint8Array> {
  return await inScratch(async (scratch) => {
    cpSync(`${folder}/wit`, scratch, { recursive: true });
    for (const each of readdirSync(WASI_WIT))
      cpSync(`${WASI_WIT}/${each}`, `${scratch}/deps/${each}`, { recursive: true });
    const jsPath = `${folder}/${name}.js`;
    const jsSource = readFileSync(jsPath, "utf8");
    const { component } = await componentize({ witPath: scratch, jsSource, jsPath, world: name, sync: true });
    return component;
  });
}

async function fromC(folder: string, name: string): Promise<Uint8Array> {
  return await inScratch(async (scratch) => {
    const module = `${scratch}/core.wasm`;
    execFileSync("clang", ["--target=wasm32-wasi", "-Os", "-s", "-o", module, `${folder}/${name}.c`], {
      stdio: "inherit",
    });
    return await componentNew(readFileSync(module), [["wasi_snapshot_preview1", readFileSync(COMMAND_ADAPTER)]]);
  });
}

async function inScratch<T>(work: (scratch: string) => Promise<T>): Promise<T> {
  const scratch = mkdtempSync(join(tmpdir(), "picolet-example-"));
  try {
    return await work(scratch);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

if (import.meta.main) await buildExamples();
