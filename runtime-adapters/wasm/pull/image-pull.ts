/** All that a pull child does: asks the registries in turn, and has a component on disk in the end. */
import { createHash } from "node:crypto";
import { mkdir, open, readdir, rm, statfs } from "node:fs/promises";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Random } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { type ByteStream, CHUNK_BYTES, FileBytes } from "@picolet/runtime-contract/archive/file-bytes.ts";
import type { ImageSignature, SignedImage } from "@picolet/runtime-contract/runtime-adapter.ts";
import { downloadBlob } from "../registry/blob-download.ts";
import type { Descriptor } from "../registry/documents.ts";
import { atAnyEndpoint } from "../registry/endpoints.ts";
import type { RegistryClient } from "../registry/registry-client.ts";
import { COMPONENT_BUILD_HINT } from "../shared/binary/component-shape.ts";
import { fileError } from "../shared/files/durable-files.ts";
import type { PulledComponent, PullRequest } from "../shared/messages/pull-request.ts";
import { findInLayers } from "../shared/oci/layer-search.ts";
import { COMPONENT_PLATFORM } from "../shared/oci/platforms.ts";
import { type Found, ImageSearch } from "./image-search.ts";
import { parseSignatures } from "./manifests.ts";

export interface ImagePullComponents {
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
  readonly random: Random;
  readonly onProgress: (bytes: number, totalBytes: number) => void;
}

/** What is left of the disk besides what is pulled: the node's own eviction begins long before. */
const SPARE_BYTES = 16 * MEBIBYTE;
/** The file in a pull's folder for a component that was extracted from a layer, before it is moved to its place. */
const EXTRACTED = "component";

export async function pullComponent(
  components: ImagePullComponents,
  request: PullRequest,
  signal: AbortSignal,
): Promise<PulledComponent> {
  return atAnyEndpoint(request, (registry) => new ImagePull(components, request, registry, signal).run());
}

export async function findPlatforms(request: PullRequest, signal: AbortSignal): Promise<readonly string[]> {
  return atAnyEndpoint(request, (registry) => new ImageSearch(registry, signal).platforms(referenceOf(request)));
}

export async function findSignatures(request: PullRequest, signal: AbortSignal): Promise<SignedImage> {
  const last = request.endpoints.length;
  let asked = 0;
  return atAnyEndpoint(request, async (registry) => {
    asked += 1;
    const { digest } = await registry.manifest(referenceOf(request), signal);
    const signatures = await signaturesOf(registry, digest, signal);
    // A mirror may have the image and not its signatures.
    if (signatures.length === 0 && asked < last) throw new PicoletError("not_found", `no signature of ${digest}`);
    return { digest, signatures };
  });
}

/** cosign stores the signatures of a digest in an image of the same repository, `sha256-….sig`: a layer each. */
async function signaturesOf(registry: RegistryClient, digest: string, signal: AbortSignal): Promise<ImageSignature[]> {
  let content: Buffer;
  try {
    ({ content } = await registry.manifest(`${digest.replace(":", "-")}.sig`, signal));
  } catch (error) {
    if (isPicoletError(error, "not_found")) return [];
    throw error;
  }
  const signatures: ImageSignature[] = [];
  for (const { blob, signature } of parseSignatures(content)) {
    const payload = await registry.document(blob.digest, signal);
    signatures.push({ payload: payload.toString("base64"), signature });
  }
  return signatures;
}

const referenceOf = ({ digest, tag }: PullRequest): string => digest ?? tag ?? "latest";

class ImagePull {
  readonly #components: ImagePullComponents;
  readonly #request: PullRequest;
  readonly #registry: RegistryClient;
  readonly #signal: AbortSignal;

  constructor(components: ImagePullComponents, request: PullRequest, registry: RegistryClient, signal: AbortSignal) {
    this.#components = components;
    this.#request = request;
    this.#registry = registry;
    this.#signal = signal;
  }

  async run(): Promise<PulledComponent> {
    const found = await new ImageSearch(this.#registry, this.#signal).component(referenceOf(this.#request));
    const { digest, manifestDigest, platforms } = found;
    const known = this.#request.known[manifestDigest];
    const about = { digest, manifestDigest, platforms: [...new Set([...platforms, COMPONENT_PLATFORM])].sort() };
    if (known !== undefined) return { ...about, sha256: known, path: undefined };
    try {
      await mkdir(this.#request.directory, { recursive: true });
      return { ...about, ...(await this.#fetch(found)) };
    } catch (error) {
      throw fileError(error, "cannot write to the disk");
    }
  }

  async #fetch({ manifest }: Found): Promise<Pick<PulledComponent, "sha256" | "path">> {
    const isArtifact = manifest.kind === "artifact";
    const wanted = isArtifact ? [manifest.component] : unique(manifest.layers);
    this.#checkSize(wanted, isArtifact ? "component" : "image");
    await this.#tidy(wanted);
    await this.#checkSpace(wanted);
    const totalBytes = wanted.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    let before = 0;
    for (const blob of wanted) {
      const { limits } = this.#request;
      const onBytes = (bytes: number): void => this.#components.onProgress(before + bytes, totalBytes);
      const onStart = isArtifact ? refuseOthers : undefined;
      const components = { ...this.#components, registry: this.#registry, onBytes };
      await downloadBlob(components, { blob, path: this.#path(blob.sha256), limits, onStart }, this.#signal);
      before += blob.sizeBytes;
    }
    if (isArtifact) return { sha256: manifest.component.sha256, path: this.#path(manifest.component.sha256) };
    return await this.#extract(manifest.layers);
  }

  #path(name: string): string {
    return `${this.#request.directory}/${name}`;
  }

  /** Before anything is asked for. An image has some more in it than its component, and is compressed. */
  #checkSize(blobs: readonly Descriptor[], what: string): void {
    const { maxComponentBytes } = this.#request;
    const bytes = blobs.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    if (bytes <= maxComponentBytes) return;
    const message = `the ${what} has ${bytes} bytes, more than the ${maxComponentBytes} of wasm.maxComponentSize`;
    throw new PicoletError("resource_exhausted", message);
  }

  /** Removes other content that an earlier pull of this name has left. */
  async #tidy(wanted: readonly Descriptor[]): Promise<void> {
    const names = new Set(wanted.map(({ sha256 }) => sha256));
    for (const name of await readdir(this.#request.directory)) {
      if (!names.has(name)) await rm(this.#path(name), { recursive: true, force: true });
    }
  }

  async #checkSpace(blobs: readonly Descriptor[]): Promise<void> {
    const { bavail, bsize } = await statfs(this.#request.directory);
    const bytes = blobs.reduce((sum, { sizeBytes }) => sum + sizeBytes, SPARE_BYTES);
    if (bavail * bsize >= bytes) return;
    throw new PicoletError("resource_exhausted", `the disk has ${bavail * bsize} bytes left, it takes ${bytes}`, {
      retryable: true,
    });
  }

  async #extract(layers: readonly Descriptor[]): Promise<Pick<PulledComponent, "sha256" | "path">> {
    // They have been verified.
    const references = layers.map(({ sha256 }) => ({ entry: sha256, sha256: undefined }));
    const path = this.#path(EXTRACTED);
    const search = await findInLayers(
      references,
      async ({ entry }, use) => {
        await using file = await open(this.#path(entry), "r");
        return await use(new FileBytes(file));
      },
      (content, sizeBytes) => this.#store(content, sizeBytes, path),
      this.#signal,
    );
    if (search.kind === "found") return { sha256: search.component, path };
    throw new PicoletError(
      "invalid",
      `the image is no component: ${search.why}; an image of one holds one .wasm file, or is an artifact with a layer of the type application/wasm`,
    );
  }

  async #store(content: ByteStream, sizeBytes: number, path: string): Promise<string> {
    const { maxComponentBytes } = this.#request;
    if (sizeBytes > maxComponentBytes) {
      const message = `the component has ${sizeBytes} bytes, more than the ${maxComponentBytes} of wasm.maxComponentSize`;
      throw new PicoletError("resource_exhausted", message);
    }
    const hash = createHash("sha256");
    await using file = await open(path, "w", 0o600);
    for (let chunk = await content.read(CHUNK_BYTES); chunk !== undefined; chunk = await content.read(CHUNK_BYTES)) {
      hash.update(chunk);
      await file.writeFile(chunk);
    }
    await file.sync();
    return hash.digest("hex");
  }
}

function unique(layers: readonly Descriptor[]): readonly Descriptor[] {
  return [...new Map(layers.map((each) => [each.digest, each])).values()];
}

/** The first eight bytes say it, and the rest need not be paid for. */
function refuseOthers(first: Uint8Array): void {
  const isWasm = Buffer.from(first.subarray(0, 4)).equals(Buffer.from("\0asm"));
  if (!isWasm) throw new PicoletError("invalid", "the layer is no WebAssembly binary");
  const isCore = first[6] === 0 && first[7] === 0;
  if (isCore) {
    throw new PicoletError("invalid", `the layer is a core module, not a component; ${COMPONENT_BUILD_HINT}`);
  }
}
