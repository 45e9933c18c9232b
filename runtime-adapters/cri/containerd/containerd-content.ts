/**
 * How far a pull is, from containerd's own content service on the same socket: CRI does not tell. Everything of an image
 * carries a label with the repository it came from, and its manifest names its parts. Source: the public definition
 * containerd/api/services/content/v1/content.proto.
 */
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { parseImageReference, type RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type { PullProgress } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { CriClient } from "../wire/cri-client.ts";
import { bytes, int64, message, nested, repeated, string, stringMap, strings } from "../wire/protobuf.ts";
import { CRI_NAMESPACE } from "./containerd-events.ts";

const metadata = ["containerd-namespace", CRI_NAMESPACE];
const service = "/containerd.services.content.v1.Content";
/** Set as soon as a manifest is there; one that only leads to other manifests, of other architectures, has none. */
const CONFIG_LABEL = "containerd.io/gc.ref.content.config";
const SOURCE_LABEL = "containerd.io/distribution.source";

const Timestamp = message("Timestamp", { seconds: int64(1) });
const Info = message("Info", {
  digest: string(1),
  size: int64(2),
  createdAt: nested(3, Timestamp),
  labels: stringMap(5, [CONFIG_LABEL]),
});
const Status = message("Status", { ref: string(3), offset: int64(4), total: int64(5) });

const list = {
  path: `${service}/List`,
  request: message("ListContentRequest", { filters: strings(1) }),
  response: message("ListContentResponse", { info: repeated(1, Info) }),
  metadata,
};
const listStatuses = {
  path: `${service}/ListStatuses`,
  request: message("ListStatusesRequest", { filters: strings(1) }),
  response: message("ListStatusesResponse", { statuses: repeated(1, Status) }),
  metadata,
};
const read = {
  path: `${service}/Read`,
  request: message("ReadContentRequest", { digest: string(1) }),
  response: message("ReadContentResponse", { data: bytes(2) }),
  metadata,
};

/** One of 100 layers has 20 KiB; the specification asks registries to take 4 MiB. A larger one is not looked into. */
const MAX_MANIFEST_BYTES = 1024 * 1024;
/** Tags of one repository on a node; of more, those that came last are looked into. */
const MAX_MANIFESTS = 16;
/** An image has 127 layers at most on overlayfs. */
const MAX_BLOBS = 256;

interface Blob {
  readonly digest: string;
  readonly size: number;
}

export class ContainerdContent {
  readonly #client: CriClient;
  /** What another runtime answers; it is not asked again. */
  #isMissing = false;

  constructor(client: CriClient) {
    this.#client = client;
  }

  /** @returns `undefined` before the manifest has come, and with runtimes that have no such service. */
  async progress(image: string, signal: AbortSignal): Promise<PullProgress | undefined> {
    const parsed = parseImageReference(image);
    if (this.#isMissing || !parsed.ok || parsed.reference.kind !== "registry") return undefined;
    try {
      return await this.#progress(parsed.reference, signal);
    } catch (error) {
      if (!isPicoletError(error, "unimplemented")) throw error;
      this.#isMissing = true;
      return undefined;
    }
  }

  async #progress(reference: RegistryReference, signal: AbortSignal): Promise<PullProgress | undefined> {
    const { statuses } = await this.#client.call(listStatuses, {}, signal);
    const open = new Map(statuses.map(({ ref, offset }) => [digestOf(ref), offset]));
    let newest: PullProgress | undefined;
    for (const manifest of await this.#manifests(reference, signal)) {
      const progress = progressOf(await this.#blobs(manifest, signal), open);
      if (progress.bytes < progress.totalBytes) return progress;
      newest ??= progress;
    }
    return newest;
  }

  /** Newest first. */
  async #manifests({ domain, repository }: RegistryReference, signal: AbortSignal): Promise<readonly string[]> {
    // The label has the host's name without its port.
    const host = domain.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
    const infos = await this.#list([`labels."${SOURCE_LABEL}.${host}"~="(^|,)${repository}(,|$)"`], signal);
    const seconds = (info: (typeof infos)[number]): number => info.createdAt?.seconds ?? 0;
    return infos
      .filter(({ labels, size }) => labels.has(CONFIG_LABEL) && size <= MAX_MANIFEST_BYTES)
      .sort((a, b) => seconds(b) - seconds(a))
      .slice(0, MAX_MANIFESTS)
      .map(({ digest }) => digest);
  }

  /** Of a manifest; the size of those that are there whole comes with `isThere`. */
  async #blobs(manifest: string, signal: AbortSignal): Promise<readonly (Blob & { readonly isThere: boolean })[]> {
    const named = blobsIn(await this.#read(manifest, signal));
    if (named.length === 0) return [];
    const there = await this.#list(
      named.map(({ digest }) => `digest==${digest}`),
      signal,
    );
    const digests = new Set(there.map(({ digest }) => digest));
    return named.map((blob) => ({ ...blob, isThere: digests.has(blob.digest) }));
  }

  async #list(filters: readonly string[], signal: AbortSignal) {
    const found = [];
    const { requestTimeoutMs, grpc } = this.#client;
    for await (const { info } of grpc.serverStream(list, { filters }, requestTimeoutMs, signal)) found.push(...info);
    return found;
  }

  async #read(digest: string, signal: AbortSignal): Promise<Buffer> {
    const pieces: Uint8Array[] = [];
    const { requestTimeoutMs, grpc } = this.#client;
    for await (const { data } of grpc.serverStream(read, { digest }, requestTimeoutMs, signal)) pieces.push(data);
    return Buffer.concat(pieces);
  }
}

/** Of `layer-sha256:…`, `config-sha256:…`. */
const digestOf = (ref: string): string => ref.slice(ref.indexOf("-") + 1);

const DIGEST = /^[a-z0-9]+:[0-9a-f]{32,128}$/;

/** Config and layers of an image manifest, OCI's or Docker's. What is none has none. */
export function blobsIn(manifest: Buffer): readonly Blob[] {
  try {
    const { config, layers } = JSON.parse(manifest.toString("utf8")) as { config?: unknown; layers?: unknown };
    const descriptors: unknown[] = [config, ...(Array.isArray(layers) ? layers : [])].slice(0, MAX_BLOBS);
    const blobs = descriptors.map((each) => (each ?? {}) as { digest?: unknown; size?: unknown });
    const known = blobs.flatMap(({ digest, size }) =>
      typeof digest === "string" && DIGEST.test(digest) && typeof size === "number" && size >= 0
        ? [{ digest, size }]
        : [],
    );
    return [...new Map(known.map((blob) => [blob.digest, blob])).values()];
  } catch {
    return [];
  }
}

function progressOf(
  blobs: readonly (Blob & { readonly isThere: boolean })[],
  open: ReadonlyMap<string, number>,
): PullProgress {
  const have = ({ digest, size, isThere }: (typeof blobs)[number]): number =>
    isThere ? size : Math.min(size, open.get(digest) ?? 0);
  return {
    bytes: blobs.reduce((sum, blob) => sum + have(blob), 0),
    totalBytes: blobs.reduce((sum, blob) => sum + blob.size, 0),
    isTransferring: blobs.some(({ digest, isThere }) => !isThere && open.has(digest)),
  };
}
