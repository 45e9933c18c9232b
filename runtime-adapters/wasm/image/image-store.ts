/**
 * Components on this node by the names that pods give them, with no registry: imported files and archives, and
 * `file:///…` references, whose file is copied when it is first seen and each time it has changed.
 * Layout below the root: `components/` (see ComponentBlobs), `images/<hash of the name>.json`, `tmp/`.
 */
import { createHash } from "node:crypto";
import { type FileHandle, mkdir, open, readdir, readFile, rm } from "node:fs/promises";
import { isPicoletError, PicoletError } from "../../../protocol/errors.ts";
import { type ImageReference, parseImageReference } from "../../../protocol/image-reference.ts";
import type { Clock, Log } from "../../../protocol/ports.ts";
import type { ImageInfo, ImageService, PullOptions } from "../../contract/runtime-adapter.ts";
import { checkCancelled } from "../cancellation.ts";
import { errnoOf, fileError, syncDirectory, TemporaryNames, writeDurably } from "../files.ts";
import { type ComponentBlob, ComponentBlobs } from "./component-blobs.ts";
import { FileBytes } from "./file-bytes.ts";

export interface ImageStoreComponents {
  readonly clock: Pick<Clock, "wall">;
  readonly log: Log;
  /** Told of each component that is removed, so that what was made from it goes too. */
  readonly onRemoved: (sha256: string) => Promise<void>;
}

export interface ImageStoreInit {
  /** Absolute. */
  readonly rootDirectory: string;
  /** Default 64 MiB: a component that large takes some 350 MiB to transpile. */
  readonly maxComponentBytes?: number | undefined;
}

const DEFAULT_MAX_COMPONENT_BYTES = 64 * 1024 * 1024;
/** Names on one node; each is a small file and some 500 bytes of memory. */
const MAX_NAMES = 4096;

/** `images/<hash>.json` */
interface NameRecord {
  /** Canonical. */
  readonly name: string;
  readonly sha256: string;
  readonly manifestDigest: string | undefined;
  readonly importedAtMs: number;
  /** What the file of a `file://` reference was when it was copied. */
  readonly source: SourceStamp | undefined;
}

interface SourceStamp {
  readonly device: number;
  readonly inode: number;
  readonly sizeBytes: number;
  readonly modifiedAtMs: number;
}

export class ImageStore implements ImageService {
  readonly #components: ImageStoreComponents;
  readonly #root: string;
  readonly #temporaryNames: TemporaryNames;
  readonly #blobs: ComponentBlobs;
  readonly #names = new Map<string, NameRecord>();
  #opened: Promise<void> | undefined;

  constructor(components: ImageStoreComponents, init: ImageStoreInit) {
    this.#components = components;
    this.#root = init.rootDirectory;
    this.#temporaryNames = new TemporaryNames(`${this.#root}/tmp`);
    const maxBytes = init.maxComponentBytes ?? DEFAULT_MAX_COMPONENT_BYTES;
    this.#blobs = new ComponentBlobs(`${this.#root}/components`, this.#temporaryNames, maxBytes);
  }

  async list(signal: AbortSignal): Promise<readonly ImageInfo[]> {
    await this.#open(signal);
    const infos = await Promise.all([...new Set(this.#hashes())].map((sha256) => this.#info(sha256)));
    return infos.filter((info) => info !== undefined);
  }

  async status(reference: string, signal: AbortSignal): Promise<ImageInfo | undefined> {
    await this.#open(signal);
    const sha256 = /^(?:sha256:)?([0-9a-f]{64})$/.exec(reference)?.[1];
    if (sha256 !== undefined) return this.#info(sha256);
    const parsed = parseReference(reference);
    if (parsed.kind === "file") {
      const blob = await this.#copyOfFile(parsed.path, parsed.canonical, "ImageInspectError", signal);
      return blob === undefined ? undefined : this.#info(blob.sha256);
    }
    const record = this.#names.get(parsed.canonical) ?? this.#byDigest(parsed);
    return record === undefined ? undefined : this.#info(record.sha256);
  }

  async pull(reference: string, _options: PullOptions, signal: AbortSignal): Promise<ImageInfo> {
    await this.#open(signal);
    const parsed = parseReference(reference);
    if (parsed.kind === "file") {
      const blob = await this.#copyOfFile(parsed.path, parsed.canonical, "ErrImagePull", signal);
      const info = blob === undefined ? undefined : await this.#info(blob.sha256);
      if (info !== undefined) return info;
      throw new PicoletError("not_found", `cannot find the file ${parsed.path}`, { reason: "ErrImagePull" });
    }
    throw new PicoletError(
      "unimplemented",
      `cannot pull ${reference}: each container of such a pod is a WebAssembly component, and components come from no registry yet; bring it to the node with "edgectl image import" and let the pod say imagePullPolicy: IfNotPresent`,
      { reason: "ErrImagePull" },
    );
  }

  async import(path: string, name: string | undefined, signal: AbortSignal): Promise<readonly ImageInfo[]> {
    await this.#open(signal);
    let file: FileHandle | undefined;
    try {
      file = await open(path, "r");
      const imported = await this.#importFile(file, path, name, signal);
      const infos = await Promise.all([...new Set(imported)].map((sha256) => this.#info(sha256)));
      return infos.filter((info) => info !== undefined);
    } catch (error) {
      if (isPicoletError(error, "unimplemented") || isPicoletError(error, "cancelled")) throw error;
      throw wrapped(fileError(error, `cannot read ${path}`), `cannot import ${path}`, undefined);
    } finally {
      await file?.close();
    }
  }

  /** By name or by id; a component with no name left is removed with all that was made from it. */
  async remove(id: string, signal: AbortSignal): Promise<void> {
    await this.#open(signal);
    const asId = /^(?:sha256:)?([0-9a-f]{64})$/.exec(id)?.[1];
    const canonical = asId === undefined ? parseReference(id).canonical : undefined;
    const removed = [...this.#names.values()].filter((each) => each.sha256 === asId || each.name === canonical);
    for (const { name } of removed) {
      this.#names.delete(name);
      await rm(this.#recordPath(name), { force: true });
    }
    const orphans = new Set(removed.map((each) => each.sha256));
    if (asId !== undefined) orphans.add(asId);
    for (const sha256 of this.#hashes()) orphans.delete(sha256);
    for (const sha256 of orphans) await this.#forget(sha256);
  }

  /** The component of an image's id, for a container that is to be started. */
  async component(id: string, signal: AbortSignal): Promise<{ readonly path: string; readonly blob: ComponentBlob }> {
    await this.#open(signal);
    const sha256 = id.replace(/^sha256:/, "");
    const blob = await this.#blobs.get(sha256);
    if (blob === undefined)
      throw new PicoletError("not_found", `cannot find the image ${id}`, { reason: "CreateContainerError" });
    return { path: this.#blobs.path(sha256), blob };
  }

  async #forget(sha256: string): Promise<void> {
    await this.#blobs.remove(sha256);
    await this.#components.onRemoved(sha256);
  }

  *#hashes(): Generator<string, void> {
    for (const { sha256 } of this.#names.values()) yield sha256;
  }

  #byDigest(reference: Extract<ImageReference, { kind: "registry" }>): NameRecord | undefined {
    const { digest, domain, repository } = reference;
    if (digest === undefined) return undefined;
    const prefix = `${domain}/${repository}`;
    return [...this.#names.values()].find(
      ({ name, sha256, manifestDigest }) =>
        (manifestDigest === digest || `sha256:${sha256}` === digest) &&
        (name.startsWith(`${prefix}:`) || name.startsWith(`${prefix}@`)),
    );
  }

  async #info(sha256: string): Promise<ImageInfo | undefined> {
    const blob = await this.#blobs.get(sha256);
    if (blob === undefined) return undefined;
    const records = [...this.#names.values()].filter((each) => each.sha256 === sha256);
    if (records.length === 0) return undefined;
    const digests = records.flatMap(({ name, manifestDigest }) => {
      const repository = name.startsWith("file://") ? undefined : name.replace(/(?::[^:/]*)?(?:@.*)?$/, "");
      return repository === undefined ? [] : [`${repository}@${manifestDigest ?? `sha256:${sha256}`}`];
    });
    return {
      id: `sha256:${sha256}`,
      tags: records.map((each) => each.name),
      digests: [...new Set(digests)],
      sizeBytes: blob.sizeBytes,
      pinned: false,
    };
  }

  async #importFile(file: FileHandle, path: string, name: string | undefined, signal: AbortSignal): Promise<string[]> {
    const { buffer } = await file.read(Buffer.alloc(4), 0, 4, 0);
    if (buffer.toString("latin1") === "\0asm") {
      const canonical = parseImportName(name, path);
      const { sha256 } = await this.#blobs.put(new FileBytes(file), undefined, signal);
      await this.#name(canonical, { sha256 });
      return [sha256];
    }
    // It brings zlib and streams with it, half a MiB that few agents ever need.
    const { archiveKind, ImageArchive } = await import("./image-archive.ts");
    const kind = await archiveKind(file);
    if (kind === undefined) {
      throw new PicoletError("unimplemented", `${path} is neither a WebAssembly component nor an image archive`);
    }
    const found = await new ImageArchive(file, kind === "gzip", signal).components(this.#blobs);
    for (const { blob, names, manifestDigest } of found) {
      const canonicals = name === undefined ? names.map(parseArchiveName) : [];
      if (canonicals.length === 0) canonicals.push(parseImportName(name, path));
      for (const canonical of canonicals) await this.#name(canonical, { sha256: blob.sha256, manifestDigest });
    }
    return found.map((each) => each.blob.sha256);
  }

  /** @returns undefined when there is no such file. */
  async #copyOfFile(
    path: string,
    canonical: string,
    reason: string,
    signal: AbortSignal,
  ): Promise<ComponentBlob | undefined> {
    let file: FileHandle | undefined;
    try {
      file = await open(path, "r");
      const stats = await file.stat();
      if (!stats.isFile()) throw new PicoletError("invalid", `${path} is no regular file`);
      const { dev: device, ino: inode, size: sizeBytes, mtimeMs: modifiedAtMs } = stats;
      const source = { device, inode, sizeBytes, modifiedAtMs };
      const known = this.#names.get(canonical);
      if (known?.source !== undefined && isSame(known.source, source)) {
        const blob = await this.#blobs.get(known.sha256);
        if (blob !== undefined) return blob;
      }
      const blob = await this.#blobs.put(new FileBytes(file), undefined, signal);
      await this.#name(canonical, { sha256: blob.sha256, source });
      return blob;
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return undefined;
      throw wrapped(fileError(error, `cannot read ${path}`), `cannot take the component ${path}`, reason);
    } finally {
      await file?.close();
    }
  }

  /** Gives a stored component a name, which another one may have had; that one goes when the next agent starts. */
  async #name(
    name: string,
    about: { sha256: string; manifestDigest?: string | undefined; source?: SourceStamp },
  ): Promise<void> {
    const before = this.#names.get(name);
    if (before === undefined && this.#names.size >= MAX_NAMES) {
      throw new PicoletError("resource_exhausted", `cannot name more than ${MAX_NAMES} images`);
    }
    const { sha256, manifestDigest, source } = about;
    const record: NameRecord = {
      name,
      sha256,
      manifestDigest,
      importedAtMs: this.#components.clock.wall().getTime(),
      source,
    };
    await mkdir(`${this.#root}/images`, { recursive: true });
    await writeDurably(this.#recordPath(name), `${JSON.stringify(record)}\n`, this.#temporaryNames.next());
    this.#names.set(name, record);
  }

  #recordPath(name: string): string {
    return `${this.#root}/images/${createHash("sha256").update(name).digest("hex").slice(0, 40)}.json`;
  }

  /** Reads the names once. */
  async #open(signal: AbortSignal): Promise<void> {
    checkCancelled(signal, "the look at the images");
    this.#opened ??= this.#load().catch((error: unknown) => {
      this.#opened = undefined;
      throw fileError(error, `cannot read the images in ${this.#root}`);
    });
    await this.#opened;
  }

  async #load(): Promise<void> {
    // Half-written files of an agent that died.
    await rm(`${this.#root}/tmp`, { recursive: true, force: true });
    await mkdir(`${this.#root}/tmp`, { recursive: true });
    await mkdir(`${this.#root}/images`, { recursive: true });
    for (const entry of await readdir(`${this.#root}/images`)) {
      const path = `${this.#root}/images/${entry}`;
      const record = parseRecord(await readFile(path, "utf8"));
      if (record !== undefined && this.#names.size < MAX_NAMES) this.#names.set(record.name, record);
      else {
        this.#components.log.warn("an image record is unreadable and was removed", { path });
        await rm(path, { force: true });
      }
    }
    await this.#removeUnnamed();
    await syncDirectory(`${this.#root}/images`);
  }

  /** Stored, but the agent died before they got their name, or was renamed away from. */
  async #removeUnnamed(): Promise<void> {
    const named = new Set(this.#hashes());
    for (const sha256 of await this.#blobs.list()) if (!named.has(sha256)) await this.#forget(sha256);
  }
}

function parseReference(text: string): ImageReference {
  const parsed = parseImageReference(text);
  if (parsed.ok) return parsed.reference;
  throw new PicoletError("invalid", `cannot parse the image name ${JSON.stringify(text)}: ${parsed.problem}`, {
    reason: "InvalidImageName",
  });
}

function parseImportName(name: string | undefined, path: string): string {
  if (name === undefined)
    throw new PicoletError("invalid", `cannot name the image of ${path}: it brings no name, give one`);
  const reference = parseReference(name);
  if (reference.kind === "file") throw new PicoletError("invalid", "an imported image cannot have a file:// name");
  return reference.canonical;
}

const parseArchiveName = (name: string): string => parseImportName(name, name);

const isSame = (one: SourceStamp, other: SourceStamp): boolean =>
  one.device === other.device &&
  one.inode === other.inode &&
  one.sizeBytes === other.sizeBytes &&
  one.modifiedAtMs === other.modifiedAtMs;

/** Undefined for anything that this code did not write. */
function parseRecord(text: string): NameRecord | undefined {
  try {
    const record = JSON.parse(text) as NameRecord;
    return typeof record.name === "string" && /^[0-9a-f]{64}$/.test(record.sha256) ? record : undefined;
  } catch {
    return undefined;
  }
}

function wrapped(error: PicoletError, message: string, reason: string | undefined): PicoletError {
  if (error.code === "cancelled") return error;
  const { code, retryable } = error;
  return new PicoletError(code, message, { cause: error, retryable, ...(reason === undefined ? {} : { reason }) });
}
