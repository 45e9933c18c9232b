/** Finds the one `.wasm` file of an image in its layers, which are tar archives, most often compressed. */
import { checkCancelled } from "@picolet/protocol/async/abort.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { decompressStream, HashedBytes } from "@picolet/runtime-contract/archive/byte-stream.ts";
import type { ByteStream } from "@picolet/runtime-contract/archive/file-bytes.ts";
import { type BlobReference, damaged } from "@picolet/runtime-contract/archive/image-manifests.ts";
import { TarReader } from "@picolet/runtime-contract/archive/tar-reader.ts";

/** Reads a layer from its start. */
export type OpenLayer = <T>(layer: BlobReference, use: (content: ByteStream) => Promise<T>) => Promise<T>;

/** Uncompressed, of all layers, with the headers of their files. An image of a component has a few MiB. */
const MAX_SEARCHED_BYTES = 512 * MEBIBYTE;
const HEADER_BYTES = 512;
/**
 * Bounds files that may be the component. They are kept until the last layer is read, since an upper one may remove
 * some.
 */
const MAX_CANDIDATES = 64;
/** PATH_MAX: no tool can unpack a longer name. */
const MAX_NAME_BYTES = 4096;
/** Bounds a name in a message. */
const SHOWN_LENGTH = 100;
/** Overlay whiteouts (image-spec, layer.md) remove files of the layers below. */
const WHITEOUT = ".wh.";
const OPAQUE = ".wh..wh..opq";

interface Place {
  readonly layer: BlobReference;
  readonly name: string;
}

export type Search<T> =
  | { readonly kind: "found"; readonly component: T }
  | { readonly kind: "none"; readonly why: string };

/**
 * @param layers the lowest first
 * @param take given the component's content, and its size as the archive has it
 * @returns why none, when there is none, several, or too much to be looked through
 * @throws `corrupt` for layers that are damaged
 */
export async function findInLayers<T>(
  layers: readonly BlobReference[],
  open: OpenLayer,
  take: (content: ByteStream, sizeBytes: number) => Promise<T>,
  signal: AbortSignal,
): Promise<Search<T>> {
  const search = new LayerSearch(signal);
  for (const layer of layers) {
    const why = await open(layer, (content) => search.look(layer, content));
    if (why !== undefined) return { kind: "none", why };
  }
  const [place, another] = search.places.values();
  if (place === undefined) return { kind: "none", why: "none of its files is a .wasm file" };
  if (another !== undefined) {
    const names = [place, another].map(({ name }) => JSON.stringify(name.slice(-SHOWN_LENGTH)));
    return { kind: "none", why: `it has ${search.places.size} .wasm files, ${names.join(" and ")} among them` };
  }
  const component = await open(place.layer, async (layer) => {
    await using content = await decompressStream(layer);
    const reader = new TarReader(content);
    let entry = await reader.next();
    // A runtime would keep the last file of a name. No tool writes two.
    while (entry !== undefined && !(entry.kind === "file" && entry.name === place.name)) entry = await reader.next();
    if (entry === undefined) throw damaged(`${place.name} is missing`);
    // Awaited here, because the content would otherwise be read after the layer has been closed.
    return await take(entry.content, entry.sizeBytes);
  });
  return { kind: "found", component };
}

class LayerSearch {
  /** By the file's name. */
  readonly places = new Map<string, Place>();
  readonly #signal: AbortSignal;
  #leftBytes = MAX_SEARCHED_BYTES;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /**
   * Checks the layer's digest while it reads, where it is known.
   * @returns why no more layers are read, if so
   */
  async look(layer: BlobReference, blob: ByteStream): Promise<string | undefined> {
    const hashed = new HashedBytes(blob);
    const found: string[] = [];
    {
      await using content = await decompressStream(hashed);
      const reader = new TarReader(content);
      for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
        checkCancelled(this.#signal, "the search of a layer");
        this.#leftBytes -= HEADER_BYTES + entry.sizeBytes;
        if (this.#leftBytes < 0) return `its layers hold more than ${MAX_SEARCHED_BYTES} bytes`;
        const isWhiteout = this.#takeAway(entry.name);
        if (isWhiteout || entry.kind !== "file" || !entry.name.endsWith(".wasm")) continue;
        const nameBytes = Buffer.byteLength(entry.name);
        if (nameBytes > MAX_NAME_BYTES)
          throw damaged(`a file's name has ${nameBytes} bytes, more than ${MAX_NAME_BYTES}`);
        found.push(entry.name);
        if (this.places.size + found.length > MAX_CANDIDATES) return `it has more than ${MAX_CANDIDATES} .wasm files`;
      }
    }
    for (const name of found) this.places.set(name, { layer, name });
    if (layer.sha256 === undefined || layer.sha256 === (await hashed.finish())) return undefined;
    throw damaged(`${layer.entry} has another content than its name says`);
  }

  /** @returns false for a file of the image itself */
  #takeAway(name: string): boolean {
    const slash = name.lastIndexOf("/");
    const [folder, file] = [name.slice(0, slash + 1), name.slice(slash + 1)];
    if (!file.startsWith(WHITEOUT)) return false;
    const gone = folder + file.slice(WHITEOUT.length);
    for (const each of this.places.keys()) {
      const isGone = file === OPAQUE ? each.startsWith(folder) : each === gone || each.startsWith(`${gone}/`);
      if (isGone) this.places.delete(each);
    }
    return true;
  }
}
