/** Describes by WIT text, for the component tools, the WASI that C programs import and export by hand. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { boardWitSource } from "@picolet/scripts/build/wit-source.ts";

/** WASI's interfaces as jco brings them, and the version that test components name. */
export const WASI_WIT = "node_modules/@bytecodealliance/jco/lib/wit/builtin/0.2.12";
/** Taken as it is, by components that name it. */
const WASI_03_WIT = "node_modules/@bytecodealliance/jco/lib/wit/builtin/0.3.0";
const WASI_VERSION = "0.2.3";
/** The proposals in test components that the board answers too. */
const PROPOSALS = "test/components/proposals.wit";

/** @param world what it imports and exports, of WASI 0.2 without a version */
export async function withWorld(module: Uint8Array, world: string): Promise<Uint8Array> {
  const own = world.replace(/(wasi:[\w/-]+)(?![\w/@-])/g, `$1@${WASI_VERSION}`);
  const folders = world.includes("@0.3.0") ? [WASI_WIT, WASI_03_WIT] : [WASI_WIT];
  const packages = folders.flatMap((folder) =>
    readdirSync(folder).map((name) => {
      const text = readFileSync(join(folder, name, "package.wit"), "utf8");
      return `${text.replace(/^package ([^;]+);/m, "package $1 {").replaceAll("@0.2.12", `@${WASI_VERSION}`)}}`;
    }),
  );
  const witSource = [
    "package test:components;",
    `world component {${own}}`,
    ...packages,
    boardWitSource("nested"),
    readFileSync(PROPOSALS, "utf8"),
  ].join("\n");
  const { componentEmbed } = await import("@bytecodealliance/jco-transpile/wasm-tools");
  return componentEmbed({ witSource, world: "component", binary: module });
}
