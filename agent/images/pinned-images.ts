import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { ImageInfo } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { RecordFiles } from "./pulls/pull-records.ts";

const FILE = "pinned.json";
/** Bounds the pins, which are typed by hand; a further one is refused. */
const MAX_PINNED = 256;

/** Names of images that stay even on a full disk. They are on disk, so that garbage collection has them at once. */
export class PinnedImages {
  readonly #files: RecordFiles;
  readonly #log: Log;
  #names: ReadonlySet<string> | undefined;

  constructor(components: { readonly files: RecordFiles; readonly log: Log }) {
    this.#files = components.files;
    this.#log = components.log;
  }

  /** Canonical, sorted. */
  get names(): readonly string[] {
    return [...this.#known()].sort();
  }

  /** By any of its names; of one that is pinned by digest, by that. */
  has({ tags, digests }: Pick<ImageInfo, "tags" | "digests">): boolean {
    const known = this.#known();
    if (known.size === 0) return false;
    return [...tags, ...digests].some((name) => {
      const parsed = parseImageReference(name);
      return parsed.ok && known.has(parsed.reference.canonical);
    });
  }

  /** @returns the canonical name. @throws `invalid` for what is no name, `resource_exhausted` */
  set(image: string, isPinned: boolean): string {
    const parsed = parseImageReference(image);
    if (!parsed.ok) throw new PicoletError("invalid", `cannot pin ${image}: ${parsed.problem}`);
    const { canonical } = parsed.reference;
    const names = new Set(this.#known());
    if (isPinned) names.add(canonical);
    else names.delete(canonical);
    if (names.size > MAX_PINNED)
      throw new PicoletError("resource_exhausted", `cannot pin more than ${MAX_PINNED} images`);
    this.#files.write(`${FILE}.new`, JSON.stringify([...names].sort()));
    this.#files.rename(`${FILE}.new`, FILE);
    this.#files.sync();
    this.#names = names;
    return canonical;
  }

  #known(): ReadonlySet<string> {
    this.#names ??= this.#read();
    return this.#names;
  }

  #read(): ReadonlySet<string> {
    try {
      const names: unknown = JSON.parse(this.#files.read(FILE) ?? "[]");
      if (Array.isArray(names)) return new Set(names.filter((name): name is string => typeof name === "string"));
      throw new PicoletError("corrupt", "it is no list");
    } catch (error) {
      this.#log.warn("cannot read the list of pinned images: none is pinned", { error: describeError(error) });
      return new Set();
    }
  }
}
