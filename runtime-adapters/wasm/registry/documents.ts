/** Parts that all documents of a registry have (opencontainers/image-spec). Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { type JsonObject, textOf } from "@picolet/runtime-contract/archive/json-fields.ts";

/** Bounds one document; the specification requires no more of registries. */
export const MAX_DOCUMENT_BYTES = 4 * MEBIBYTE;
/** Bounds an index; real ones have a dozen platforms, and an attestation of each. */
export const MAX_ENTRIES = 256;

export const MANIFEST_TYPES: readonly string[] = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json",
];

export interface Descriptor {
  /** `sha256:…` */
  readonly digest: string;
  /** 64 hexadecimal digits. */
  readonly sha256: string;
  readonly sizeBytes: number;
  readonly mediaType: string;
}

/** @throws `corrupt` */
export function descriptorOf(object: JsonObject): Descriptor {
  const digest = textOf(object, "digest") ?? "";
  const sha256 = /^sha256:([0-9a-f]{64})$/.exec(digest)?.[1];
  if (sha256 === undefined) throw corrupt("a digest is no SHA-256");
  const { size } = object;
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 0) throw corrupt("a size is none");
  return { digest, sha256, sizeBytes: size, mediaType: textOf(object, "mediaType") ?? "" };
}

const corrupt = (why: string): PicoletError => new PicoletError("corrupt", why);

export const tooMany = (what: string, count: number, limit: number): PicoletError =>
  new PicoletError("resource_exhausted", `the image has ${count} ${what}, more than ${limit}`);
