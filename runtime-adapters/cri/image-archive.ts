/**
 * What is in a container image archive, read without unpacking it: the docker format (`manifest.json`) and the OCI
 * layout (`index.json`), as a tar file, plain or gzipped. Large blobs are skipped, not read.
 */
import { constants, createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { imageFileKind } from "@picolet/runtime-contract/image-file-kind.ts";

export interface ImageArchive {
  readonly gzipped: boolean;
  /** One entry for each image: the names it brings, none when it brings none. */
  readonly images: readonly (readonly string[])[];
}

const BLOCK_BYTES = 512;
/** Of `index.json` or `manifest.json`; a larger one counts as missing. One of 100 images with 100 layers has 1 MiB. */
const MAX_INDEX_BYTES = 4 * 1024 * 1024;
/** Of a blob that may be a manifest: one of 100 layers has 20 KiB. */
const MAX_MANIFEST_BYTES = 128 * 1024;
/** Of all such blobs together, small layers among them. Later ones are not looked at and taken for a container's. */
const MAX_MANIFESTS_BYTES = 4 * 1024 * 1024;
/** An archive has a few entries for each layer; more than this is none of ours. */
const MAX_ENTRIES = 100_000;
const DOCUMENT_NAME = /^(?:\.\/)?(manifest\.json|index\.json|oci-layout|blobs\/sha256\/[0-9a-f]{64})$/;
const WASM_CONFIG_TYPE = "application/vnd.wasm.config.v0+json";

const unusable = (path: string, why: string): PicoletError =>
  new PicoletError("unimplemented", `cannot import ${path} as a container image: ${why}`);

const unreadable = (path: string): string => `cannot read the archive ${path} (make or fetch the file again)`;

/**
 * @throws `unimplemented` for a file that is no archive of container images, `not_found` and the like for one that
 * cannot be read, `corrupt` for an archive that is damaged.
 */
export async function readImageArchive(path: string, signal: AbortSignal): Promise<ImageArchive> {
  const head = await readHead(path);
  const gzipped = head[0] === 0x1f && head[1] === 0x8b;
  if (!gzipped && head.toString("latin1", 257, 262) !== "ustar") throw unusable(path, imageFileKind(head, "plain"));
  const documents = new Documents();
  try {
    await scan(path, gzipped, documents, signal);
  } catch (error) {
    if (signal.aborted) throw new PicoletError("cancelled", `the import of ${path} was cancelled`);
    if (isPicoletError(error) && error.code !== "corrupt") throw error;
    if (error instanceof NoTar && gzipped) throw unusable(path, imageFileKind(error.start, "in gzip"));
    const isCut = errnoOf(error) === "Z_BUF_ERROR";
    throw new PicoletError("corrupt", unreadable(path), { cause: isCut ? "it is cut off" : error });
  }
  return { gzipped, images: imagesIn(path, documents.found) };
}

async function readHead(path: string): Promise<Buffer> {
  try {
    // Opening a pipe would wait for somebody to write to it, and the agent's one thread for files with it.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    const stats = await file.stat();
    if (!stats.isFile() && !stats.isDirectory()) throw new Error("it is no regular file");
    const head = Buffer.alloc(BLOCK_BYTES);
    const { bytesRead } = await file.read(head, 0, BLOCK_BYTES, 0);
    return head.subarray(0, bytesRead);
  } catch (cause) {
    const code = errnoOf(cause);
    // The folder of an image layout: components are imported from one, ctr imports files.
    if (code === "EISDIR") throw unusable(path, "it is a folder; pack it with tar");
    const known = code === "ENOENT" ? "not_found" : code === "EACCES" ? "permission_denied" : "invalid";
    throw new PicoletError(known, `cannot read ${path}`, { cause });
  }
}

async function scan(path: string, gzipped: boolean, documents: Documents, signal: AbortSignal): Promise<void> {
  const tar = new TarScanner(documents);
  if (gzipped) {
    await pipeline(
      createReadStream(path),
      createGunzip(),
      async (source: AsyncIterable<Buffer>) => {
        for await (const chunk of source) tar.feed(chunk);
      },
      { signal },
    );
    tar.end();
    return;
  }
  await using file = await open(path);
  const { size } = await file.stat();
  const chunk = Buffer.alloc(64 * 1024);
  let position = 0;
  for (;;) {
    signal.throwIfAborted();
    const { bytesRead } = await file.read(chunk, 0, chunk.length, position);
    if (bytesRead === 0) break;
    tar.feed(chunk.subarray(0, bytesRead));
    position += bytesRead;
    position += tar.takeSkippable();
  }
  if (position > size) throw new PicoletError("corrupt", "it is cut off");
  tar.end();
}

/** What should be an archive begins with this. */
class NoTar extends Error {
  readonly start: Uint8Array;

  constructor(start: Uint8Array) {
    super("it is no tar archive");
    this.start = start;
  }
}

/** Keeps the small entries whose names we know. */
class Documents {
  readonly found = new Map<string, Buffer>();
  #blobBytes = 0;

  /** @returns the name to keep it under, `undefined` when it is of no interest. */
  wants(name: string, size: number): string | undefined {
    const known = DOCUMENT_NAME.exec(name)?.[1];
    if (known === undefined) return undefined;
    if (!known.startsWith("blobs/")) return size <= MAX_INDEX_BYTES ? known : undefined;
    if (size > MAX_MANIFEST_BYTES || this.#blobBytes + size > MAX_MANIFESTS_BYTES) return undefined;
    this.#blobBytes += size;
    return known;
  }

  add(name: string, content: Buffer): void {
    this.found.set(name, content);
  }
}

/**
 * Entries of a tar stream (POSIX ustar; longer names of GNU and pax belong to entries that are of no interest here).
 */
class TarScanner {
  readonly #documents: Documents;
  readonly #header = Buffer.alloc(BLOCK_BYTES);
  #headerFilled = 0;
  /** Of the current entry's content, padding included. */
  #remaining = 0;
  #document: { readonly name: string; readonly content: Buffer; filled: number } | undefined;
  #entries = 0;

  constructor(documents: Documents) {
    this.#documents = documents;
  }

  /** Content that nobody wants and that need not even be read: how many bytes to go ahead. */
  takeSkippable(): number {
    if (this.#document !== undefined) return 0;
    const skipped = this.#remaining;
    this.#remaining = 0;
    return skipped;
  }

  feed(chunk: Buffer): void {
    let position = 0;
    while (position < chunk.length) {
      if (this.#remaining > 0) {
        const taken = Math.min(this.#remaining, chunk.length - position);
        this.#content(chunk.subarray(position, position + taken));
        position += taken;
        continue;
      }
      const taken = Math.min(BLOCK_BYTES - this.#headerFilled, chunk.length - position);
      chunk.copy(this.#header, this.#headerFilled, position, position + taken);
      this.#headerFilled += taken;
      position += taken;
      if (this.#headerFilled === BLOCK_BYTES) this.#entry();
    }
  }

  end(): void {
    if (this.#entries === 0 && this.#headerFilled > 0) throw new NoTar(this.#header.subarray(0, this.#headerFilled));
    if (this.#remaining > 0 || this.#headerFilled > 0) throw new PicoletError("corrupt", "it is cut off");
  }

  #entry(): void {
    this.#headerFilled = 0;
    if (this.#header.every((byte) => byte === 0)) return;
    this.#entries += 1;
    if (this.#entries > MAX_ENTRIES) {
      throw new PicoletError("resource_exhausted", `cannot read an archive of more than ${MAX_ENTRIES} entries`);
    }
    if (this.#entries === 1 && !isChecksumRight(this.#header)) throw new NoTar(this.#header);
    verifyChecksum(this.#header);
    const size = sizeIn(this.#header);
    const type = this.#header[156] ?? 0;
    const isFile = type === 0 || type === 0x30;
    const name = textIn(this.#header, 0, 100);
    this.#remaining = Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES;
    const wanted = isFile ? this.#documents.wants(name, size) : undefined;
    if (wanted === undefined) return;
    this.#document = { name: wanted, content: Buffer.alloc(size), filled: 0 };
    if (size === 0) this.#finish();
  }

  #content(piece: Buffer): void {
    this.#remaining -= piece.length;
    const document = this.#document;
    if (document === undefined) return;
    document.filled += piece.copy(document.content, document.filled);
    if (this.#remaining === 0) this.#finish();
  }

  #finish(): void {
    if (this.#document !== undefined) this.#documents.add(this.#document.name, this.#document.content);
    this.#document = undefined;
  }
}

function textIn(header: Buffer, start: number, length: number): string {
  const end = header.indexOf(0, start);
  return header.toString("utf8", start, end >= start && end < start + length ? end : start + length);
}

/** Octal, or binary with the first bit set. */
function sizeIn(header: Buffer): number {
  if (((header[124] ?? 0) & 0x80) !== 0) {
    const large = header.readBigUInt64BE(128);
    if (large <= BigInt(Number.MAX_SAFE_INTEGER)) return Number(large);
  } else {
    const octal = textIn(header, 124, 12).trim();
    if (/^[0-7]*$/.test(octal)) return Number.parseInt(octal || "0", 8);
  }
  throw new PicoletError("corrupt", "an entry's size is no number");
}

function verifyChecksum(header: Buffer): void {
  if (!isChecksumRight(header)) throw new PicoletError("corrupt", "an entry's checksum is wrong");
}

function isChecksumRight(header: Buffer): boolean {
  let sum = 0;
  for (const [index, byte] of header.entries()) sum += index >= 148 && index < 156 ? 0x20 : byte;
  return Number.parseInt(textIn(header, 148, 8).trim(), 8) === sum;
}

type Images = ImageArchive["images"];

function imagesIn(path: string, documents: ReadonlyMap<string, Buffer>): Images {
  const index = documents.get("index.json");
  const docker = documents.get("manifest.json");
  // `docker save` writes both; containerd prefers the layout when there is one.
  if (index !== undefined && documents.has("oci-layout")) return ociImages(path, index, documents);
  if (docker === undefined) throw unusable(path, "it holds neither manifest.json nor an OCI layout");
  const images = asList(parse(path, docker)).map((each) => asTexts(field(each, "RepoTags")));
  if (images.length === 0) throw unusable(path, "it holds no image");
  return images;
}

function ociImages(path: string, index: Buffer, documents: ReadonlyMap<string, Buffer>): Images {
  const manifests = asList(field(parse(path, index), "manifests"));
  const images = manifests
    .filter((each) => !isComponent(path, each, documents))
    .map((each) => {
      const annotations = field(each, "annotations");
      const name =
        field(annotations, "io.containerd.image.name") ?? field(annotations, "org.opencontainers.image.ref.name");
      // A tag alone is no name.
      return typeof name === "string" && /[/:@]/.test(name) ? [name] : [];
    });
  if (images.length === 0) throw unusable(path, manifests.length === 0 ? "it holds no image" : "it holds a component");
  return images;
}

/** An OCI artifact with a WebAssembly component is for another runtime. */
function isComponent(path: string, descriptor: unknown, documents: ReadonlyMap<string, Buffer>): boolean {
  const digest = field(descriptor, "digest");
  const manifest = typeof digest === "string" ? documents.get(`blobs/${digest.replace(":", "/")}`) : undefined;
  return manifest !== undefined && field(field(parse(path, manifest), "config"), "mediaType") === WASM_CONFIG_TYPE;
}

function parse(path: string, document: Buffer): unknown {
  try {
    return JSON.parse(document.toString("utf8"));
  } catch (cause) {
    throw new PicoletError("corrupt", `cannot read the manifests in ${path}`, { cause });
  }
}

function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined;
}

const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const asTexts = (value: unknown): readonly string[] => asList(value).filter((each) => typeof each === "string");
