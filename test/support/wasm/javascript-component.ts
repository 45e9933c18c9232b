/** Components of JavaScript, made as those of `examples/` are: with the engine QuickJS inside, and without WASI 0.3. */
import { cpSync, readdirSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { componentize } from "componentize-qjs";
import { WASI_WIT } from "./wasi-wit.ts";

/** @param path beside the file of the same name that says what it imports and exports @param scratch an empty folder */
export async function javascriptComponent(path: string, scratch: string): Promise<Uint8Array> {
  cpSync(path.replace(/\.js$/, ".wit"), `${scratch}/component.wit`);
  for (const each of readdirSync(WASI_WIT))
    cpSync(`${WASI_WIT}/${each}`, `${scratch}/deps/${each}`, { recursive: true });
  const jsSource = readFileSync(path, "utf8");
  const world = basename(path, ".js");
  const { component } = await componentize({ witPath: scratch, jsSource, jsPath: path, world, sync: true });
  return component;
}
