/** Progress of a pull, from containerd's content service: CRI has none. An image's manifest names its parts. */
import { parseImageReference, type RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { PullProgress } from "@picolet/runtime-contract/runtime-adapter.ts";
import { CONFIG_LABEL, type ContainerdServices, type ContentInfo } from "../wire/containerd-services.ts";

/** Everything of an image has a label with the repository that it came from. */
const SOURCE_LABEL = "containerd.io/distribution.source";

/** One of 100 layers has 20 KiB; the specification asks registries to take 4 MiB. A larger one is not looked into. */
const MAX_MANIFEST_BYTES = MEBIBYTE;
/** Tags of one repository on a node; of more, those that came last are looked into. */
const MAX_MANIFESTS = 16;
/** An image has 127 layers at most on overlayfs. */
const MAX_BLOBS = 256;

interface Blob {
  readonly digest: string;
  readonly size: number;
}

type Content = Pick<ContainerdServices, "contentStatuses" | "contentInfos" | "contentOf">;

export class ContainerdContent {
  readonly #content: Content;

  constructor(content: Content) {
    this.#content = content;
  }

  /** @returns `undefined` before the manifest has come, and with runtimes that have no such service. */
  async progress(image: string, signal: AbortSignal): Promise<PullProgress | undefined> {
    const parsed = parseImageReference(image);
    if (!parsed.ok || parsed.reference.kind !== "registry") return undefined;
    const statuses = await this.#content.contentStatuses(signal);
    if (statuses === undefined) return undefined;
    const open = new Map(statuses.map(({ ref, offset }) => [digestOf(ref), offset]));
    let newest: PullProgress | undefined;
    for (const manifest of await this.#manifests(parsed.reference, signal)) {
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
    const seconds = (info: ContentInfo): number => info.createdAt?.seconds ?? 0;
    return infos
      .filter(({ labels, size }) => labels.has(CONFIG_LABEL) && size <= MAX_MANIFEST_BYTES)
      .sort((a, b) => seconds(b) - seconds(a))
      .slice(0, MAX_MANIFESTS)
      .map(({ digest }) => digest);
  }

  /** Lists the blobs of a manifest; the size of each complete one comes with `isThere`. */
  async #blobs(manifest: string, signal: AbortSignal): Promise<readonly (Blob & { readonly isThere: boolean })[]> {
    const named = blobsIn((await this.#content.contentOf(manifest, signal)) ?? Buffer.alloc(0));
    if (named.length === 0) return [];
    const there = await this.#list(
      named.map(({ digest }) => `digest==${digest}`),
      signal,
    );
    const digests = new Set(there.map(({ digest }) => digest));
    return named.map((blob) => ({ ...blob, isThere: digests.has(blob.digest) }));
  }

  async #list(filters: readonly string[], signal: AbortSignal): Promise<readonly ContentInfo[]> {
    return (await this.#content.contentInfos(filters, signal)) ?? [];
  }
}

/** @param ref `layer-sha256:…`, `config-sha256:…` */
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
