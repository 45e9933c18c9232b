/**
 * Components on this node by the names that pods give them: pulled ones, imported files and archives, and `file:///…`
 * references, whose file is copied when it is first seen and each time it has changed.
 * Layout below the root: `components/` (see ComponentBlobs), `images/<hash of the name>.json`, `pulls/` (see
 * RegistryPulls), `tmp/`.
 */
import { createHash } from "node:crypto";
import { type FileHandle, mkdir, readdir, readFile, rm } from "node:fs/promises";
import { isPicoletError, PicoletError } from "../../../protocol/errors.ts";
import { type ImageReference, parseImageReference } from "../../../protocol/image-reference.ts";
import type { Clock, Log } from "../../../protocol/ports.ts";
import type { CgroupPort } from "../../contract/cgroups.ts";
import type {
  ImageHoldings,
  ImageInfo,
  ImagePlatforms,
  ImageService,
  PullOptions,
  PullProgress,
} from "../../contract/runtime-adapter.ts";
import { checkCancelled } from "../cancellation.ts";
import { errnoOf, fileError, openNamed, syncDirectory, TemporaryNames, writeDurably } from "../files.ts";
import { COMPONENT_PLATFORM, platformsOf } from "../pull/platforms.ts";
import type { RegistryPulls, RegistryPullsInit } from "../pull/registry-pulls.ts";
import type { PulledComponent } from "../pull/request.ts";
import { type ComponentBlob, ComponentBlobs } from "./component-blobs.ts";
import { FileBytes } from "./file-bytes.ts";

export interface ImageStoreComponents {
  readonly clock: Pick<Clock, "wall" | "sleep">;
  readonly log: Log;
  /** For what pulls take. */
  readonly cgroups?: CgroupPort | undefined;
  /** Told of each component that is removed, so that what was made from it goes too. */
  readonly onRemoved: (sha256: string) => Promise<void>;
  /** Of which containers are made, whether they run or not. Missing: there are none. */
  readonly used?: () => Promise<Iterable<string>>;
  /** Bytes of what was made from each component; what was made from others is taken away. Missing: nothing ever is. */
  readonly derived?: (components: ReadonlySet<string>) => Promise<ReadonlyMap<string, number>>;
}

export interface ImageStoreInit {
  /** Absolute. */
  readonly rootDirectory: string;
  /** Default 64 MiB: a component that large takes some 350 MiB to transpile. */
  readonly maxComponentBytes?: number | undefined;
  /** Missing: nothing is pulled. */
  readonly pulls?: RegistryPullsInit | undefined;
  /** Whether components of WASI 0.3 are taken. */
  readonly p3?: boolean | undefined;
}

const DEFAULT_MAX_COMPONENT_BYTES = 64 * 1024 * 1024;
/** Names on one node; each is a small file and some 500 bytes of memory. */
const MAX_NAMES = 4096;

/** Told to one pull. */
const MAX_KNOWN = 256;

/** `images/<hash>.json` */
interface NameRecord {
  /** Canonical. */
  readonly name: string;
  readonly sha256: string;
  /** What the name stands for: of an index, where there is one. */
  readonly manifestDigest: string | undefined;
  /** Of the manifest in that index which leads to the component. */
  readonly entryDigest?: string | undefined;
  /** What else there is by this name: `linux/arm64`. Only of pulled ones. */
  readonly platforms?: readonly string[] | undefined;
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
  readonly #maxComponentBytes: number;
  readonly #pullsInit: RegistryPullsInit | undefined;
  #pulls: RegistryPulls | undefined;
  readonly #names = new Map<string, NameRecord>();
  #opened: Promise<void> | undefined;

  constructor(components: ImageStoreComponents, init: ImageStoreInit) {
    this.#components = components;
    this.#root = init.rootDirectory;
    this.#temporaryNames = new TemporaryNames(`${this.#root}/tmp`);
    this.#maxComponentBytes = init.maxComponentBytes ?? DEFAULT_MAX_COMPONENT_BYTES;
    this.#pullsInit = init.pulls;
    this.#blobs = new ComponentBlobs(
      `${this.#root}/components`,
      this.#temporaryNames,
      this.#maxComponentBytes,
      init.p3 ?? false,
    );
  }

  /** Components are in one file each, and write nothing to a file system of their own. */
  async filesystems(signal: AbortSignal): ReturnType<NonNullable<ImageService["filesystems"]>> {
    const images = await this.list(signal);
    const usedBytes = images.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const folder = { mountPoint: this.#root, usedBytes, inodesUsed: images.length };
    return { images: folder, containers: { ...folder, usedBytes: 0, inodesUsed: 0 } };
  }

  /** Also those whose name is another's now, as container runtimes do. */
  async list(signal: AbortSignal): Promise<readonly ImageInfo[]> {
    await this.#open(signal);
    const infos = await Promise.all((await this.#blobs.list()).map((sha256) => this.#info(sha256, "unnamed too")));
    return infos.filter((info) => info !== undefined);
  }

  async holdings(signal: AbortSignal): Promise<ImageHoldings> {
    await this.#open(signal);
    const { used, derived } = this.#components;
    const sizes = await derived?.(new Set(await this.#blobs.list()));
    const ids = (hashes: Iterable<string>): string[] => [...hashes].map((sha256) => `sha256:${sha256}`);
    return {
      used: new Set(ids((await used?.()) ?? [])),
      derivedBytes: new Map([...(sizes ?? [])].map(([sha256, bytes]) => [`sha256:${sha256}`, bytes])),
    };
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

  async pull(reference: string, options: PullOptions, signal: AbortSignal): Promise<ImageInfo> {
    await this.#open(signal);
    const parsed = parseReference(reference);
    if (parsed.kind === "file") {
      const blob = await this.#copyOfFile(parsed.path, parsed.canonical, "ErrImagePull", signal);
      const info = blob === undefined ? undefined : await this.#info(blob.sha256);
      if (info !== undefined) return info;
      throw new PicoletError("not_found", `cannot find the file ${parsed.path}`, { reason: "ErrImagePull" });
    }
    try {
      const pulls = await this.#registryPulls();
      const adopt = (component: PulledComponent): Promise<string> => this.#adopt(parsed.canonical, component);
      const sha256 = await pulls.pull(parsed, options, await this.#known(), adopt, signal);
      const info = await this.#info(sha256);
      if (info !== undefined) return info;
      throw new PicoletError("failed", "it was removed at once", { retryable: true });
    } catch (error) {
      throw wrapped(fileError(error, "cannot store it"), `cannot pull ${reference}`, "ErrImagePull");
    }
  }

  async progress(reference: string): Promise<PullProgress | undefined> {
    return this.#pulls?.progress(parseReference(reference).canonical);
  }

  /** What the registry has, or, while it cannot be reached, what it had when the component was pulled. */
  async platforms(reference: string, options: PullOptions, signal: AbortSignal): Promise<ImagePlatforms> {
    await this.#open(signal);
    const parsed = parseReference(reference);
    if (parsed.kind === "file") return platformsOf([COMPONENT_PLATFORM]);
    try {
      return platformsOf(await (await this.#registryPulls()).platforms(parsed, options, signal));
    } catch (error) {
      const record = this.#names.get(parsed.canonical) ?? this.#byDigest(parsed);
      if (isPicoletError(error, "unavailable") && record !== undefined)
        return platformsOf(record.platforms ?? [COMPONENT_PLATFORM]);
      throw wrapped(fileError(error, "cannot ask"), `cannot tell what ${reference} holds`, "ErrImagePull");
    }
  }

  async #registryPulls(): Promise<RegistryPulls> {
    if (this.#pulls !== undefined) return this.#pulls;
    const init = this.#pullsInit;
    if (init === undefined) throw new PicoletError("unimplemented", "this node pulls no components from registries");
    // With Node's child processes, which an agent without components does not need.
    const { RegistryPulls } = await import("../pull/registry-pulls.ts");
    const { clock, log, cgroups } = this.#components;
    const place = { directory: `${this.#root}/pulls`, maxComponentBytes: this.#maxComponentBytes };
    this.#pulls ??= new RegistryPulls({ clock, log, cgroups }, init, place);
    return this.#pulls;
  }

  /** What need not be pulled again, by the manifest that leads to it. */
  async #known(): Promise<Readonly<Record<string, string>>> {
    const here = new Set(await this.#blobs.list());
    const records = [...this.#names.values()].filter(({ sha256 }) => here.has(sha256)).slice(0, MAX_KNOWN);
    return Object.fromEntries(
      records.flatMap(({ sha256, entryDigest }) => (entryDigest === undefined ? [] : [[entryDigest, sha256]])),
    );
  }

  async #adopt(canonical: string, { sha256, path, digest, ...more }: PulledComponent): Promise<string> {
    const blob = path === undefined ? await this.#blobs.get(sha256) : await this.#blobs.adopt(path, sha256);
    if (blob === undefined)
      throw new PicoletError("failed", "the component was removed meanwhile", { retryable: true });
    const { manifestDigest: entryDigest, platforms } = more;
    await this.#name(canonical, { sha256, manifestDigest: digest, entryDigest, platforms });
    return sha256;
  }

  async import(path: string, name: string | undefined, signal: AbortSignal): Promise<readonly ImageInfo[]> {
    await this.#open(signal);
    let file: FileHandle | undefined;
    try {
      file = await openNamed(path);
      const imported = await this.#importFile(file, path, name, signal);
      const infos = await Promise.all([...new Set(imported)].map((sha256) => this.#info(sha256)));
      return infos.filter((info) => info !== undefined);
    } catch (error) {
      if (isPicoletError(error, "unimplemented") || isPicoletError(error, "cancelled")) throw error;
      const failure = fileError(error, `cannot read ${path}`);
      const mend = failure.code === "corrupt" ? " (make or fetch the file again)" : "";
      throw wrapped(failure, `cannot import ${path}${mend}`, undefined);
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
      ({ name, sha256, manifestDigest, entryDigest }) =>
        (manifestDigest === digest || entryDigest === digest || `sha256:${sha256}` === digest) &&
        (name.startsWith(`${prefix}:`) || name.startsWith(`${prefix}@`)),
    );
  }

  async #info(sha256: string, which?: "unnamed too"): Promise<ImageInfo | undefined> {
    const blob = await this.#blobs.get(sha256);
    if (blob === undefined) return undefined;
    const records = [...this.#names.values()].filter((each) => each.sha256 === sha256);
    if (records.length === 0 && which === undefined) return undefined;
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
    const stats = await file.stat();
    const { buffer } = stats.isDirectory() ? { buffer: Buffer.alloc(0) } : await file.read(Buffer.alloc(4), 0, 4, 0);
    if (buffer.toString("latin1") === "\0asm") {
      const canonical = parseImportName(name, path);
      this.#blobs.refuseTooLarge(stats.size);
      const { sha256 } = await this.#blobs.put(new FileBytes(file), undefined, signal);
      await this.#refuseOtherDigest(canonical, sha256, undefined);
      await this.#name(canonical, { sha256 });
      return [sha256];
    }
    // It brings zlib and streams with it, half a MiB that few agents ever need.
    const [{ filesOf }, { ImageArchive }] = await Promise.all([
      import("./archive-files.ts"),
      import("./image-archive.ts"),
    ]);
    const found = await new ImageArchive(await filesOf(file, path), signal).components(this.#blobs);
    for (const { blob, names, manifestDigest } of found) {
      const canonicals = name === undefined ? names.map(parseArchiveName) : [];
      if (canonicals.length === 0) canonicals.push(parseImportName(name, path));
      for (const canonical of canonicals) {
        await this.#refuseOtherDigest(canonical, blob.sha256, manifestDigest);
        await this.#name(canonical, { sha256: blob.sha256, manifestDigest });
      }
    }
    return found.map((each) => each.blob.sha256);
  }

  /** A name with a digest is of that content alone. */
  async #refuseOtherDigest(canonical: string, sha256: string, manifestDigest: string | undefined): Promise<void> {
    const wanted = /@(sha256:[0-9a-f]{64})$/.exec(canonical)?.[1];
    if (wanted === undefined || wanted === `sha256:${sha256}` || wanted === manifestDigest) return;
    if (!new Set(this.#hashes()).has(sha256)) await this.#forget(sha256);
    const digests =
      manifestDigest === undefined ? `sha256:${sha256}` : `${manifestDigest}, the component sha256:${sha256}`;
    throw new PicoletError("invalid", `it is not what ${canonical} names: its digest is ${digests}`);
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
      file = await openNamed(path);
      const stats = await file.stat();
      if (!stats.isFile()) throw new PicoletError("invalid", `${path} is no regular file`);
      const { dev: device, ino: inode, size: sizeBytes, mtimeMs: modifiedAtMs } = stats;
      const source = { device, inode, sizeBytes, modifiedAtMs };
      const known = this.#names.get(canonical);
      if (known?.source !== undefined && isSame(known.source, source)) {
        const blob = await this.#blobs.get(known.sha256);
        if (blob !== undefined) return blob;
      }
      // It is asked for again and again: a copy each time would wear the flash out.
      this.#blobs.refuseTooLarge(sizeBytes);
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
  async #name(name: string, about: Pick<NameRecord, "sha256"> & Partial<NameRecord>): Promise<void> {
    const before = this.#names.get(name);
    if (before === undefined && this.#names.size >= MAX_NAMES) {
      throw new PicoletError("resource_exhausted", `cannot name more than ${MAX_NAMES} images`);
    }
    const importedAtMs = this.#components.clock.wall().getTime();
    const record: NameRecord = { manifestDigest: undefined, source: undefined, ...about, name, importedAtMs };
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
