/** What is below folders whose contents come and go meanwhile, as those of /sys/fs/cgroup and of an agent do. */
import { type Dirent, readdirSync } from "node:fs";
import { join } from "node:path";

/** The entries of a folder; none when it does not exist. */
export function entriesIn(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // A cgroup that is removed while it is read is no device any more.
    if (code === "ENOENT" || code === "ENODEV") return [];
    throw error;
  }
}

export interface TreeEntry {
  /** From the folder. */
  readonly path: string;
  readonly isFolder: boolean;
}

/**
 * Each folder before what is in it. What goes while we look is not there: find(1) and `recursive` of Node's fail then.
 */
export function entriesBelow(folder: string): readonly TreeEntry[] {
  return entriesIn(folder).flatMap((entry) => {
    const isFolder = entry.isDirectory();
    const below = isFolder ? entriesBelow(join(folder, entry.name)) : [];
    return [{ path: entry.name, isFolder }, ...below.map((each) => ({ ...each, path: join(entry.name, each.path) }))];
  });
}
