/**
 * Writes an OCI image layout (image-spec 1.1): blobs by their hash, a manifest for each platform, an index of them. The
 * same input gives the same bytes.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json";
const INDEX_TYPE = "application/vnd.oci.image.index.v1+json";
const CONFIG_TYPE = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip";

export interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

/** An image of one platform. */
export interface ImageParts {
  /** `amd64`, `arm64` */
  readonly architecture: string;
  /** The tar archive of each layer, from the lowest, and what made it. */
  readonly layers: readonly { readonly tar: Uint8Array; readonly comment: string }[];
  /** `config` of the image configuration. */
  readonly config: object;
  readonly annotations: Readonly<Record<string, string>>;
  /** RFC 3339. */
  readonly created: string;
}

/** An image whose layers are compressed, for several layouts. */
export interface PackedImage extends Omit<ImageParts, "layers"> {
  readonly layers: readonly { readonly gzip: Uint8Array; readonly diffId: string; readonly comment: string }[];
}

/** @param level of gzip; 9 takes a minute of CPU for Node */
export const packLayers = (image: ImageParts, level = 9): PackedImage => ({
  ...image,
  layers: image.layers.map(({ tar, comment }) => ({ gzip: gzipSync(tar, { level }), diffId: digestOf(tar), comment })),
});

interface WrittenImage {
  readonly manifest: Descriptor & { readonly platform: object };
  readonly configDigest: string;
  readonly layerDigests: readonly string[];
  readonly compressedBytes: number;
}

export class OciLayout {
  readonly folder: string;
  readonly #images: WrittenImage[] = [];

  /** @param folder replaced */
  constructor(folder: string) {
    this.folder = folder;
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(join(folder, "blobs/sha256"), { recursive: true });
    writeFileSync(join(folder, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  }

  add({ architecture, layers, config, annotations, created }: PackedImage): WrittenImage {
    const packed = layers.map(({ gzip }) => this.#blob(LAYER_TYPE, gzip));
    const configuration = this.#json(CONFIG_TYPE, {
      ...{ created, architecture, os: "linux", config },
      rootfs: { type: "layers", diff_ids: layers.map(({ diffId }) => diffId) },
      history: layers.map(({ comment }) => ({ created, created_by: "npm run hub-image", comment })),
    });
    const manifest = this.#json(MANIFEST_TYPE, {
      ...{ schemaVersion: 2, mediaType: MANIFEST_TYPE, config: configuration, layers: packed, annotations },
    });
    const image = {
      manifest: { ...manifest, platform: { architecture, os: "linux" } },
      configDigest: configuration.digest,
      layerDigests: packed.map(({ digest }) => digest),
      compressedBytes: packed.reduce((sum, { size }) => sum + size, 0),
    };
    this.#images.push(image);
    return image;
  }

  /** Writes `index.json`, whose one entry is the index of all platforms. @param name with tag */
  finish(name: string, annotations: Readonly<Record<string, string>>): void {
    const [only] = this.#images;
    const manifests = this.#images.map(({ manifest }) => manifest);
    const index = { schemaVersion: 2, mediaType: INDEX_TYPE, manifests, annotations };
    const all = this.#images.length === 1 && only !== undefined ? only.manifest : this.#json(INDEX_TYPE, index);
    const names = { "io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.replace(/^.*:/, "") };
    const top = { schemaVersion: 2, mediaType: INDEX_TYPE, manifests: [{ ...all, annotations: names }] };
    writeFileSync(join(this.folder, "index.json"), JSON.stringify(top));
    if (this.#images.length !== 1 || only === undefined) return;
    // For `docker load` of versions before 25, which know no layout.
    const path = (digest: string): string => `blobs/${digest.replace(":", "/")}`;
    const docker = [{ Config: path(only.configDigest), RepoTags: [name], Layers: only.layerDigests.map(path) }];
    writeFileSync(join(this.folder, "manifest.json"), JSON.stringify(docker));
  }

  /** As one file, for `ctr images import` and `docker load`. */
  archive(file: string, epoch: number): void {
    const flags = [
      "--sort=name",
      `--mtime=@${epoch}`,
      "--owner=0",
      "--group=0",
      "--numeric-owner",
      "--mode=u=rwX,go=rX",
    ];
    execFileSync("tar", [...flags, "--format=ustar", "-C", this.folder, "-cf", file, "."]);
  }

  #json(mediaType: string, content: object): Descriptor {
    return this.#blob(mediaType, Buffer.from(JSON.stringify(content)));
  }

  #blob(mediaType: string, bytes: Uint8Array): Descriptor {
    const digest = digestOf(bytes);
    writeFileSync(join(this.folder, "blobs", digest.replace(":", "/")), bytes);
    return { mediaType, digest, size: bytes.length };
  }
}

const digestOf = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
