/**
 * The JSON documents of image archives: OCI indexes and manifests (opencontainers/image-spec), and `docker save`'s
 * list. They name the places where a component may be. Nothing else is read here.
 */
import { createHash } from "node:crypto";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type JsonObject, listOf, objectOf, parseJson, parseObject, textOf, textsOf } from "./json-fields.ts";

/** Images in one archive. */
export const MAX_IMAGES = 64;
export const MAX_LAYERS = 128;
export const WASM_CONFIG = "application/vnd.wasm.config.v0+json";
const WASM_LAYERS: ReadonlySet<string> = new Set([
  "application/wasm",
  // wasm-to-oci and its successors, from before there was a convention.
  "application/vnd.wasm.content.layer.v1+wasm",
  // wasmCloud, before 1.0.
  "application/vnd.module.wasm.content.layer.v1+wasm",
]);
export const isWasmType = (type: string | undefined): boolean =>
  type !== undefined && (type === WASM_CONFIG || WASM_LAYERS.has(type));

/** Artifacts that hold more than a component, by the type of their configuration, and what their owner can do. */
const APPLICATIONS: readonly (readonly [type: RegExp, sentence: string])[] = [
  [
    /^application\/vnd\.fermyon\.spin\./,
    "it is a Spin application of several components or with files, which Spin alone runs: push one of its components as an artifact of its own (wkg oci push)",
  ],
  [
    /^application\/vnd\.wasmcloud\.provider\./,
    "it is a capability provider of wasmCloud, which wasmCloud's hosts alone run: a pod gets what it provides by the annotation wasm.picolet.io/interfaces",
  ],
];

/**
 * The layer that is the component.
 * @returns undefined for an image, in whose layers one may be
 * @throws `invalid` for an artifact that is no single component
 */
export function componentLayer<L extends { readonly mediaType: string }>(
  manifest: JsonObject,
  layers: readonly L[],
): L | undefined {
  const config = textOf(objectOf(manifest, "config"), "mediaType") ?? "";
  const [component, another] = layers.filter(({ mediaType }) => WASM_LAYERS.has(mediaType));
  const [, sentence] = APPLICATIONS.find(([type]) => type.test(config)) ?? [];
  if (sentence !== undefined && (component === undefined || layers.length > 1)) {
    throw new PicoletError("invalid", sentence);
  }
  if (component !== undefined && another === undefined) return component;
  if (component !== undefined || isWasmType(config) || isWasmType(textOf(manifest, "artifactType"))) {
    throw new PicoletError("invalid", "the artifact must have one layer of the type application/wasm");
  }
  return undefined;
}

/** An entry of the archive. */
export interface BlobReference {
  readonly entry: string;
  /** 64 hexadecimal digits; undefined where the archive does not tell. */
  readonly sha256: string | undefined;
}

/** A line of an index: a manifest, or another index. */
export interface IndexLine extends BlobReference {
  readonly sha256: string;
  /** Names of the image, as they stand there. */
  readonly names: readonly string[];
}

/** An image in which a component may be. */
export interface ImageCandidate {
  readonly names: readonly string[];
  /** `sha256:…`; undefined in archives without manifests. */
  readonly manifestDigest: string | undefined;
  readonly content:
    | { readonly kind: "artifact"; readonly component: BlobReference }
    | { readonly kind: "layers"; readonly layers: readonly BlobReference[] };
}

export const parseIndex = (content: Buffer): readonly IndexLine[] => indexLines(parseObject(content, "index.json"), []);

/** Follows a line of an index to more lines or to an image. Neither: it is no image (an attestation). */
export function parseManifest(
  content: Buffer,
  line: IndexLine,
): { readonly lines: readonly IndexLine[]; readonly image: ImageCandidate | undefined } {
  if (createHash("sha256").update(content).digest("hex") !== line.sha256) {
    throw damaged(`${line.entry} has another content than its name says`);
  }
  const manifest = parseObject(content, line.entry);
  const lines = indexLines(manifest, line.names);
  return { lines, image: lines.length > 0 ? undefined : ociImage(manifest, line) };
}

export function parseDockerManifest(content: Buffer): readonly ImageCandidate[] {
  const images = parseJson(content, "manifest.json");
  if (!Array.isArray(images) || images.length > MAX_IMAGES) throw damaged("manifest.json is no list of images");
  return images.map((image: unknown) => {
    const layers = textsOf(image, "Layers").map((entry) => ({ entry, sha256: undefined }));
    if (layers.length > MAX_LAYERS) throw damaged(`an image has more than ${MAX_LAYERS} layers`);
    return { names: textsOf(image, "RepoTags"), manifestDigest: undefined, content: { kind: "layers", layers } };
  });
}

function indexLines(index: JsonObject, inherited: readonly string[]): IndexLine[] {
  return listOf(index, "manifests").map((each) => {
    const name = imageNameOf(each);
    return { ...referenceOf(each), names: name === undefined ? inherited : [name] };
  });
}

/** @returns the name in the annotations of an index line: containerd writes the full name, other tools what was typed */
export function imageNameOf(line: JsonObject): string | undefined {
  const annotations = objectOf(line, "annotations");
  return textOf(annotations, "io.containerd.image.name") ?? textOf(annotations, "org.opencontainers.image.ref.name");
}

function ociImage(manifest: JsonObject, line: IndexLine): ImageCandidate | undefined {
  const layers = listOf(manifest, "layers").map((each) => ({
    ...referenceOf(each),
    mediaType: textOf(each, "mediaType") ?? "",
  }));
  if (layers.length > MAX_LAYERS) throw damaged(`an image has more than ${MAX_LAYERS} layers`);
  const about = { names: line.names, manifestDigest: `sha256:${line.sha256}` };
  const component = componentLayer(manifest, layers);
  if (component !== undefined) return { ...about, content: { kind: "artifact", component } };
  const tars = layers.filter((each) => each.mediaType.includes("tar"));
  return tars.length === 0 ? undefined : { ...about, content: { kind: "layers", layers: tars } };
}

function referenceOf(descriptor: JsonObject): { readonly entry: string; readonly sha256: string } {
  const sha256 = /^sha256:([0-9a-f]{64})$/.exec(textOf(descriptor, "digest") ?? "")?.[1];
  if (sha256 === undefined) throw damaged("a digest is no SHA-256");
  return { entry: `blobs/sha256/${sha256}`, sha256 };
}

export const damaged = (why: string): PicoletError =>
  new PicoletError("corrupt", `cannot read the image archive: ${why}`);
