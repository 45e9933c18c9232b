/**
 * What of the node's libraries the runner's Node needs: where those lie that this process, the same Node, has mapped.
 */
import { lstatSync, readdirSync, readFileSync, readlinkSync, realpathSync } from "node:fs";

export interface NodeLibraries {
  /** Folders, absolute and without links in their paths. */
  readonly folders: readonly string[];
  /** Links that lead there: `/lib` and what programs name as their loader. */
  readonly links: readonly (readonly [path: string, target: string])[];
}

/** Where programs name their loader (ELF, PT_INTERP) and look for libraries. */
const LIBRARY_ROOTS = ["/lib", "/lib64"];
const LOADER = /^ld-(linux|musl)/;
const SHARED_OBJECT = /\.so(\.[\d.]+)?$/;

export function nodeLibraries(): NodeLibraries {
  const folders = new Set(mappedFolders());
  const links: [string, string][] = [];
  for (const root of LIBRARY_ROOTS) {
    const stats = lstatSync(root, { throwIfNoEntry: false });
    if (stats === undefined) continue;
    if (stats.isSymbolicLink()) links.push([root, readlinkSync(root)]);
    const real = realpathSync(root);
    for (const name of readdirSync(real).filter((each) => LOADER.test(each))) {
      const path = `${real}/${name}`;
      if (!folders.has(real)) links.push([path, realpathSync(path)]);
    }
  }
  return { folders: [...folders].filter((each) => !isBelow(each, folders)), links };
}

function mappedFolders(): string[] {
  const maps = readFileSync("/proc/self/maps", "utf8").split("\n");
  const paths = maps.map((line) => line.slice(line.indexOf("/"))).filter((path) => SHARED_OBJECT.test(path));
  // An add-on of ours is no library of Node's.
  const system = paths.filter((path) => path.startsWith("/usr/") || path.startsWith("/lib"));
  return system.map((path) => path.slice(0, path.lastIndexOf("/")));
}

const isBelow = (path: string, folders: ReadonlySet<string>): boolean =>
  [...folders].some((each) => path.startsWith(`${each}/`));
