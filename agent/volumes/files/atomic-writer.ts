/**
 * Writes files that readers see change all at once, laid out as Kubernetes' atomic writer does: `..data` is a link to
 * the folder with the current files, and `name` a link to `..data/name`. Exchanging the link exchanges all files; a
 * reader that has one open keeps the old content.
 */
import {
  chmod,
  chown,
  lchown,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

export interface PayloadFile {
  readonly content: Buffer;
  /** Permission bits. */
  readonly mode: number;
  /** -1: the user of this process. */
  readonly uid: number;
  readonly gid: number;
}

/** By path within the volume. */
export type Payload = ReadonlyMap<string, PayloadFile>;

const DATA_LINK = "..data";
const NEXT_LINK = "..data_tmp";
const FOLDER_MODE = 0o755;
/** A folder of a read-only volume with an `fsGroup`: the group can enter, and new files belong to the group. */
const GROUP_FOLDER = 0o2550;
/** Kubernetes' own limits. */
const MAX_PATH_BYTES = 4096;
const MAX_NAME_BYTES = 255;
const IS_ROOT = process.geteuid?.() === 0;

/**
 * Replaces the files of `target`. A failure, such as a full disk, leaves the old ones.
 * @param target exists. Folders in it are left alone: other volumes are mounted there.
 * @param group owns folders and links, and the folders pass it on and let it in; -1: none
 * @returns whether anything was changed
 * @throws `invalid` for a path that would lead out of the volume
 */
export async function writeAtomically(target: string, files: Payload, group = -1): Promise<boolean> {
  const payload: Payload = new Map([...files].map(([path, file]) => [cleanPath(path), file]));
  const owner = IS_ROOT ? group : -1;
  const current = await linkTarget(join(target, DATA_LINK));
  if (current !== undefined && (await holds(join(target, current), payload, owner))) {
    await linkNames(target, payload, owner);
    return false;
  }
  const folder = await mkdtemp(join(target, `..${stamp(new Date())}.`));
  try {
    await fill(folder, payload, owner);
    const next = join(target, NEXT_LINK);
    await rm(next, { force: true });
    await symlink(basename(folder), next);
    if (owner >= 0) await lchown(next, 0, owner);
    await rename(next, join(target, DATA_LINK));
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
  await linkNames(target, payload, owner);
  await removeOldFolders(target, basename(folder));
  return true;
}

/** `2026_11_20_17_45_09` in UTC, as Kubernetes names its folders. */
const stamp = (now: Date): string => now.toISOString().slice(0, 19).replace(/\D/g, "_");

async function fill(folder: string, payload: Payload, group: number): Promise<void> {
  for (const [path, file] of payload) await writeOne(join(folder, path), file);
  // The umask has removed rights, and mkdtemp(3) makes a folder for its owner alone.
  for (const each of [folder, ...(await foldersBelow(folder))]) {
    if (group >= 0) await chown(each, 0, group);
    await chmod(each, group >= 0 ? FOLDER_MODE | GROUP_FOLDER : FOLDER_MODE);
  }
}

async function foldersBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true });
  const folders = entries.filter((entry) => entry.isDirectory()).map((entry) => join(folder, entry.name));
  return [...folders, ...(await Promise.all(folders.map(foldersBelow))).flat()];
}

/** Without empty parts and dots, as Kubernetes writes it. @throws `invalid` with the kubelet's words */
function cleanPath(path: string): string {
  const problem = pathProblem(path);
  if (problem !== undefined) throw new PicoletError("invalid", `invalid path: ${problem}`);
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.length === 0) throw new PicoletError("invalid", `invalid path: no name of a file: ${path}`);
  return parts.join("/");
}

function pathProblem(path: string): string | undefined {
  if (path === "") return 'must not be empty: ""';
  if (path.startsWith("/")) return `must be relative path: ${path}`;
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return `must be less than or equal to ${MAX_PATH_BYTES} characters`;
  const parts = path.split("/");
  if (parts.includes("..")) return `must not contain '..': ${path}`;
  if (parts.some((part) => Buffer.byteLength(part) > MAX_NAME_BYTES))
    return `filenames must be less than or equal to ${MAX_NAME_BYTES} characters`;
  // The names that this layout is made of, also behind a dot.
  if (parts.find((part) => part !== "" && part !== ".")?.startsWith("..") === true)
    return `must not start with '..': ${path}`;
  if (path.includes("\0")) return "must not contain a zero byte";
  return undefined;
}

async function writeOne(path: string, { content, mode, uid, gid }: PayloadFile): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: FOLDER_MODE });
  await writeFile(path, content);
  if (IS_ROOT && (uid >= 0 || gid >= 0)) await chown(path, Math.max(uid, 0), Math.max(gid, 0));
  // After the owner, because a change of the owner removes set-id bits. Needed, because the umask has removed rights.
  await chmod(path, mode);
}

/** The first part of each path is a link in the volume; those that nothing stands behind any more go. */
async function linkNames(target: string, payload: Payload, group: number): Promise<void> {
  const wanted = new Set([...payload.keys()].map((path) => path.split("/")[0] ?? path));
  const present = new Map((await readdir(target, { withFileTypes: true })).map((entry) => [entry.name, entry]));
  for (const name of wanted) {
    if (present.has(name)) continue;
    await symlink(join(DATA_LINK, name), join(target, name));
    if (group >= 0) await lchown(join(target, name), 0, group);
  }
  for (const [name, entry] of present) {
    if (entry.isSymbolicLink() && !name.startsWith("..") && !wanted.has(name)) await rm(join(target, name));
  }
}

async function removeOldFolders(target: string, current: string): Promise<void> {
  for (const name of await readdir(target)) {
    if (name.startsWith("..") && name !== DATA_LINK && name !== current) {
      await rm(join(target, name), { recursive: true, force: true });
    }
  }
}

/** @returns whether the folder has exactly these files with this content and these rights */
async function holds(folder: string, payload: Payload, group: number): Promise<boolean> {
  if (
    group >= 0 &&
    (await stat(folder).catch(ignore("a folder that is missing does not hold the files")))?.gid !== group
  )
    return false;
  const paths = await filesBelow(folder, "");
  if (paths === undefined || paths.length !== payload.size) return false;
  for (const path of paths) {
    const wanted = payload.get(path);
    if (wanted === undefined) return false;
    const at = join(folder, path);
    const [content, stats] = await Promise.all([readFile(at), stat(at)]);
    if (!content.equals(wanted.content) || (stats.mode & 0o7777) !== wanted.mode) return false;
    if (IS_ROOT && (stats.uid !== Math.max(wanted.uid, 0) || stats.gid !== Math.max(wanted.gid, 0))) return false;
  }
  return true;
}

async function filesBelow(folder: string, prefix: string): Promise<string[] | undefined> {
  try {
    const entries = await readdir(join(folder, prefix), { withFileTypes: true });
    const found: string[] = [];
    for (const entry of entries) {
      const path = prefix === "" ? entry.name : `${prefix}/${entry.name}`;
      if (!entry.isDirectory()) found.push(path);
      else found.push(...((await filesBelow(folder, path)) ?? []));
    }
    return found;
  } catch (error) {
    if (errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR") return undefined;
    throw error;
  }
}

async function linkTarget(path: string): Promise<string | undefined> {
  try {
    return await readlink(path);
  } catch (error) {
    if (errnoOf(error) === "ENOENT" || errnoOf(error) === "EINVAL") return undefined;
    throw error;
  }
}
