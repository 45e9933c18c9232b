/** Content of registries, made in memory: artifacts, images and indexes, each document and blob by its digest. */
import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import { makeTar } from "./tar.ts";

export const sha256 = (bytes: Uint8Array | string): string => createHash("sha256").update(bytes).digest("hex");
export const digestOf = (bytes: Uint8Array | string): string => `sha256:${sha256(bytes)}`;

export interface Document {
  readonly content: string;
  readonly mediaType: string;
  readonly digest: string;
}

export const INDEX_TYPE = "application/vnd.oci.image.index.v1+json";
export const MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LAYER_TYPE = "application/vnd.docker.image.rootfs.diff.tar.gzip";
export const WASM_CONFIG = '{"architecture":"wasm","os":"wasip2"}';

const documentOf = (object: object, mediaType: string): Document => {
  const content = JSON.stringify(object);
  return { content, mediaType, digest: digestOf(content) };
};

export const descriptorOf = (content: Uint8Array | string, mediaType: string, more: object = {}) => ({
  mediaType,
  digest: digestOf(content),
  size: Buffer.byteLength(content),
  ...more,
});

/** The manifest of a component; its blobs are the component and `WASM_CONFIG`. */
export const artifact = (component: Uint8Array, layer: object = {}, layerType = "application/wasm"): Document =>
  documentOf(
    {
      schemaVersion: 2,
      mediaType: MANIFEST_TYPE,
      config: descriptorOf(WASM_CONFIG, "application/vnd.wasm.config.v0+json"),
      layers: [descriptorOf(component, layerType, layer)],
    },
    MANIFEST_TYPE,
  );

export interface LayeredImage {
  readonly manifest: Document;
  readonly blobs: readonly (Uint8Array | string)[];
}

/** An image of containers with these layers, as they are. */
export function imageOf(
  layers: readonly Uint8Array[],
  platform: object = {},
  how: "oci" | "docker" = "oci",
): LayeredImage {
  const config = JSON.stringify({ os: "linux", architecture: "amd64", ...platform });
  const isOci = how === "oci";
  const mediaType = isOci ? MANIFEST_TYPE : DOCKER_MANIFEST_TYPE;
  const layerType = isOci ? "application/vnd.oci.image.layer.v1.tar+gzip" : DOCKER_LAYER_TYPE;
  const configType = isOci
    ? "application/vnd.oci.image.config.v1+json"
    : "application/vnd.docker.container.image.v1+json";
  const manifest = documentOf(
    {
      schemaVersion: 2,
      mediaType,
      config: descriptorOf(config, configType),
      layers: layers.map((each) => descriptorOf(each, layerType)),
    },
    mediaType,
  );
  return { manifest, blobs: [config, ...layers] };
}

export const gzippedLayer = (files: Readonly<Record<string, string | Uint8Array>>): Buffer => gzipSync(makeTar(files));

export interface IndexLine {
  readonly document: Document;
  /** `linux/arm64`; missing: the index does not tell. */
  readonly platform?: string;
  readonly more?: object;
}

export const indexOf = (lines: readonly IndexLine[]): Document =>
  documentOf(
    {
      schemaVersion: 2,
      mediaType: INDEX_TYPE,
      manifests: lines.map(({ document, platform, more = {} }) => {
        const [os, architecture, variant] = platform?.split("/") ?? [];
        const told = platform === undefined ? {} : { platform: { os, architecture, ...(variant ? { variant } : {}) } };
        return descriptorOf(document.content, document.mediaType, { ...told, ...more });
      }),
    },
    INDEX_TYPE,
  );
