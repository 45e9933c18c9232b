/** From a reference to the manifest that leads to its component, through indexes; and what else the reference holds. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { FetchedDocument, RegistryClient } from "../registry/registry-client.ts";
import { COMPONENT_PLATFORM, isComponentPlatform } from "../shared/oci/platforms.ts";
import { type IndexEntry, parseDocument, platformOfConfig, type RegistryDocument } from "./manifests.ts";

export type Manifest = Exclude<RegistryDocument, { kind: "index" }>;

export interface Found {
  /** The digest that the reference leads to. */
  readonly digest: string;
  readonly manifestDigest: string;
  readonly manifest: Manifest;
  readonly platforms: readonly string[];
}

/** An index may hold indexes; tools nest two. */
const MAX_INDEX_DEPTH = 3;
/** Asked for in one search; an index says most often which of its entries it is. */
const MAX_MANIFESTS = 32;

type Documents = Pick<RegistryClient, "manifest" | "document">;

export class ImageSearch {
  readonly #registry: Documents;
  readonly #signal: AbortSignal;
  readonly #platforms = new Set<string>();
  #asked = 0;

  constructor(registry: Documents, signal: AbortSignal) {
    this.#registry = registry;
    this.#signal = signal;
  }

  /** @throws `invalid` when there is nothing that could be a component. */
  async component(reference: string): Promise<Found> {
    const top = await this.#fetch(reference);
    const found = await this.#search(top, 0);
    if (found === undefined) {
      const held = [...this.#platforms].join(", ");
      throw new PicoletError("invalid", `the image holds no component${held === "" ? "" : `, only ${held}`}`);
    }
    if (found.manifest.kind === "artifact") this.#platforms.add(COMPONENT_PLATFORM);
    return { digest: top.digest, ...found, platforms: this.#sorted() };
  }

  /** Nothing is fetched but what says so. */
  async platforms(reference: string): Promise<readonly string[]> {
    await this.#gather(await this.#fetch(reference), 0);
    return this.#sorted();
  }

  async #gather({ content }: FetchedDocument, depth: number): Promise<void> {
    const document = parseDocument(content);
    if (document.kind === "artifact") this.#platforms.add(COMPONENT_PLATFORM);
    else if (document.kind === "image") await this.#addPlatformOf(document);
    else {
      this.#checkDepth(depth);
      for (const entry of document.entries) {
        if (entry.platform !== undefined) this.#addPlatform(entry.platform);
        else await this.#gather(await this.#fetch(entry.digest), depth + 1);
      }
    }
  }

  async #addPlatformOf({ config }: Extract<Manifest, { kind: "image" }>): Promise<void> {
    if (config === undefined) return;
    const platform = platformOfConfig(await this.#registry.document(config.digest, this.#signal));
    if (platform !== undefined) this.#addPlatform(platform);
  }

  /** A component that says it is one, else the first image, which may hold one. */
  async #search(
    { content, digest }: FetchedDocument,
    depth: number,
  ): Promise<Pick<Found, "manifest" | "manifestDigest"> | undefined> {
    const document = parseDocument(content);
    if (document.kind !== "index") return { manifest: document, manifestDigest: digest };
    this.#checkDepth(depth);
    for (const { platform } of document.entries) if (platform !== undefined) this.#addPlatform(platform);
    let image: Pick<Found, "manifest" | "manifestDigest"> | undefined;
    for (const entry of promisingEntries(document.entries)) {
      const found = await this.#search(await this.#fetch(entry.digest), depth + 1);
      if (found?.manifest.kind === "artifact") return found;
      if (found !== undefined && entry.platform !== undefined && isComponentPlatform(entry.platform)) return found;
      image ??= found;
    }
    return image;
  }

  #checkDepth(depth: number): void {
    if (depth < MAX_INDEX_DEPTH) return;
    throw new PicoletError("invalid", `its indexes lead to indexes more than ${MAX_INDEX_DEPTH} times`);
  }

  async #fetch(reference: string): Promise<FetchedDocument> {
    this.#asked += 1;
    if (this.#asked > MAX_MANIFESTS) {
      throw new PicoletError("resource_exhausted", `it has more than ${MAX_MANIFESTS} manifests to look through`);
    }
    return this.#registry.manifest(reference, this.#signal);
  }

  #sorted(): readonly string[] {
    return [...this.#platforms].sort();
  }

  #addPlatform(platform: string): void {
    this.#platforms.add(isComponentPlatform(platform) ? COMPONENT_PLATFORM : platform);
  }
}

/** One container's image is as good as another's where there is no component: each holds the same file, or none. */
function promisingEntries(entries: readonly IndexEntry[]): readonly IndexEntry[] {
  const own = entries.filter(({ platform }) => platform === undefined || isComponentPlatform(platform));
  return own.length > 0 ? own : entries.slice(0, 1);
}
