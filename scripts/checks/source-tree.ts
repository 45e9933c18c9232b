/**
 * The tree as its imports see it: packages, the rooms (folders) of their files, and which file imports which. Reads
 * files alone, of this tree or of another revision's beside it.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { parseSync } from "oxc-parser";

/** Folders of the top level that hold source files. Before there were packages, they were what a workspace is now. */
export const SOURCE_FOLDERS = [
  "protocol",
  "runtime-adapters",
  "kubelet-api",
  "agent",
  "hub",
  "firmware",
  "page",
  "wit",
  "test",
  "scripts",
] as const;

export interface Workspace {
  readonly name: string;
  /** Relative to the root, with a trailing slash. */
  readonly folder: string;
}

const readJson = <T>(path: string): T => JSON.parse(readFileSync(path, "utf8")) as T;

/** The innermost first, so that the first whose folder matches holds a file. Empty in a tree without packages. */
export function workspacesOf(root: string): readonly Workspace[] {
  const { workspaces = [] } = readJson<{ readonly workspaces?: readonly string[] }>(join(root, "package.json"));
  return workspaces
    .map((each) => ({
      folder: `${each}/`,
      name: readJson<{ readonly name: string }>(join(root, each, "package.json")).name,
    }))
    .sort((a, b) => b.folder.length - a.folder.length);
}

/** Source files below `SOURCE_FOLDERS`, relative to the root. */
export function sourceFilesOf(root: string): readonly string[] {
  const walk = (folder: string): string[] =>
    readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
      const path = `${folder}/${entry.name}`;
      if (entry.isDirectory()) return ["node_modules", "dist"].includes(entry.name) ? [] : walk(path);
      return entry.isFile() && /\.m?[jt]s$/.test(entry.name) ? [path] : [];
    });
  return SOURCE_FOLDERS.filter((folder) => existsSync(join(root, folder))).flatMap(walk);
}

/** The module specifiers of a source text: static, re-exported and type imports, and dynamic ones with "all". */
export function specifiersOf(path: string, source: string, kind: "all" | "static" = "all"): string[] {
  const parsed = parseSync(path, source);
  const [problem] = parsed.errors;
  if (problem !== undefined) throw new Error(`cannot parse ${path}: ${problem.message}`);
  const found = parsed.module.staticImports.map((each) => each.moduleRequest.value);
  for (const statement of parsed.module.staticExports) {
    for (const entry of statement.entries) if (entry.moduleRequest) found.push(entry.moduleRequest.value);
  }
  if (kind === "static") return found;
  for (const dynamic of parsed.module.dynamicImports) {
    const text = source.slice(dynamic.moduleRequest.start, dynamic.moduleRequest.end);
    const literal = /^["'`](.*)["'`]$/.exec(text)?.[1];
    if (literal !== undefined) found.push(literal);
  }
  for (const match of source.matchAll(/\bimport\(\s*["']([^"']+)["']\s*\)/g)) if (match[1]) found.push(match[1]);
  return found;
}

/** The file of the tree that a specifier in `path` names; undefined for Node's modules and packages of others. */
export function fileOf(path: string, specifier: string, workspaces: readonly Workspace[]): string | undefined {
  if (specifier.startsWith(".")) return relative(".", resolve(dirname(path), specifier));
  const owner = workspaces.find(({ name }) => specifier.startsWith(`${name}/`));
  return owner === undefined ? undefined : `${owner.folder}${specifier.slice(owner.name.length + 1)}`;
}

/** The imports of each file, read on demand. */
export class ImportGraph {
  readonly #root: string;
  readonly #workspaces: readonly Workspace[];
  readonly #imports = new Map<string, readonly string[]>();

  constructor(root = ".") {
    this.#root = root;
    this.#workspaces = workspacesOf(root);
  }

  /** Files of the tree that `path` imports. */
  importsOf(path: string): readonly string[] {
    const known = this.#imports.get(path);
    if (known !== undefined) return known;
    const whole = join(this.#root, path);
    const specifiers =
      /\.m?[jt]s$/.test(path) && existsSync(whole) ? specifiersOf(path, readFileSync(whole, "utf8")) : [];
    const files = specifiers.map((each) => fileOf(path, each, this.#workspaces)).filter((each) => each !== undefined);
    this.#imports.set(path, files);
    return files;
  }

  /** `path` and everything that loads with it. */
  closureOf(path: string): ReadonlySet<string> {
    const closure = new Set<string>();
    const pending = [path];
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      if (closure.has(next)) continue;
      closure.add(next);
      pending.push(...this.importsOf(next));
    }
    return closure;
  }

  /** Reads the file again when it is asked for next. */
  forget(path: string): void {
    this.#imports.delete(path);
  }
}
