/** Finds an update in what a registry has: index, manifest, layer. Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import {
  OS_ARTIFACT_TYPE,
  OS_LAYER_TYPE,
  PACKAGE_ARTIFACT_TYPE,
  PACKAGE_LAYER_TYPE,
  SIGNATURE_ANNOTATION,
} from "@picolet/protocol/updates/node-updates.ts";
import {
  type JsonObject,
  listOf,
  objectOf,
  parseObject,
  textOf,
} from "@picolet/runtime-contract/archive/json-fields.ts";
import { type Descriptor, descriptorOf, MAX_ENTRIES, tooMany } from "@picolet/runtime-wasm/registry/documents.ts";
import { MAX_VERSION_LENGTH } from "../../plan/updates/compare-versions.ts";

/** Names what this board can take. */
export type WantedArtifact =
  | { readonly kind: "os"; readonly compatible: string }
  /** Debian's name of the architecture: `arm64`. */
  | { readonly kind: "agent"; readonly architecture: string };

export interface UpdateArtifact {
  readonly layer: Descriptor;
  /** As the artifact says itself, which is not signed. */
  readonly version: string;
  /** Base64; "" where there is none. */
  readonly signature: string;
}

export type UpdateDocument =
  /** The manifest to read next. */
  | { readonly kind: "index"; readonly entry: Descriptor }
  | { readonly kind: "artifact"; readonly artifact: UpdateArtifact };

const COMPATIBLE_ANNOTATION = "picolet.io/compatible";
const VERSION_ANNOTATION = "org.opencontainers.image.version";
/** The names of architectures in OCI's platforms, by Debian's. */
const OCI_ARCHITECTURES: Readonly<Record<string, string>> = { amd64: "amd64", arm64: "arm64" };
const TYPES = {
  os: { artifact: OS_ARTIFACT_TYPE, layer: OS_LAYER_TYPE, name: "image of a system" },
  agent: { artifact: PACKAGE_ARTIFACT_TYPE, layer: PACKAGE_LAYER_TYPE, name: "package of the agent" },
} as const;
/** Bounds the names that a message lists. */
const MAX_SHOWN = 8;

/** @throws `corrupt` for what is no such document, `invalid` for one that has nothing for this board */
export function parseUpdateDocument(content: Buffer, wanted: WantedArtifact): UpdateDocument {
  const document = parseObject(content, "the manifest");
  const [isIndex, isManifest] = [Object.hasOwn(document, "manifests"), Object.hasOwn(document, "layers")];
  if (isIndex && isManifest) throw new PicoletError("corrupt", "the manifest is an index too");
  if (isIndex) return { kind: "index", entry: entryOf(document, wanted) };
  if (!isManifest) throw new PicoletError("corrupt", "the manifest has neither layers nor manifests");
  return { kind: "artifact", artifact: artifactOf(document, wanted) };
}

function entryOf(index: JsonObject, wanted: WantedArtifact): Descriptor {
  const entries = listOf(index, "manifests");
  if (entries.length > MAX_ENTRIES) throw tooMany("entries in its index", entries.length, MAX_ENTRIES);
  const found = entries.find((entry) => nameOf(entry, wanted) === wantedName(wanted));
  if (found !== undefined) return descriptorOf(found);
  const names = entries.flatMap((entry) => nameOf(entry, wanted) ?? []);
  const shown = names.length === 0 ? "nothing that says what it is for" : names.slice(0, MAX_SHOWN).join(", ");
  throw new PicoletError("invalid", `it has nothing for ${wantedName(wanted)}: it has ${shown.slice(0, 300)}`);
}

const wantedName = (wanted: WantedArtifact): string =>
  wanted.kind === "os" ? wanted.compatible : `linux/${OCI_ARCHITECTURES[wanted.architecture] ?? wanted.architecture}`;

function nameOf(entry: JsonObject, { kind }: WantedArtifact): string | undefined {
  if (kind === "os") return textOf(objectOf(entry, "annotations"), COMPATIBLE_ANNOTATION);
  const platform = objectOf(entry, "platform");
  const [os, architecture] = [textOf(platform, "os"), textOf(platform, "architecture")];
  return os === undefined || architecture === undefined ? undefined : `${os}/${architecture}`;
}

function artifactOf(manifest: JsonObject, wanted: WantedArtifact): UpdateArtifact {
  const types = TYPES[wanted.kind];
  const type = textOf(manifest, "artifactType") ?? textOf(objectOf(manifest, "config"), "mediaType") ?? "";
  if (type !== types.artifact)
    throw new PicoletError("invalid", `it is no ${types.name}: its artifact type is "${type.slice(0, 128)}"`);
  const annotations = objectOf(manifest, "annotations");
  const compatible = textOf(annotations, COMPATIBLE_ANNOTATION);
  if (wanted.kind === "os" && compatible !== undefined && compatible !== wanted.compatible)
    throw new PicoletError("invalid", `it is for ${compatible.slice(0, 128)}, this board is ${wanted.compatible}`);
  const layers = listOf(manifest, "layers").filter((layer) => textOf(layer, "mediaType") === types.layer);
  const [layer, another] = layers;
  if (layer === undefined || another !== undefined)
    throw new PicoletError("invalid", `it must have one layer of the type ${types.layer}, and has ${layers.length}`);
  const version = textOf(annotations, VERSION_ANNOTATION) ?? "";
  if (version === "" || version.length > MAX_VERSION_LENGTH || !/^[\x21-\x7e]+$/.test(version))
    throw new PicoletError("invalid", `its annotation ${VERSION_ANNOTATION} must be a version`);
  const signature = textOf(objectOf(layer, "annotations"), SIGNATURE_ANNOTATION) ?? "";
  return { layer: descriptorOf(layer), version, signature };
}
