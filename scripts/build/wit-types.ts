/**
 * Writes the TypeScript types of what `wit/board` says to `wit/generated`, by jco. With `--check` it writes nothing and
 * fails when what is there is not what it would write: `npm run check` does that.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { $init, generateTypes } from "@bytecodealliance/jco-transpile/component";
import { readOptions } from "../options.ts";
import { boardWitSource } from "./wit-source.ts";

const FOLDER = "wit/generated";
const HEADER = "// Generated from wit/board by `npm run wit-types`; do not edit.\n";
/** The folder of jco's types for each interface; its other files are not used. */
const INTERFACES = "interfaces/";

async function generated(): Promise<Map<string, string>> {
  await $init;
  const files = generateTypes("board", {
    wit: { tag: "source", val: boardWitSource() },
    world: "component",
    features: { tag: "list", val: [] },
    instantiation: { tag: "sync" },
    variantsInlineCases: true,
    tlaCompat: false,
    guest: false,
  } as Parameters<typeof generateTypes>[1]);
  const texts = new Map<string, string>();
  for (const [name, bytes] of files) {
    if (!name.startsWith(INTERFACES)) continue;
    texts.set(basename(name), HEADER + new TextDecoder().decode(bytes).replace(/[ \t]+$/gm, ""));
  }
  return texts;
}

/** @returns the names of the files that are not as they should be */
function drift(wanted: ReadonlyMap<string, string>): string[] {
  const there = existsSync(FOLDER) ? readdirSync(FOLDER) : [];
  const differs = (name: string): boolean => {
    const path = join(FOLDER, name);
    return !existsSync(path) || readFileSync(path, "utf8") !== wanted.get(name);
  };
  return [...new Set([...there, ...wanted.keys()])].filter(differs).sort();
}

const wanted = await generated();
const drifted = drift(wanted);
const input = readOptions({
  name: "wit-types",
  summary: "writes the TypeScript types of wit/board to wit/generated",
  flags: [{ name: "check", help: "write nothing; leave with 1 when they are not up to date" }],
});
if (input.flag("check")) {
  if (drifted.length > 0) {
    console.error(`wit/generated is not what wit/board says: ${drifted.join(", ")}; run npm run wit-types`);
    process.exit(1);
  }
} else {
  mkdirSync(FOLDER, { recursive: true });
  for (const name of drifted) {
    const text = wanted.get(name);
    if (text === undefined) rmSync(join(FOLDER, name));
    else writeFileSync(join(FOLDER, name), text);
  }
}
