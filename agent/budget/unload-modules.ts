import { createRequire } from "node:module";
import { basename } from "node:path";

/**
 * Unloads modules that were loaded with `import()` and have done their work. What they made stays; the next `import()`
 * loads them again. A name is that of the imported file, without ending. An agent that runs from its sources keeps
 * them, because an ES module cannot be unloaded.
 */
export function unloadModules(...names: readonly string[]): void {
  const { cache } = createRequire(process.execPath);
  for (const part of Object.values(cache)) {
    // In `lib/picolet/` a part is called `<name>-<hash>.cjs`.
    if (part === undefined || !names.includes(basename(part.id).replace(/-[^-]*$/, ""))) continue;
    const gone = ownFiles(part, cache);
    for (const { id } of gone) delete cache[id];
    for (const other of Object.values(cache))
      if (other !== undefined) other.children = other.children.filter((child) => !gone.has(child));
  }
}

/** The part with the files that it alone needs: of those that others need too there must never be a second copy. */
function ownFiles(part: NodeJS.Module, cache: NodeJS.Dict<NodeJS.Module>): ReadonlySet<NodeJS.Module> {
  const needed = withChildren(part, new Set());
  const shared = new Set([part]);
  for (const other of Object.values(cache))
    if (other !== undefined && !needed.has(other)) for (const child of other.children) withChildren(child, shared);
  shared.delete(part);
  return new Set([...needed].filter((each) => !shared.has(each)));
}

/** All modules that a file requires are among its children, also those that were loaded before. */
function withChildren(file: NodeJS.Module, found: Set<NodeJS.Module>): Set<NodeJS.Module> {
  if (found.has(file)) return found;
  found.add(file);
  for (const child of file.children) withChildren(child, found);
  return found;
}
