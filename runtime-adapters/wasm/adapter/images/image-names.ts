import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { ImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { syncDirectory, type TemporaryNames, writeDurably } from "../../shared/files/durable-files.ts";

/** Names on one node; each is a small file and some 500 bytes of memory. */
const MAX_NAMES = 4096;

/** `images/<hash>.json` */
export interface NameRecord {
  /** Canonical. */
  readonly name: string;
  readonly sha256: string;
  /** The digest of the name's manifest: of an index, where there is one. */
  readonly manifestDigest: string | undefined;
  /** The digest of the manifest in that index which leads to the component. */
  readonly entryDigest?: string | undefined;
  /** Other platforms of this name: `linux/arm64`. Only of pulled ones. */
  readonly platforms?: readonly string[] | undefined;
  readonly importedAtMs: number;
  /** The state of the file of a `file://` reference when it was copied. */
  readonly source: SourceStamp | undefined;
}

export interface SourceStamp {
  readonly device: number;
  readonly inode: number;
  readonly sizeBytes: number;
  readonly modifiedAtMs: number;
}

export interface ImageNamesComponents {
  readonly clock: Pick<Clock, "wall">;
  readonly log: Log;
  readonly temporaryNames: TemporaryNames;
}

/** The names of this node's components, each in a file of its own in one folder. */
export class ImageNames {
  readonly #components: ImageNamesComponents;
  readonly #folder: string;
  readonly #records = new Map<string, NameRecord>();

  constructor(components: ImageNamesComponents, folder: string) {
    this.#components = components;
    this.#folder = folder;
  }

  /** Once, before anything else. */
  async load(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    for (const entry of await readdir(this.#folder)) {
      const path = `${this.#folder}/${entry}`;
      const record = parseRecord(await readFile(path, "utf8"));
      if (record !== undefined && this.#records.size < MAX_NAMES) this.#records.set(record.name, record);
      else {
        this.#components.log.warn("an image record is unreadable and was removed", { path });
        await rm(path, { force: true });
      }
    }
  }

  /** Makes removals durable. */
  async sync(): Promise<void> {
    await syncDirectory(this.#folder);
  }

  all(): readonly NameRecord[] {
    return [...this.#records.values()];
  }

  get(canonical: string): NameRecord | undefined {
    return this.#records.get(canonical);
  }

  /** The hashes of all components that have a name. */
  hashes(): ReadonlySet<string> {
    return new Set(this.all().map(({ sha256 }) => sha256));
  }

  /** By its name or, where it has another one, by its digest. */
  find(reference: Extract<ImageReference, { kind: "registry" }>): NameRecord | undefined {
    return this.#records.get(reference.canonical) ?? this.#byDigest(reference);
  }

  /** Gives a stored component a name, which another one may have had; that one goes when the next agent starts. */
  async set(name: string, about: Pick<NameRecord, "sha256"> & Partial<NameRecord>): Promise<void> {
    const before = this.#records.get(name);
    if (before === undefined && this.#records.size >= MAX_NAMES) {
      throw new PicoletError("resource_exhausted", `cannot name more than ${MAX_NAMES} images`);
    }
    const importedAtMs = this.#components.clock.wall().getTime();
    const record: NameRecord = { manifestDigest: undefined, source: undefined, ...about, name, importedAtMs };
    await mkdir(this.#folder, { recursive: true });
    await writeDurably(this.#path(name), `${JSON.stringify(record)}\n`, this.#components.temporaryNames.next());
    this.#records.set(name, record);
  }

  async delete(name: string): Promise<void> {
    this.#records.delete(name);
    await rm(this.#path(name), { force: true });
  }

  #byDigest(reference: Extract<ImageReference, { kind: "registry" }>): NameRecord | undefined {
    const { digest, domain, repository } = reference;
    if (digest === undefined) return undefined;
    const prefix = `${domain}/${repository}`;
    return this.all().find(
      ({ name, sha256, manifestDigest, entryDigest }) =>
        (manifestDigest === digest || entryDigest === digest || `sha256:${sha256}` === digest) &&
        (name.startsWith(`${prefix}:`) || name.startsWith(`${prefix}@`)),
    );
  }

  #path(name: string): string {
    return `${this.#folder}/${createHash("sha256").update(name).digest("hex").slice(0, 40)}.json`;
  }
}

/** Undefined for anything that this code did not write. */
function parseRecord(text: string): NameRecord | undefined {
  try {
    const record = JSON.parse(text) as NameRecord;
    return typeof record.name === "string" && /^[0-9a-f]{64}$/.test(record.sha256) ? record : undefined;
  } catch {
    return undefined;
  }
}
