/**
 * Reads which images a container image archive holds, without unpacking it: the docker format (`manifest.json`) or an
 * OCI layout (`index.json`) in a tar file, plain or gzipped. The content of layers is skipped.
 */
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { readArchiveStart } from "@picolet/runtime-contract/archive/archive-start.ts";
import { gunzipStream, readAll } from "@picolet/runtime-contract/archive/byte-stream.ts";
import { FileBytes } from "@picolet/runtime-contract/archive/file-bytes.ts";
import { imageNameOf, WASM_CONFIG } from "@picolet/runtime-contract/archive/image-manifests.ts";
import {
  type JsonObject,
  listOf,
  objectOf,
  parseJson,
  parseObject,
  textOf,
  textsOf,
} from "@picolet/runtime-contract/archive/json-fields.ts";
import { isTarHeader, TarReader } from "@picolet/runtime-contract/archive/tar-reader.ts";
import { imageFileKind } from "@picolet/runtime-contract/image-file-kind.ts";

export interface ImageArchive {
  readonly gzipped: boolean;
  /** The names that the archive gives each image: an empty list for an image without a name. */
  readonly images: readonly (readonly string[])[];
}

/** Bounds memory: `index.json` of 100 images with 100 layers has 1 MiB. A larger index counts as missing. */
const MAX_INDEX_BYTES = 4 * MEBIBYTE;
/** Bounds memory: the manifest of an image with 100 layers has 20 KiB. A larger blob is skipped as a layer. */
const MAX_MANIFEST_BYTES = 128 * KIBIBYTE;
/** Bounds memory for all blobs that may be manifests, small layers included. Blobs beyond it are skipped as layers. */
const MAX_MANIFESTS_BYTES = 4 * MEBIBYTE;
/** Bounds time: an archive has a few entries for each layer. */
const MAX_ENTRIES = 100_000;
const DOCUMENT_NAME = /^(?:manifest\.json|index\.json|oci-layout|blobs\/sha256\/[0-9a-f]{64})$/;

type Documents = ReadonlyMap<string, Buffer>;

const unusable = (path: string, why: string): PicoletError =>
  new PicoletError("unimplemented", `cannot import ${path} as a container image: ${why}`);

/**
 * @throws `unimplemented` for a file that is not an archive of container images; `not_found`, `permission_denied` or
 * `invalid` for a file that cannot be opened; `corrupt` for a damaged archive
 */
export async function readImageArchive(path: string, signal: AbortSignal): Promise<ImageArchive> {
  await using file = await openArchive(path);
  const { gzipped, documents } = await readDocuments(path, file, signal);
  try {
    return { gzipped, images: imagesIn(path, documents) };
  } catch (cause) {
    if (!isPicoletError(cause, "corrupt")) throw cause;
    throw new PicoletError("corrupt", `cannot read the manifests in ${path}`, { cause });
  }
}

async function openArchive(path: string): Promise<FileHandle> {
  let file: FileHandle | undefined;
  try {
    // Without O_NONBLOCK the open of a pipe waits for a writer, and blocks a thread of the agent until then.
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    const stats = await file.stat();
    if (stats.isFile()) return file;
    throw stats.isDirectory()
      ? unusable(path, "it is a folder; pack it with tar")
      : new PicoletError("invalid", `cannot read ${path}`, { cause: "it is no regular file" });
  } catch (cause) {
    await file?.close();
    if (isPicoletError(cause)) throw cause;
    const code = errnoOf(cause);
    const known = code === "ENOENT" ? "not_found" : code === "EACCES" ? "permission_denied" : "invalid";
    throw new PicoletError(known, `cannot read ${path}`, { cause });
  }
}

interface FoundDocuments {
  readonly gzipped: boolean;
  readonly documents: Documents;
}

async function readDocuments(path: string, file: FileHandle, signal: AbortSignal): Promise<FoundDocuments> {
  try {
    const { isGzip, start } = await readArchiveStart(file);
    if (!isTarHeader(start)) throw notTar(path, isGzip, start);
    const bytes = new FileBytes(file, signal);
    await using stream = isGzip ? gunzipStream(bytes, "unlimited") : bytes;
    return { gzipped: isGzip, documents: await collect(new TarReader(stream, MAX_ENTRIES)) };
  } catch (error) {
    if (signal.aborted) throw cancelled(`the import of ${path}`);
    if (isPicoletError(error) && error.code !== "corrupt") throw error;
    const cause = isPicoletError(error) ? (error.cause ?? error) : error;
    throw new PicoletError("corrupt", `cannot read the archive ${path} (make or fetch the file again)`, { cause });
  }
}

function notTar(path: string, isGzip: boolean, start: Buffer): PicoletError {
  const isDamaged = !isGzip && start.toString("latin1", 257, 262) === "ustar";
  if (isDamaged) return new PicoletError("corrupt", "cannot read the tar archive", { cause: "its checksum is wrong" });
  return unusable(path, imageFileKind(start, isGzip ? "in gzip" : "plain"));
}

/** The small entries that may describe images; the last one of a name counts. */
async function collect(reader: TarReader): Promise<Documents> {
  const found = new Map<string, Buffer>();
  let blobBytes = 0;
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    const { name, kind, sizeBytes, content } = entry;
    if (kind !== "file" || !DOCUMENT_NAME.test(name)) continue;
    const isBlob = name.startsWith("blobs/");
    if (sizeBytes > (isBlob ? Math.min(MAX_MANIFEST_BYTES, MAX_MANIFESTS_BYTES - blobBytes) : MAX_INDEX_BYTES))
      continue;
    if (isBlob) blobBytes += sizeBytes;
    found.set(name, await readAll(content, sizeBytes, name));
  }
  return found;
}

function imagesIn(path: string, documents: Documents): ImageArchive["images"] {
  const index = documents.get("index.json");
  const docker = documents.get("manifest.json");
  // `docker save` writes both; containerd prefers the layout when there is one.
  if (index !== undefined && documents.has("oci-layout")) return ociImages(path, index, documents);
  if (docker === undefined) throw unusable(path, "it holds neither manifest.json nor an OCI layout");
  const images = parseJson(docker, "manifest.json");
  if (!Array.isArray(images) || images.length === 0) throw unusable(path, "it holds no image");
  return images.map((each: unknown) => textsOf(each, "RepoTags"));
}

function ociImages(path: string, index: Buffer, documents: Documents): ImageArchive["images"] {
  const manifests = listOf(parseObject(index, "index.json"), "manifests");
  const images = manifests
    .filter((each) => !isComponent(each, documents))
    .map((each) => {
      const name = imageNameOf(each);
      // A tag alone is not a name.
      return name !== undefined && /[/:@]/.test(name) ? [name] : [];
    });
  if (images.length === 0) throw unusable(path, manifests.length === 0 ? "it holds no image" : "it holds a component");
  return images;
}

/** @returns whether this line of the index leads to a WebAssembly component, which another runtime runs */
function isComponent(descriptor: JsonObject, documents: Documents): boolean {
  const digest = textOf(descriptor, "digest");
  const manifest = digest === undefined ? undefined : documents.get(`blobs/${digest.replace(":", "/")}`);
  if (manifest === undefined) return false;
  return textOf(objectOf(parseObject(manifest, digest ?? ""), "config"), "mediaType") === WASM_CONFIG;
}
