/**
 * Files that change all at once under the eyes of whoever reads them, laid out as Kubernetes' atomic writer does:
 * `..data` is a link to the folder with the files of now, and `name` a link to `..data/name`. Exchanging the link
 * exchanges all of them; a reader that has one open goes on with what it had.
 */
import {
  chmod,
  chown,
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
import { dirname, join } from "node:path";
import { errorCode } from "../core/error-code.ts";
import { nameOf } from "./pod-paths.ts";

export interface PayloadFile {
  readonly content: Buffer;
  /** Permission bits. */
  readonly mode: number;
  /** -1: whoever this process is. */
  readonly uid: number;
  readonly gid: number;
}

/** By path within the volume. */
export type Payload = ReadonlyMap<string, PayloadFile>;

const DATA_LINK = "..data";
const NEXT_LINK = "..data_tmp";
const FOLDER_MODE = 0o755;
const IS_ROOT = process.geteuid?.() === 0;

/**
 * @param target exists
 * @returns whether anything was changed
 * @throws `invalid` for a path that would lead out of the volume
 */
export async function writeAtomically(target: string, payload: Payload): Promise<boolean> {
  for (const path of payload.keys()) checkPath(path);
  const current = await linkTarget(join(target, DATA_LINK));
  if (current !== undefined && (await holds(join(target, current), payload))) {
    await linkNames(target, payload);
    return false;
  }
  const stamp = new Date().toISOString().replace(/\D/g, "_");
  const folder = await mkdtemp(join(target, `..${stamp}`));
  await chmod(folder, FOLDER_MODE);
  for (const [path, file] of payload) await writeOne(join(folder, path), file);
  const next = join(target, NEXT_LINK);
  await rm(next, { force: true });
  await symlink(folder.slice(target.length + 1), next);
  await rename(next, join(target, DATA_LINK));
  await linkNames(target, payload);
  await removeOldFolders(target, folder.slice(target.length + 1));
  return true;
}

function checkPath(path: string): void {
  for (const part of path.split("/")) nameOf(part, "file of a volume");
  // The names that this layout is made of.
  if (path.startsWith("..")) nameOf("..", "file of a volume");
}

async function writeOne(path: string, { content, mode, uid, gid }: PayloadFile): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: FOLDER_MODE });
  await writeFile(path, content);
  if (IS_ROOT && (uid >= 0 || gid >= 0)) await chown(path, Math.max(uid, 0), Math.max(gid, 0));
  // After the owner: the kernel takes set-id bits away with a change of the owner. And the umask has had its say.
  await chmod(path, mode);
}

/** The first part of each path is a link in the volume; those that nothing stands behind any more go. */
async function linkNames(target: string, payload: Payload): Promise<void> {
  const wanted = new Set([...payload.keys()].map((path) => path.split("/")[0] ?? path));
  const present = new Set(await readdir(target));
  for (const name of wanted) if (!present.has(name)) await symlink(join(DATA_LINK, name), join(target, name));
  for (const name of present) if (!name.startsWith("..") && !wanted.has(name)) await rm(join(target, name));
}

async function removeOldFolders(target: string, current: string): Promise<void> {
  for (const name of await readdir(target)) {
    if (name.startsWith("..") && name !== DATA_LINK && name !== current) {
      await rm(join(target, name), { recursive: true, force: true });
    }
  }
}

/** Whether the folder has exactly these files with this content and these rights. */
async function holds(folder: string, payload: Payload): Promise<boolean> {
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
    if (errorCode(error) === "ENOENT" || errorCode(error) === "ENOTDIR") return undefined;
    throw error;
  }
}

async function linkTarget(path: string): Promise<string | undefined> {
  try {
    return await readlink(path);
  } catch (error) {
    if (errorCode(error) === "ENOENT" || errorCode(error) === "EINVAL") return undefined;
    throw error;
  }
}
