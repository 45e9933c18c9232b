import { readFileSync, watch } from "node:fs";
import { ImportGraph, SOURCE_FOLDERS } from "../checks/source-tree.ts";

/** An editor that saves writes several times. */
const SETTLE_MS = 100;
const IGNORED = /(?:^|\/)(?:node_modules|dist|\.[^/]+)(?:\/|$)|~$/;

/** Runs `files`, and after each change those of them that load a changed file. Ends with the process. */
export async function watchTests(
  files: readonly string[],
  run: (files: readonly string[]) => Promise<unknown>,
): Promise<never> {
  const graph = new ImportGraph();
  const changed = new Set<string>();
  let poke = Promise.withResolvers<void>();
  for (const folder of SOURCE_FOLDERS) {
    watch(folder, { recursive: true }, (_, name) => {
      const path = `${folder}/${name}`;
      if (name === null || IGNORED.test(path)) return;
      changed.add(path);
      poke.resolve();
    });
  }
  await run(files);
  for (;;) {
    console.log("waiting for changes");
    await poke.promise;
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    poke = Promise.withResolvers<void>();
    const paths = [...changed];
    changed.clear();
    for (const path of paths) graph.forget(path);
    const concerned = concernedBy(paths, files, graph);
    console.log(`\n${paths.join(", ")} changed: ${concerned.length} test files`);
    if (concerned.length > 0) await run(concerned);
  }
}

/**
 * The tests that load one of the paths. What is no source file, such as a golden, concerns those that have its folder's
 * name in their text.
 */
export function concernedBy(paths: readonly string[], files: readonly string[], graph: ImportGraph): readonly string[] {
  const sources = paths.filter((path) => /\.m?[jt]s$/.test(path));
  const folders = paths.filter((path) => !sources.includes(path)).map((path) => path.split("/").at(-2) ?? path);
  return files.filter((file) => {
    const closure = graph.closureOf(file);
    return sources.some((path) => closure.has(path)) || namesOneOf(folders, file);
  });
}

const namesOneOf = (folders: readonly string[], file: string): boolean => {
  if (folders.length === 0) return false;
  const text = readFileSync(file, "utf8");
  return folders.some((folder) => text.includes(folder));
};
