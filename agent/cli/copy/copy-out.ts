/** Files and folders out of a container: the archive that its `tar` writes becomes files below one place. */
import { constants } from "node:fs";
import { lstat, mkdir, open, realpath, stat } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type ByteStream, CHUNK_BYTES } from "@picolet/runtime-contract/archive/file-bytes.ts";
import { type TarEntry, TarReader } from "@picolet/runtime-contract/archive/tar-reader.ts";
import { memberPath } from "./copy-names.ts";

/** As a shell makes them; the umask takes its part. A new file that could be executed can be executed. */
const FILE_MODE = 0o666;
const EXECUTE_BITS = 0o111;

export interface Unpacking {
  /** The first part of each member's name, or `.`. */
  readonly root: string;
  /** An absolute path: a file, a folder, or nothing yet. */
  readonly target: string;
  /** Reports a member that is left out. */
  readonly warn: (text: string) => void;
}

export interface Unpacked {
  readonly files: number;
  /** Left out, links apart. */
  readonly refused: number;
}

/**
 * Writes files and folders, and nothing else: links in an archive are left out, so that no archive leads out of
 * `target`. A link that was below `target` before is not followed out of it either. A file gets its own name in a
 * folder that exists; the content of a folder goes into `target`.
 *
 * @throws `corrupt` for what is no archive, `failed` for a file that cannot be written
 */
export async function unpack(archive: ByteStream, { root, target, warn }: Unpacking): Promise<Unpacked> {
  const reader = new TarReader(archive);
  const counts = { files: 0, refused: 0 };
  const refuse = (name: string, why: string): void => {
    counts.refused += 1;
    warn(`${JSON.stringify(name)} is left out: ${why}`);
  };
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    const below = memberPath(entry.name, root);
    if (below === undefined) refuse(entry.name, "it would be outside the target");
    else if (entry.kind === "symlink") warn(`${JSON.stringify(entry.name)} is left out: it is a link`);
    else if (entry.kind === "other") refuse(entry.name, "it is neither a file nor a folder");
    else {
      const place = await placeFor(entry, below, { root, target });
      if (!(await isBelow(target, place))) refuse(entry.name, "a link leads it outside the target");
      else if (entry.kind === "folder") await makeFolder(place);
      else {
        await writeFile(entry, place);
        counts.files += 1;
      }
    }
  }
  return counts;
}

async function placeFor(
  { kind }: TarEntry,
  below: string,
  { root, target }: Pick<Unpacking, "root" | "target">,
): Promise<string> {
  if (below !== "") return join(target, below);
  return kind === "file" && (await isFolder(target)) ? join(target, root) : target;
}

const isFolder = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );

/** Follows the links of the folders that are there. `target` itself may be one. */
async function isBelow(target: string, place: string): Promise<boolean> {
  if (place === target) return true;
  const top = await realpath(target).catch(ignore("what is not there holds no links"));
  if (top === undefined) return true;
  for (let folder = dirname(place); ; folder = dirname(folder)) {
    const real = await realpath(folder).catch(ignore("it is made later"));
    if (real !== undefined) return !relative(top, real).startsWith("..");
    // A link to nothing is none that a folder can be made of.
    if ((await lstat(folder).catch(ignore("it is made later"))) !== undefined) return false;
  }
}

async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true });
  } catch (error) {
    throw new PicoletError("failed", `cannot make the folder ${path}`, { cause: error });
  }
}

async function writeFile({ content, mode }: TarEntry, path: string): Promise<void> {
  await makeFolder(dirname(path));
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
  try {
    await using file = await open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, FILE_MODE | (mode & EXECUTE_BITS));
    for (let piece = await content.read(CHUNK_BYTES); piece !== undefined; piece = await content.read(CHUNK_BYTES))
      await file.writeFile(piece);
  } catch (error) {
    const reason = errnoOf(error) === "ELOOP" ? "it is a link, which is not followed" : error;
    throw new PicoletError("failed", `cannot write ${path}`, { cause: reason });
  }
}
