/**
 * The documents that registries send for images: OCI indexes and manifests (opencontainers/image-spec), Docker's lists
 * and manifests of schema 2. Pure: says where a component may be, and reads nothing.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { componentLayer, isWasmType, MAX_LAYERS } from "@picolet/runtime-contract/archive/image-manifests.ts";
import {
  type JsonObject,
  listOf,
  objectOf,
  parseObject,
  textOf,
} from "@picolet/runtime-contract/archive/json-fields.ts";
import { type Descriptor, descriptorOf, MAX_ENTRIES, tooMany } from "../registry/documents.ts";
import { COMPONENT_PLATFORM, isComponentPlatform } from "../shared/oci/platforms.ts";

export interface IndexEntry extends Descriptor {
  /** `linux/arm64/v8`; undefined where the index does not tell. */
  readonly platform: string | undefined;
  /** The lower, the sooner it is looked into for a component. */
  readonly rank: number;
}

export type RegistryDocument =
  /** Attestations and the like are left out; sorted by rank. */
  | { readonly kind: "index"; readonly entries: readonly IndexEntry[] }
  | { readonly kind: "artifact"; readonly component: Descriptor }
  | { readonly kind: "image"; readonly config: Descriptor | undefined; readonly layers: readonly Descriptor[] };

/** @throws `corrupt` for what is no such document, `invalid` for one that can hold no component. */
export function parseDocument(content: Buffer): RegistryDocument {
  const document = parseObject(content, "the manifest");
  if (Object.hasOwn(document, "fsLayers") || document.schemaVersion === 1) {
    throw new PicoletError(
      "invalid",
      "its manifest is of Docker's schema 1, which is not supported any more: push it again",
    );
  }
  const [isIndex, isManifest] = [Object.hasOwn(document, "manifests"), Object.hasOwn(document, "layers")];
  // The specification: two readers would otherwise find different content in one document.
  if (isIndex && isManifest) throw corrupt("the manifest is an index too");
  if (isIndex) return { kind: "index", entries: entriesOf(document) };
  if (isManifest) return manifestOf(document);
  throw corrupt("the manifest has neither layers nor manifests");
}

/** cosign's specification of signatures: the type of a layer that is one, and the annotation that holds it. */
const SIGNATURE_LAYER = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE_ANNOTATION = "dev.cosignproject.cosign/signature";
/** Bounds the signatures of one image; each signer adds one. */
const MAX_SIGNATURES = 32;
/** What is signed has some hundreds of bytes. */
const MAX_SIGNED_BYTES = 64 * KIBIBYTE;
/** Base64 of an RSA signature of 8,192 bits. */
const MAX_SIGNATURE_LENGTH = 1368;

/** The signatures that the image of an image's signatures holds. @throws `corrupt`, `resource_exhausted` */
export function parseSignatures(content: Buffer): readonly { readonly blob: Descriptor; readonly signature: string }[] {
  const layers = listOf(parseObject(content, "the manifest of signatures"), "layers");
  if (layers.length > MAX_SIGNATURES) throw tooMany("signatures", layers.length, MAX_SIGNATURES);
  return layers
    .filter((layer) => textOf(layer, "mediaType") === SIGNATURE_LAYER)
    .map((layer) => {
      const signature = textOf(objectOf(layer, "annotations"), SIGNATURE_ANNOTATION) ?? "";
      return { blob: descriptorOf(layer), signature };
    })
    .filter(({ blob, signature }) => {
      return signature !== "" && signature.length <= MAX_SIGNATURE_LENGTH && blob.sizeBytes <= MAX_SIGNED_BYTES;
    });
}

/** `linux/arm64` of an image's configuration; undefined where that does not tell. */
export const platformOfConfig = (content: Buffer): string | undefined =>
  platformOf(parseObject(content, "the image's configuration"));

function entriesOf(index: JsonObject): readonly IndexEntry[] {
  const all = listOf(index, "manifests");
  if (all.length > MAX_ENTRIES) throw tooMany("entries in its index", all.length, MAX_ENTRIES);
  return all
    .filter((each) => !isAttestation(each))
    .map((each) => {
      const isArtifact = isWasmType(textOf(each, "artifactType"));
      const reported = platformOf(objectOf(each, "platform"));
      const platform = isArtifact ? COMPONENT_PLATFORM : reported;
      return { ...descriptorOf(each), platform: reported ?? platform, rank: rankOf(platform) };
    })
    .sort((one, other) => one.rank - other.rank);
}

/** Ranks components for WASI 0.2 first, those for an unknown WASI next, then all that may hold one, containers last. */
function rankOf(platform: string | undefined): number {
  if (platform === undefined) return 3;
  if (!isComponentPlatform(platform)) return platform.startsWith("linux/") ? 4 : 5;
  if (platform.startsWith("wasip2/")) return 0;
  return platform.startsWith("wasip1/") ? 2 : 1;
}

function manifestOf(manifest: JsonObject): RegistryDocument {
  const all = listOf(manifest, "layers");
  if (all.length > MAX_LAYERS) throw tooMany("layers", all.length, MAX_LAYERS);
  const layers = all.map(descriptorOf);
  const config = Object.hasOwn(manifest, "config") ? descriptorOf(objectOf(manifest, "config")) : undefined;
  const component = componentLayer(manifest, layers);
  if (component !== undefined) return { kind: "artifact", component };
  return { kind: "image", config, layers: layers.filter(({ mediaType }) => mediaType.includes("tar")) };
}

/** @returns whether a builder added this entry beside the images (docker/buildx, attestation storage) */
const isAttestation = (entry: JsonObject): boolean =>
  textOf(objectOf(entry, "annotations"), "vnd.docker.reference.type") === "attestation-manifest";

function platformOf(object: JsonObject): string | undefined {
  const [os, architecture, variant] = ["os", "architecture", "variant"].map((field) => textOf(object, field));
  if (!os || !architecture || os === "unknown") return undefined;
  return [os, architecture, ...(variant ? [variant] : [])].map((each) => each.slice(0, 64)).join("/");
}

const corrupt = (why: string): PicoletError => new PicoletError("corrupt", why);
