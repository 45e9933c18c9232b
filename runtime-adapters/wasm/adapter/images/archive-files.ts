/** The files of an image archive: entries of a tar, or files of a folder that has the same layout. */
import { constants, type FileHandle, open } from "node:fs/promises";
import { checkCancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { readArchiveStart } from "@picolet/runtime-contract/archive/archive-start.ts";
import { gunzipStream, readAll } from "@picolet/runtime-contract/archive/byte-stream.ts";
import { type ByteStream, FileBytes } from "@picolet/runtime-contract/archive/file-bytes.ts";
import { damaged } from "@picolet/runtime-contract/archive/image-manifests.ts";
import { isTarHeader, type TarEntry, TarReader } from "@picolet/runtime-contract/archive/tar-reader.ts";
import { imageFileKind } from "@picolet/runtime-contract/image-file-kind.ts";

export interface ArchiveFiles {
  /** The kind and path, for messages. */
  readonly kind: "archive" | "folder";
  readonly path: string;
  /**
   * The files of these names, as far as they are there. @throws `resource_exhausted` beyond `limit` bytes of all of
   * them
   */
  collect(names: ReadonlySet<string>, limit: number, signal: AbortSignal): Promise<ReadonlyMap<string, Buffer>>;
  /** @throws `corrupt` when there is none of this name */
  read<T>(name: string, use: (content: ByteStream) => Promise<T>): Promise<T>;
}

const INDEX = "the archive's index";

/** A tar is a stream: it is read from its start for each. */
class TarFiles implements ArchiveFiles {
  readonly kind = "archive";
  readonly path: string;
  readonly #file: FileHandle;
  readonly #compressed: boolean;

  /** @param file stays open, and its owner's */
  constructor(path: string, file: FileHandle, compressed: boolean) {
    this.path = path;
    this.#file = file;
    this.#compressed = compressed;
  }

  async collect(names: ReadonlySet<string>, limit: number, signal: AbortSignal): Promise<ReadonlyMap<string, Buffer>> {
    const found = new Map<string, Buffer>();
    let left = limit;
    await using stream = this.#open();
    const reader = new TarReader(stream);
    while (found.size < names.size) {
      checkCancelled(signal, "the import");
      const entry = await find(reader, (each) => names.has(each.name) && !found.has(each.name));
      if (entry === undefined) break;
      const content = await readAll(entry.content, left, INDEX);
      left -= content.length;
      found.set(entry.name, content);
    }
    return found;
  }

  async read<T>(name: string, use: (content: ByteStream) => Promise<T>): Promise<T> {
    await using stream = this.#open();
    const entry = await find(new TarReader(stream), (each) => each.name === name);
    if (entry === undefined) throw damaged(`${name} is missing`);
    return await use(entry.content);
  }

  #open(): ByteStream {
    const bytes = new FileBytes(this.#file);
    return this.#compressed ? gunzipStream(bytes) : bytes;
  }
}

async function find(reader: TarReader, matches: (entry: TarEntry) => boolean): Promise<TarEntry | undefined> {
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    if (entry.kind === "file" && matches(entry)) return entry;
  }
  return undefined;
}

/** The files that every image layout has; in a folder no others are read, so no name of an archive leads elsewhere. */
const LAYOUT_FILE = /^(?:index\.json|blobs\/sha256\/[0-9a-f]{64})$/;

class FolderFiles implements ArchiveFiles {
  readonly kind = "folder";
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  async collect(names: ReadonlySet<string>, limit: number, signal: AbortSignal): Promise<ReadonlyMap<string, Buffer>> {
    const found = new Map<string, Buffer>();
    let left = limit;
    for (const name of names) {
      checkCancelled(signal, "the import");
      const content = await this.#whole(name, left);
      left -= content?.length ?? 0;
      if (content !== undefined) found.set(name, content);
    }
    return found;
  }

  async read<T>(name: string, use: (content: ByteStream) => Promise<T>): Promise<T> {
    const file = await this.#open(name);
    if (file === undefined) throw damaged(`${name} is missing`);
    try {
      return await use(new FileBytes(file));
    } finally {
      await file.close();
    }
  }

  async #whole(name: string, limit: number): Promise<Buffer | undefined> {
    const file = await this.#open(name);
    try {
      return file === undefined ? undefined : await readAll(new FileBytes(file), limit, INDEX);
    } finally {
      await file?.close();
    }
  }

  /** Links are not followed: what is imported is what is in the folder. */
  async #open(name: string): Promise<FileHandle | undefined> {
    if (!LAYOUT_FILE.test(name)) return undefined;
    let file: FileHandle;
    try {
      // Without O_NONBLOCK the open of a pipe waits for a writer.
      file = await open(`${this.path}/${name}`, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return undefined;
      if (errnoOf(error) === "ELOOP") throw damaged(`${name} is a link`);
      throw error;
    }
    if ((await file.stat()).isFile()) return file;
    await file.close();
    throw damaged(`${name} is no regular file`);
  }
}

/** @throws `unimplemented` for what is neither an archive nor the folder of one: another runtime may know it. */
export async function filesOf(file: FileHandle, path: string): Promise<ArchiveFiles> {
  if ((await file.stat()).isDirectory()) return new FolderFiles(path);
  const { isGzip, start } = await readArchiveStart(file);
  if (isTarHeader(start)) return new TarFiles(path, file, isGzip);
  const why = imageFileKind(start, isGzip ? "in gzip" : "plain");
  throw new PicoletError("unimplemented", `cannot take a component from ${path}: ${why}`);
}
