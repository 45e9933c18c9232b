import type { FileHandle } from "node:fs/promises";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { FileBytes } from "@picolet/runtime-contract/archive/file-bytes.ts";
import { fileError, openNamed } from "../../shared/files/durable-files.ts";
import type { ComponentBlob, ComponentBlobs } from "./component-blobs.ts";
import type { ImageNames, SourceStamp } from "./image-names.ts";
import { parseArchiveName, parseImportName } from "./image-references.ts";
import { withMessage } from "./wrapped-error.ts";

export interface LocalImagesComponents {
  readonly blobs: ComponentBlobs;
  readonly names: ImageNames;
  /** Removes a component with all that was made from it. */
  readonly forget: (sha256: string) => Promise<void>;
}

/**
 * Components out of files that lie on this node: a component, an archive or a folder of images, imported or named by
 * `file://`.
 */
export class LocalImages {
  readonly #components: LocalImagesComponents;

  constructor(components: LocalImagesComponents) {
    this.#components = components;
  }

  /** @returns the hashes of what it held, in its order */
  async import(path: string, name: string | undefined, signal: AbortSignal): Promise<string[]> {
    let file: FileHandle | undefined;
    try {
      file = await openNamed(path);
      return await this.#importFile(file, path, name, signal);
    } catch (error) {
      if (isPicoletError(error, "unimplemented") || isPicoletError(error, "cancelled")) throw error;
      const failure = fileError(error, `cannot read ${path}`);
      const mend = failure.code === "corrupt" ? " (make or fetch the file again)" : "";
      throw withMessage(failure, `cannot import ${path}${mend}`, undefined);
    } finally {
      await file?.close();
    }
  }

  /** @returns undefined when there is no such file. */
  async copyOf(
    path: string,
    canonical: string,
    reason: string,
    signal: AbortSignal,
  ): Promise<ComponentBlob | undefined> {
    const { blobs, names } = this.#components;
    let file: FileHandle | undefined;
    try {
      file = await openNamed(path);
      const stats = await file.stat();
      if (!stats.isFile()) throw new PicoletError("invalid", `${path} is no regular file`);
      const { dev: device, ino: inode, size: sizeBytes, mtimeMs: modifiedAtMs } = stats;
      const source = { device, inode, sizeBytes, modifiedAtMs };
      const known = names.get(canonical);
      if (known?.source !== undefined && isSame(known.source, source)) {
        const blob = await blobs.get(known.sha256);
        if (blob !== undefined) return blob;
      }
      // It is asked for again and again: a copy each time would wear the flash out.
      blobs.refuseTooLarge(sizeBytes);
      const blob = await blobs.put(new FileBytes(file), undefined, signal);
      await names.set(canonical, { sha256: blob.sha256, source });
      return blob;
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return undefined;
      throw withMessage(fileError(error, `cannot read ${path}`), `cannot take the component ${path}`, reason);
    } finally {
      await file?.close();
    }
  }

  async #importFile(file: FileHandle, path: string, name: string | undefined, signal: AbortSignal): Promise<string[]> {
    const { blobs, names } = this.#components;
    const stats = await file.stat();
    const { buffer } = stats.isDirectory() ? { buffer: Buffer.alloc(0) } : await file.read(Buffer.alloc(4), 0, 4, 0);
    if (buffer.toString("latin1") === "\0asm") {
      const canonical = parseImportName(name, path);
      blobs.refuseTooLarge(stats.size);
      const { sha256 } = await blobs.put(new FileBytes(file), undefined, signal);
      await this.#refuseOtherDigest(canonical, sha256, undefined);
      await names.set(canonical, { sha256 });
      return [sha256];
    }
    // It brings zlib and streams with it, half a MiB that few agents ever need.
    const [{ filesOf }, { ImageArchive }] = await Promise.all([
      import("./archive-files.ts"),
      import("./image-archive.ts"),
    ]);
    const found = await new ImageArchive(await filesOf(file, path), signal).components(blobs);
    for (const { blob, names: given, manifestDigest } of found) {
      const canonicals = name === undefined ? given.map(parseArchiveName) : [];
      if (canonicals.length === 0) canonicals.push(parseImportName(name, path));
      for (const canonical of canonicals) {
        await this.#refuseOtherDigest(canonical, blob.sha256, manifestDigest);
        await names.set(canonical, { sha256: blob.sha256, manifestDigest });
      }
    }
    return found.map((each) => each.blob.sha256);
  }

  /** A name with a digest is of that content alone. */
  async #refuseOtherDigest(canonical: string, sha256: string, manifestDigest: string | undefined): Promise<void> {
    const wanted = /@(sha256:[0-9a-f]{64})$/.exec(canonical)?.[1];
    if (wanted === undefined || wanted === `sha256:${sha256}` || wanted === manifestDigest) return;
    if (!this.#components.names.hashes().has(sha256)) await this.#components.forget(sha256);
    const digests =
      manifestDigest === undefined ? `sha256:${sha256}` : `${manifestDigest}, the component sha256:${sha256}`;
    throw new PicoletError("invalid", `it is not what ${canonical} names: its digest is ${digests}`);
  }
}

const isSame = (one: SourceStamp, other: SourceStamp): boolean =>
  one.device === other.device &&
  one.inode === other.inode &&
  one.sizeBytes === other.sizeBytes &&
  one.modifiedAtMs === other.modifiedAtMs;
