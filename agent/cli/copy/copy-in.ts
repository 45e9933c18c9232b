/** A file or a folder as an archive, for a container's `tar`. Links stay links. */
import { constants, type Stats } from "node:fs";
import { lstat, open, opendir, readlink, statfs } from "node:fs/promises";
import { join } from "node:path";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { CHUNK_BYTES } from "@picolet/runtime-contract/archive/file-bytes.ts";
import { TAR_END, tarHeader, tarPadding } from "../support/tar-writer.ts";

/** File systems whose files are made when they are read: proc, sysfs, debugfs, tracefs. Source: linux/magic.h. */
const MADE_BY_KERNEL: ReadonlySet<number> = new Set([0x9fa0, 0x62656572, 0x64626720, 0x74726163]);
/** Their sizes are 0, or made up. A longer one, such as the memory of the machine, is left out. */
const MAX_MADE_BYTES = MEBIBYTE;

/** As deep as a path can be: its 4096 bytes are a name and a slash each. */
const MAX_DEPTH = 2048;

export interface Packing {
  /** An absolute path. */
  readonly source: string;
  /** Its name in the archive. */
  readonly name: string;
  /** Reports what is left out: sockets, pipes, devices, and files of /proc and /sys that cannot be read whole. */
  readonly leaveOut: (path: string) => void;
}

/** One piece of a file is in memory at a time. @throws `failed` for what cannot be read */
export async function* pack({ source, name, leaveOut }: Packing): AsyncGenerator<Buffer> {
  yield* member(source, name, leaveOut, 0);
  yield TAR_END;
}

async function* member(
  path: string,
  name: string,
  leaveOut: Packing["leaveOut"],
  depth: number,
): AsyncGenerator<Buffer> {
  const found = await reading(path, () => lstat(path));
  const common = { name, mode: found.mode & 0o7777, modifiedAtMs: found.mtimeMs, sizeBytes: 0 };
  if (found.isSymbolicLink())
    yield tarHeader({ ...common, type: "symlink", target: await reading(path, () => readlink(path)) });
  else if (found.isFile() && (await isMadeByKernel(path))) yield* madeFile(path, common, leaveOut);
  else if (found.isFile()) yield* file(path, { ...common, sizeBytes: found.size });
  else if (found.isDirectory() && depth < MAX_DEPTH) {
    yield tarHeader({ ...common, type: "folder", name: `${name}/` });
    const folder = await reading(path, () => opendir(path));
    for await (const { name: each } of folder) yield* member(join(path, each), `${name}/${each}`, leaveOut, depth + 1);
  } else leaveOut(path);
}

type FileHead = Pick<Stats, "mode"> & {
  readonly name: string;
  readonly modifiedAtMs: number;
  readonly sizeBytes: number;
};

/** As many bytes as its header says: one that shrinks meanwhile ends the copy, as its rest would be other files. */
async function* file(path: string, head: FileHead): AsyncGenerator<Buffer> {
  await using handle = await reading(path, () => open(path, "r"));
  yield tarHeader({ ...head, type: "file" });
  for (let left = head.sizeBytes; left > 0; ) {
    const { bytesRead, buffer } = await reading(path, () =>
      handle.read(Buffer.allocUnsafe(Math.min(left, CHUNK_BYTES)), 0, Math.min(left, CHUNK_BYTES), null),
    );
    if (bytesRead === 0) throw new PicoletError("failed", `cannot read ${path}`, { cause: "it became shorter" });
    left -= bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
  yield tarPadding(head.sizeBytes);
}

const isMadeByKernel = async (path: string): Promise<boolean> =>
  MADE_BY_KERNEL.has((await reading(path, () => statfs(path))).type);

/** Read before its header is written. One that waits for something, such as the kernel's log, is not waited for. */
async function* madeFile(path: string, head: FileHead, leaveOut: Packing["leaveOut"]): AsyncGenerator<Buffer> {
  const content = await readMade(path).catch(ignore("it is left out"));
  if (content === undefined) {
    leaveOut(path);
    return;
  }
  yield tarHeader({ ...head, sizeBytes: content.length, type: "file" });
  yield content;
  yield tarPadding(content.length);
}

/** @returns undefined for a file that is longer than can be taken */
async function readMade(path: string): Promise<Buffer | undefined> {
  await using handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const content = Buffer.allocUnsafe(MAX_MADE_BYTES + 1);
  for (let length = 0; length <= MAX_MADE_BYTES; ) {
    const { bytesRead } = await handle.read(content, length, content.length - length, null);
    if (bytesRead === 0) return content.subarray(0, length);
    length += bytesRead;
  }
  return undefined;
}

async function reading<T>(path: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    throw new PicoletError("failed", `cannot read ${path}`, { cause: error });
  }
}
