/**
 * Updates as OCI artifacts (image-spec 1.1): a layout of the systems of several boards, told apart by the annotation
 * picolet.io/compatible, and one of the agent's packages, told apart by their platform. Each has one index, whose name
 * is the version. The same files give the same bytes.
 */
import { execFileSync } from "node:child_process";
import { createHash, createPrivateKey, type KeyObject, sign } from "node:crypto";
import { copyFileSync, createReadStream, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import {
  OS_ARTIFACT_TYPE,
  OS_LAYER_TYPE,
  PACKAGE_ARTIFACT_TYPE,
  PACKAGE_LAYER_TYPE,
  SIGNATURE_ANNOTATION,
} from "@picolet/protocol/updates/node-updates.ts";

const INDEX_TYPE = "application/vnd.oci.image.index.v1+json";
const MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json";
/** An artifact has no configuration; this is the specification's empty one. */
const EMPTY_TYPE = "application/vnd.oci.empty.v1+json";
const COMPATIBLE_ANNOTATION = "picolet.io/compatible";
const VERSION_ANNOTATION = "org.opencontainers.image.version";
const NAME_ANNOTATION = "org.opencontainers.image.ref.name";
/** A tag's characters; Debian's versions have "+", ":" and "~" too. */
const NO_TAG = /[^A-Za-z0-9_.-]/g;

type Annotations = Readonly<Record<string, string>>;

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
  readonly annotations?: Annotations;
}

/** One board's part of an artifact. */
interface Entry {
  readonly file: string;
  readonly version: string;
  /** On the layer. */
  readonly layer: Annotations;
  /** On the manifest, and on its entry in the index. */
  readonly annotations: Annotations;
  readonly platform: { readonly architecture: string; readonly os: "linux" } | undefined;
}

/** A layout as it was written. */
export interface WrittenArtifact {
  readonly folder: string;
  readonly version: string;
  /** The name within the layout, which is a tag. */
  readonly tag: string;
  /** Digest of the index. */
  readonly digest: string;
}

/**
 * @param bundles of RAUC; each says itself what it is compatible with, and is signed
 * @param folder replaced
 * @throws `invalid` for bundles of several versions, and for two of the same board
 */
export async function writeSystemArtifact(bundles: readonly string[], folder: string): Promise<WrittenArtifact> {
  const entries = bundles.map((file): Entry => {
    const { compatible, version } = bundleFacts(file);
    return { file, version, layer: {}, annotations: { [COMPATIBLE_ANNOTATION]: compatible }, platform: undefined };
  });
  return await writeLayout(entries, folder, { artifact: OS_ARTIFACT_TYPE, layer: OS_LAYER_TYPE });
}

/**
 * @param packages of Debian; each says itself which architecture it is for
 * @param key PEM of an Ed25519 key, whose public half boards have
 * @param folder replaced
 * @throws `invalid` for packages of several versions, two of the same architecture, and a key of another kind
 */
export async function writePackageArtifact(
  packages: readonly string[],
  key: string,
  folder: string,
): Promise<WrittenArtifact> {
  const signingKey = ed25519(key);
  const entries = packages.map((file): Entry => {
    const [version, architecture] = ["Version", "Architecture"].map((field) =>
      read("dpkg-deb", "--field", file, field),
    );
    if (version === undefined || architecture === undefined || architecture === "all")
      throw new PicoletError("invalid", `${file} must be a package of one architecture`);
    const signature = sign(null, readFileSync(file), signingKey).toString("base64");
    const platform = { architecture, os: "linux" } as const;
    return { file, version, layer: { [SIGNATURE_ANNOTATION]: signature }, annotations: {}, platform };
  });
  return await writeLayout(entries, folder, { artifact: PACKAGE_ARTIFACT_TYPE, layer: PACKAGE_LAYER_TYPE });
}

/** Boards verify the bundle; here only what it says of itself counts. */
function bundleFacts(file: string): { readonly compatible: string; readonly version: string } {
  const facts: unknown = JSON.parse(read("rauc", "info", "--no-verify", "--output-format=json", file));
  const { compatible, version } = facts as { readonly compatible?: unknown; readonly version?: unknown };
  if (typeof compatible === "string" && typeof version === "string" && version !== "") return { compatible, version };
  throw new PicoletError("invalid", `${file} is a bundle without a version`);
}

function read(program: string, ...args: readonly string[]): string {
  try {
    return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
  } catch (cause) {
    throw new PicoletError("invalid", `cannot read ${args.find((each) => each.includes("."))} with ${program}`, {
      cause,
    });
  }
}

function ed25519(path: string): KeyObject {
  let key: KeyObject;
  try {
    key = createPrivateKey(readFileSync(path));
  } catch (cause) {
    throw new PicoletError("invalid", `cannot read the key ${path}`, { cause });
  }
  if (key.asymmetricKeyType === "ed25519") return key;
  throw new PicoletError("invalid", `${path} must be an Ed25519 key: openssl genpkey -algorithm ed25519`);
}

async function writeLayout(
  entries: readonly Entry[],
  folder: string,
  types: { readonly artifact: string; readonly layer: string },
): Promise<WrittenArtifact> {
  const version = onlyVersion(entries);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "blobs", "sha256"), { recursive: true });
  writeFileSync(join(folder, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  const config = writeBlob(folder, EMPTY_TYPE, "{}");
  const manifests: object[] = [];
  for (const { file, layer, annotations, platform } of entries) {
    const blob = { ...(await copyBlob(folder, types.layer, file)), ...(isEmpty(layer) ? {} : { annotations: layer }) };
    const manifest = {
      ...{ schemaVersion: 2, mediaType: MANIFEST_TYPE, artifactType: types.artifact, config, layers: [blob] },
      annotations: { [VERSION_ANNOTATION]: version, ...annotations },
    };
    // Without artifactType, which skopeo before 1.14 drops here: the index would change on its way.
    manifests.push({
      ...writeBlob(folder, MANIFEST_TYPE, JSON.stringify(manifest)),
      ...(platform === undefined ? {} : { platform }),
      annotations: { [VERSION_ANNOTATION]: version, ...annotations },
    });
  }
  const annotations = { [VERSION_ANNOTATION]: version };
  const index = writeBlob(
    folder,
    INDEX_TYPE,
    JSON.stringify({ schemaVersion: 2, mediaType: INDEX_TYPE, manifests, annotations }),
  );
  const tag = version.replaceAll(NO_TAG, "-");
  const top = { ...index, annotations: { [NAME_ANNOTATION]: tag } };
  const layout = { schemaVersion: 2, mediaType: INDEX_TYPE, manifests: [top] };
  writeFileSync(join(folder, "index.json"), JSON.stringify(layout));
  return { folder, version, tag, digest: index.digest };
}

const isEmpty = (annotations: Annotations): boolean => Object.keys(annotations).length === 0;

/** @throws `invalid` unless all have one version, and each is for something else */
function onlyVersion(entries: readonly Entry[]): string {
  const [first] = entries;
  if (first === undefined) throw new PicoletError("invalid", "there is no file to make an artifact of");
  const other = entries.find(({ version }) => version !== first.version);
  if (other !== undefined) {
    const message = `${first.file} has the version ${first.version}, ${other.file} has ${other.version}: make two artifacts`;
    throw new PicoletError("invalid", message);
  }
  const names = entries.map(
    ({ annotations, platform }) => annotations[COMPATIBLE_ANNOTATION] ?? platform?.architecture,
  );
  const double = names.find((name, at) => names.indexOf(name) !== at);
  if (double !== undefined) throw new PicoletError("invalid", `there are two files for ${double}`);
  return first.version;
}

const pathOf = (folder: string, digest: string): string => join(folder, "blobs", digest.replace(":", "/"));

function writeBlob(folder: string, mediaType: string, content: string): Descriptor {
  const digest = `sha256:${createHash("sha256").update(content).digest("hex")}`;
  writeFileSync(pathOf(folder, digest), content);
  return { mediaType, digest, size: Buffer.byteLength(content) };
}

/** Without reading the file into memory: a bundle has hundreds of megabytes. */
async function copyBlob(folder: string, mediaType: string, file: string): Promise<Descriptor> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  const digest = `sha256:${hash.digest("hex")}`;
  copyFileSync(file, pathOf(folder, digest));
  return { mediaType, digest, size: statSync(file).size };
}
