/** Builds what `examples/` holds as text. Needs nothing but npm's packages. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { parse } from "@bytecodealliance/jco-transpile/wasm-tools";

const OUTPUT = "dist/examples";
const COMPONENTS = ["hello"];

/** `examples/<name>/<name>.wat` → `dist/examples/<name>.wasm` */
export async function buildExamples(): Promise<void> {
  mkdirSync(OUTPUT, { recursive: true });
  for (const name of COMPONENTS) {
    const text = readFileSync(`examples/${name}/${name}.wat`, "utf8");
    writeFileSync(`${OUTPUT}/${name}.wasm`, await parse(text));
  }
}

if (import.meta.main) await buildExamples();
