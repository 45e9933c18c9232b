/**
 * Finds components in image archives: OCI image layouts (opencontainers/image-spec, image-layout.md) and `docker save`
 * archives, as artifacts (CNCF TAG Runtime, "WASM OCI Artifact layout") or as images that hold one `.wasm` file.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { ByteStream } from "@picolet/runtime-contract/archive/file-bytes.ts";
import {
  type BlobReference,
  damaged,
  type ImageCandidate,
  type IndexLine,
  MAX_IMAGES,
  parseDockerManifest,
  parseIndex,
  parseManifest,
} from "@picolet/runtime-contract/archive/image-manifests.ts";
import { findInLayers, type Search } from "../../shared/oci/layer-search.ts";
import type { ArchiveFiles } from "./archive-files.ts";
import type { ComponentBlob, ComponentBlobs } from "./component-blobs.ts";

/** Bounds the manifests read at once; the specification's own limit for one. */
const MAX_MANIFEST_BYTES = 4 * MEBIBYTE;
/** An index may hold indexes; tools nest two. */
const MAX_INDEX_DEPTH = 3;

export interface ArchivedComponent extends Pick<ImageCandidate, "names" | "manifestDigest"> {
  readonly blob: ComponentBlob;
}

export class ImageArchive {
  readonly #files: ArchiveFiles;
  readonly #signal: AbortSignal;

  constructor(files: ArchiveFiles, signal: AbortSignal) {
    this.#files = files;
    this.#signal = signal;
  }

  /** Stores every component there is. @throws `unimplemented` when there is none: an image for another runtime. */
  async components(blobs: ComponentBlobs): Promise<readonly ArchivedComponent[]> {
    const found: ArchivedComponent[] = [];
    let why: string | undefined;
    for (const { content, names, manifestDigest } of await this.#images()) {
      const search: Search<ComponentBlob> =
        content.kind === "artifact"
          ? { kind: "found", component: await this.#storeArtifact(content.component, blobs) }
          : await this.#storeFromLayers(content.layers, blobs);
      if (search.kind === "found") found.push({ blob: search.component, names, manifestDigest });
      else why ??= search.why;
    }
    if (found.length === 0) {
      const { kind, path } = this.#files;
      const because = why === undefined ? "" : `: ${why}`;
      throw new PicoletError("unimplemented", `the ${kind} ${path} holds no WebAssembly component${because}`);
    }
    return found;
  }

  async #images(): Promise<readonly ImageCandidate[]> {
    const files = await this.#collect(new Set(["index.json", "manifest.json"]));
    const index = files.get("index.json");
    if (index !== undefined) return this.#imagesOf(parseIndex(index));
    const manifest = files.get("manifest.json");
    if (manifest !== undefined) return parseDockerManifest(manifest);
    const { kind, path } = this.#files;
    const lacks = "it has neither the index.json of an OCI image layout nor the manifest.json of docker save";
    throw new PicoletError("unimplemented", `the ${kind} ${path} is no image: ${lacks}`);
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
    return this.#withEntry(entry, (content) => blobs.put(content, sha256, this.#signal));
  }

  #storeFromLayers(layers: readonly BlobReference[], blobs: ComponentBlobs): Promise<Search<ComponentBlob>> {
    return findInLayers(
      layers,
      (layer, use) => this.#withEntry(layer.entry, use),
      (content) => blobs.put(content, undefined, this.#signal),
      this.#signal,
    );
  }

  #collect(wanted: ReadonlySet<string>): Promise<ReadonlyMap<string, Buffer>> {
    return this.#files.collect(wanted, MAX_MANIFEST_BYTES, this.#signal);
  }

  #withEntry<T>(name: string, use: (content: ByteStream) => Promise<T>): Promise<T> {
    return this.#files.read(name, use);
  }
}
