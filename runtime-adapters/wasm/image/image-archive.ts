/**
 * Finds components in image archives: OCI image layouts (opencontainers/image-spec, image-layout.md) and `docker save`
 * archives, as artifacts (CNCF TAG Runtime, "WASM OCI Artifact layout") or as images that hold one `.wasm` file.
 * An archive is a stream: it is read once for its index and once more for each thing that the index leads to.
 */
import type { FileHandle } from "node:fs/promises";
import { isPicoletError, PicoletError } from "../../../protocol/errors.ts";
import { checkCancelled } from "../cancellation.ts";
import { gunzipped, HashedBytes, PeekedBytes, readAll } from "./byte-stream.ts";
import type { ComponentBlob, ComponentBlobs } from "./component-blobs.ts";
import { type ByteStream, FileBytes } from "./file-bytes.ts";
import {
  type BlobReference,
  damaged,
  type ImageCandidate,
  type IndexLine,
  MAX_IMAGES,
  parseDockerManifest,
  parseIndex,
  parseManifest,
} from "./image-manifests.ts";
import { type TarEntry, TarReader } from "./tar-reader.ts";

/** Of the manifests read at once; the specification's own limit for one. */
const MAX_MANIFEST_BYTES = 4 * 1024 * 1024;
/** An index may hold indexes; tools nest two. */
const MAX_INDEX_DEPTH = 3;
/** Uncompressed, of all layers looked through for a `.wasm` file. An image of a component has a few MiB. */
const MAX_SEARCHED_BYTES = 512 * 1024 * 1024;

export interface ArchivedComponent extends Pick<ImageCandidate, "names" | "manifestDigest"> {
  readonly blob: ComponentBlob;
}

export class ImageArchive {
  readonly #file: FileHandle;
  readonly #compressed: boolean;
  readonly #signal: AbortSignal;

  /** @param file stays open, and its owner's. */
  constructor(file: FileHandle, compressed: boolean, signal: AbortSignal) {
    this.#file = file;
    this.#compressed = compressed;
    this.#signal = signal;
  }

  /** Stores every component there is. @throws `unimplemented` when there is none: an image for another runtime. */
  async components(blobs: ComponentBlobs): Promise<readonly ArchivedComponent[]> {
    const found: ArchivedComponent[] = [];
    for (const { content, names, manifestDigest } of await this.#images()) {
      const blob =
        content.kind === "artifact"
          ? await this.#storeArtifact(content.component, blobs)
          : await this.#storeFromLayers(content.layers, blobs);
      if (blob !== undefined) found.push({ blob, names, manifestDigest });
    }
    if (found.length === 0) throw new PicoletError("unimplemented", "the archive holds no WebAssembly component");
    return found;
  }

  async #images(): Promise<readonly ImageCandidate[]> {
    const files = await this.#collect(new Set(["index.json", "manifest.json"]));
    const index = files.get("index.json");
    if (index !== undefined) return this.#imagesOf(parseIndex(index));
    const manifest = files.get("manifest.json");
    if (manifest !== undefined) return parseDockerManifest(manifest);
    throw new PicoletError("unimplemented", "the archive is neither an OCI image layout nor made by docker save");
  }

  async #imagesOf(index: readonly IndexLine[]): Promise<readonly ImageCandidate[]> {
    const images: ImageCandidate[] = [];
    let lines = index;
    for (let depth = 0; depth < MAX_INDEX_DEPTH && lines.length > 0; depth += 1) {
      if (images.length + lines.length > MAX_IMAGES) {
        throw new PicoletError("resource_exhausted", `the archive holds more than ${MAX_IMAGES} images`);
      }
      const blobs = await this.#collect(new Set(lines.map((each) => each.entry)));
      const next: IndexLine[] = [];
      for (const line of lines) {
        const content = blobs.get(line.entry);
        // An archive of one platform keeps the index of all.
        if (content === undefined && depth > 0) continue;
        if (content === undefined) throw damaged(`${line.entry} is missing`);
        const { lines: more, image } = parseManifest(content, line);
        next.push(...more);
        if (image !== undefined) images.push(image);
      }
      lines = next;
    }
    return images;
  }

  #storeArtifact({ entry, sha256 }: BlobReference, blobs: ComponentBlobs): Promise<ComponentBlob> {
    return this.#withEntry(entry, ({ content }) => blobs.put(content, sha256, this.#signal));
  }

  /** The image's only `.wasm` file; undefined when it has none, or several, or is too large to be looked through. */
  async #storeFromLayers(layers: readonly BlobReference[], blobs: ComponentBlobs): Promise<ComponentBlob | undefined> {
    const budget = { leftBytes: MAX_SEARCHED_BYTES };
    const places: { readonly layer: string; readonly name: string }[] = [];
    for (const layer of layers) {
      const names = await this.#withEntry(layer.entry, (blob) => this.#wasmFiles(blob, layer.sha256, budget));
      places.push(...(names ?? []).map((name) => ({ layer: layer.entry, name })));
      if (names === undefined || places.length > 1) return undefined;
    }
    const [place] = places;
    if (place === undefined) return undefined;
    return this.#withEntry(place.layer, async (layer) => {
      await using content = await layerContent(layer.content);
      const entry = await find(new TarReader(content), (each) => each.name === place.name);
      if (entry === undefined) throw damaged(`${place.name} is missing`);
      return blobs.put(entry.content, undefined, this.#signal);
    });
  }

  /** Names of the `.wasm` files of one layer, whose digest is checked on the way; undefined when the budget is spent. */
  async #wasmFiles(
    blob: TarEntry,
    sha256: string | undefined,
    budget: { leftBytes: number },
  ): Promise<string[] | undefined> {
    const hashed = new HashedBytes(blob.content);
    const names: string[] = [];
    {
      await using content = await layerContent(hashed);
      const reader = new TarReader(content);
      for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
        checkCancelled(this.#signal, "the import");
        budget.leftBytes -= entry.sizeBytes;
        if (budget.leftBytes < 0) return undefined;
        if (entry.kind === "file" && entry.name.endsWith(".wasm")) names.push(entry.name);
      }
    }
    if (sha256 !== undefined && sha256 !== (await hashed.finish())) {
      throw damaged(`${blob.name} has another content than its name says`);
    }
    return names;
  }

  /** The entries of these names, as far as they are there. */
  async #collect(wanted: ReadonlySet<string>): Promise<ReadonlyMap<string, Buffer>> {
    const found = new Map<string, Buffer>();
    let left = MAX_MANIFEST_BYTES;
    await using stream = this.#open();
    const reader = new TarReader(stream);
    while (found.size < wanted.size) {
      checkCancelled(this.#signal, "the import");
      const entry = await find(reader, (each) => wanted.has(each.name) && !found.has(each.name));
      if (entry === undefined) break;
      const content = await readAll(entry.content, left, "the archive's index");
      left -= content.length;
      found.set(entry.name, content);
    }
    return found;
  }

  async #withEntry<T>(name: string, use: (entry: TarEntry) => Promise<T>): Promise<T> {
    await using stream = this.#open();
    const entry = await find(new TarReader(stream), (each) => each.name === name);
    if (entry === undefined) throw damaged(`${name} is missing`);
    return use(entry);
  }

  #open(): ByteStream {
    const bytes = new FileBytes(this.#file);
    return this.#compressed ? gunzipped(bytes) : bytes;
  }
}

async function find(reader: TarReader, matches: (entry: TarEntry) => boolean): Promise<TarEntry | undefined> {
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    if (entry.kind === "file" && matches(entry)) return entry;
  }
  return undefined;
}

/** A layer is a tar, most often compressed. */
async function layerContent(blob: ByteStream): Promise<ByteStream> {
  const peeked = new PeekedBytes(blob);
  const start = await peeked.start();
  if (start[0] === 0x1f && start[1] === 0x8b) return gunzipped(peeked);
  if (start[0] === 0x28 && start[1] === 0xb5) {
    throw new PicoletError("unimplemented", "the image has layers compressed with zstd, only gzip is read");
  }
  return peeked;
}

/** Whether a file may be an archive that `ImageArchive` reads, and whether it is compressed, from its first block. */
export async function archiveKind(file: FileHandle): Promise<"tar" | "gzip" | undefined> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(2), 0, 2, 0);
  if (bytesRead === 2 && buffer[0] === 0x1f && buffer[1] === 0x8b) return "gzip";
  try {
    return (await new TarReader(new FileBytes(file)).next()) === undefined ? undefined : "tar";
  } catch (error) {
    if (isPicoletError(error, "corrupt")) return undefined;
    throw error;
  }
}
