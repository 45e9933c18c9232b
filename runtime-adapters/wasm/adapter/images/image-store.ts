/**
 * Components on this node by the names that pods give them: pulled ones, imported files and archives, and `file:///…`
 * references, whose file is copied when it is first seen and each time it has changed.
 * Layout below the root: `components/` (see ComponentBlobs), `images/<hash of the name>.json`, `pulls/` (see
 * RegistryPulls), `tmp/`.
 */
import { mkdir, rm } from "node:fs/promises";
import { checkCancelled } from "@picolet/protocol/async/abort.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import type {
  ImageHoldings,
  ImageInfo,
  ImagePlatforms,
  ImageService,
  PullOptions,
  PullProgress,
  SignedImage,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { fileError, TemporaryNames } from "../../shared/files/durable-files.ts";
import type { PulledComponent } from "../../shared/messages/pull-request.ts";
import { COMPONENT_PLATFORM, platformsOf } from "../../shared/oci/platforms.ts";
import { type ComponentBlob, ComponentBlobs } from "./component-blobs.ts";
import { ImageNames } from "./image-names.ts";
import { parseReference } from "./image-references.ts";
import { LocalImages } from "./local-images.ts";
import type { RegistryPulls, RegistryPullsInit } from "./registry-pulls.ts";
import { withMessage } from "./wrapped-error.ts";

export interface ImageStoreComponents {
  readonly clock: Pick<Clock, "sleep" | "wall" | "monotonic">;
  readonly log: Log;
  /** For what pulls take. */
  readonly cgroups?: CgroupPort | undefined;
  /** Before anything else. Missing: nothing has to be done. */
  readonly prepare?: () => Promise<void>;
  /** Called for each component that is removed, so that what was made from it goes too. */
  readonly onRemoved: (sha256: string) => Promise<void>;
  /** The components of all containers, whether they run or not. Undefined: there are none. */
  readonly used?: () => Promise<Iterable<string>>;
  /** Bytes of what was made from each component; what was made from others is taken away. Missing: nothing ever is. */
  readonly derived?: (components: ReadonlySet<string>) => Promise<ReadonlyMap<string, number>>;
}

export interface ImageStoreInit {
  /** Absolute. */
  readonly rootDirectory: string;
  /** Default 64 MiB: a component that large takes some 350 MiB to transpile. */
  readonly maxComponentBytes?: number | undefined;
  /** Missing: nothing is pulled. */
  readonly pulls?: RegistryPullsInit | undefined;
  /** True when components of WASI 0.3 are accepted. */
  readonly p3?: boolean | undefined;
}

const DEFAULT_MAX_COMPONENT_BYTES = 64 * MEBIBYTE;

/** Reports to one pull. */
const MAX_KNOWN = 256;

export class ImageStore implements ImageService {
  readonly #components: ImageStoreComponents;
  readonly #root: string;
  readonly #temporaryNames: TemporaryNames;
  readonly #blobs: ComponentBlobs;
  readonly #maxComponentBytes: number;
  readonly #pullsInit: RegistryPullsInit | undefined;
  #pulls: RegistryPulls | undefined;
  readonly #names: ImageNames;
  readonly #files: LocalImages;
  #opened: Promise<void> | undefined;

  constructor(components: ImageStoreComponents, init: ImageStoreInit) {
    this.#components = components;
    this.#root = init.rootDirectory;
    this.#temporaryNames = new TemporaryNames(`${this.#root}/tmp`);
    this.#maxComponentBytes = init.maxComponentBytes ?? DEFAULT_MAX_COMPONENT_BYTES;
    this.#pullsInit = init.pulls;
    this.#blobs = new ComponentBlobs(
      `${this.#root}/components`,
      this.#temporaryNames,
      this.#maxComponentBytes,
      init.p3 ?? false,
    );
    const names = { clock: components.clock, log: components.log, temporaryNames: this.#temporaryNames };
    this.#names = new ImageNames(names, `${this.#root}/images`);
    this.#files = new LocalImages({
      blobs: this.#blobs,
      names: this.#names,
      forget: (sha256) => this.#forget(sha256),
    });
  }

  /** Components are in one file each, and write nothing to a file system of their own. */
  async filesystems(signal: AbortSignal): ReturnType<NonNullable<ImageService["filesystems"]>> {
    const images = await this.list(signal);
    const usedBytes = images.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const folder = { mountPoint: this.#root, usedBytes, inodesUsed: images.length };
    return { images: folder, containers: { ...folder, usedBytes: 0, inodesUsed: 0 } };
  }

  /** Also those whose name is another's now, as container runtimes do. */
  async list(signal: AbortSignal): Promise<readonly ImageInfo[]> {
    await this.#open(signal);
    const infos = await Promise.all((await this.#blobs.list()).map((sha256) => this.#info(sha256, "unnamed too")));
    return infos.filter((info) => info !== undefined);
  }

  async holdings(signal: AbortSignal): Promise<ImageHoldings> {
    await this.#open(signal);
    const { used, derived } = this.#components;
    const sizes = await derived?.(new Set(await this.#blobs.list()));
    const ids = (hashes: Iterable<string>): string[] => [...hashes].map((sha256) => `sha256:${sha256}`);
    return {
      used: new Set(ids((await used?.()) ?? [])),
      derivedBytes: new Map([...(sizes ?? [])].map(([sha256, bytes]) => [`sha256:${sha256}`, bytes])),
    };
  }

  async status(reference: string, signal: AbortSignal): Promise<ImageInfo | undefined> {
    await this.#open(signal);
    const sha256 = /^(?:sha256:)?([0-9a-f]{64})$/.exec(reference)?.[1];
    if (sha256 !== undefined) return this.#info(sha256);
    const parsed = parseReference(reference);
    if (parsed.kind === "file") {
      const blob = await this.#files.copyOf(parsed.path, parsed.canonical, "ImageInspectError", signal);
      return blob === undefined ? undefined : this.#info(blob.sha256);
    }
    const record = this.#names.find(parsed);
    return record === undefined ? undefined : this.#info(record.sha256);
  }

  async pull(reference: string, options: PullOptions, signal: AbortSignal): Promise<ImageInfo> {
    await this.#open(signal);
    const parsed = parseReference(reference);
    if (parsed.kind === "file") {
      const blob = await this.#files.copyOf(parsed.path, parsed.canonical, "ErrImagePull", signal);
      const info = blob === undefined ? undefined : await this.#info(blob.sha256);
      if (info !== undefined) return info;
      throw new PicoletError("not_found", `cannot find the file ${parsed.path}`, { reason: "ErrImagePull" });
    }
    try {
      const pulls = await this.#registryPulls();
      const adopt = (component: PulledComponent): Promise<string> => this.#adopt(parsed.canonical, component);
      const sha256 = await pulls.pull(parsed, options, await this.#known(), adopt, signal);
      const info = await this.#info(sha256);
      if (info !== undefined) return info;
      throw new PicoletError("failed", "it was removed at once", { retryable: true });
    } catch (error) {
      throw withMessage(fileError(error, "cannot store it"), `cannot pull ${reference}`, "ErrImagePull");
    }
  }

  async progress(reference: string): Promise<PullProgress | undefined> {
    return this.#pulls?.progress(parseReference(reference).canonical);
  }

  /** The platforms in the registry, or, while it cannot be reached, those when the component was pulled. */
  async platforms(reference: string, options: PullOptions, signal: AbortSignal): Promise<ImagePlatforms> {
    await this.#open(signal);
    const parsed = parseReference(reference);
    if (parsed.kind === "file") return platformsOf([COMPONENT_PLATFORM]);
    try {
      return platformsOf(await (await this.#registryPulls()).platforms(parsed, options, signal));
    } catch (error) {
      const record = this.#names.find(parsed);
      if (isPicoletError(error, "unavailable") && record !== undefined)
        return platformsOf(record.platforms ?? [COMPONENT_PLATFORM]);
      throw withMessage(fileError(error, "cannot ask"), `cannot tell what ${reference} holds`, "ErrImagePull");
    }
  }

  /** Also of images that are no components: nothing is fetched but what is signed. */
  async signatures(reference: string, options: PullOptions, signal: AbortSignal): Promise<SignedImage> {
    await this.#open(signal);
    const parsed = parseReference(reference);
    try {
      if (parsed.kind === "file") throw new PicoletError("invalid", "a file on the node has no signature");
      return await (await this.#registryPulls()).signatures(parsed, options, signal);
    } catch (error) {
      throw withMessage(fileError(error, "cannot ask"), `cannot tell who signed ${reference}`, "ErrImagePull");
    }
  }

  async #registryPulls(): Promise<RegistryPulls> {
    if (this.#pulls !== undefined) return this.#pulls;
    const init = this.#pullsInit;
    if (init === undefined) throw new PicoletError("unimplemented", "this node pulls no components from registries");
    // With Node's child processes, which an agent without components does not need.
    const { RegistryPulls } = await import("./registry-pulls.ts");
    const { clock, log, cgroups } = this.#components;
    const place = { directory: `${this.#root}/pulls`, maxComponentBytes: this.#maxComponentBytes };
    this.#pulls ??= new RegistryPulls({ clock, log, cgroups }, init, place);
    return this.#pulls;
  }

  /** Components that need not be pulled again, by the manifest that leads to them. */
  async #known(): Promise<Readonly<Record<string, string>>> {
    const here = new Set(await this.#blobs.list());
    const records = this.#names
      .all()
      .filter(({ sha256 }) => here.has(sha256))
      .slice(0, MAX_KNOWN);
    return Object.fromEntries(
      records.flatMap(({ sha256, entryDigest }) => (entryDigest === undefined ? [] : [[entryDigest, sha256]])),
    );
  }

  async #adopt(canonical: string, { sha256, path, digest, ...more }: PulledComponent): Promise<string> {
    const blob = path === undefined ? await this.#blobs.get(sha256) : await this.#blobs.adopt(path, sha256);
    if (blob === undefined)
      throw new PicoletError("failed", "the component was removed meanwhile", { retryable: true });
    const { manifestDigest: entryDigest, platforms } = more;
    await this.#names.set(canonical, { sha256, manifestDigest: digest, entryDigest, platforms });
    return sha256;
  }

  async import(path: string, name: string | undefined, signal: AbortSignal): Promise<readonly ImageInfo[]> {
    await this.#open(signal);
    const imported = await this.#files.import(path, name, signal);
    const infos = await Promise.all([...new Set(imported)].map((sha256) => this.#info(sha256)));
    return infos.filter((info) => info !== undefined);
  }

  /** By name or by id; a component with no name left is removed with all that was made from it. */
  async remove(id: string, signal: AbortSignal): Promise<void> {
    await this.#open(signal);
    const asId = /^(?:sha256:)?([0-9a-f]{64})$/.exec(id)?.[1];
    const canonical = asId === undefined ? parseReference(id).canonical : undefined;
    const removed = this.#names.all().filter((each) => each.sha256 === asId || each.name === canonical);
    for (const { name } of removed) await this.#names.delete(name);
    const orphans = new Set(removed.map((each) => each.sha256));
    if (asId !== undefined) orphans.add(asId);
    for (const sha256 of this.#names.hashes()) orphans.delete(sha256);
    for (const sha256 of orphans) await this.#forget(sha256);
  }

  /** The component of an image's id, for a container that will start. */
  async component(id: string, signal: AbortSignal): Promise<{ readonly path: string; readonly blob: ComponentBlob }> {
    await this.#open(signal);
    const sha256 = id.replace(/^sha256:/, "");
    const blob = await this.#blobs.get(sha256);
    if (blob === undefined)
      throw new PicoletError("not_found", `cannot find the image ${id}`, { reason: "CreateContainerError" });
    return { path: this.#blobs.path(sha256), blob };
  }

  async #forget(sha256: string): Promise<void> {
    await this.#blobs.remove(sha256);
    await this.#components.onRemoved(sha256);
  }

  async #info(sha256: string, which?: "unnamed too"): Promise<ImageInfo | undefined> {
    const blob = await this.#blobs.get(sha256);
    if (blob === undefined) return undefined;
    const records = this.#names.all().filter((each) => each.sha256 === sha256);
    if (records.length === 0 && which === undefined) return undefined;
    const digests = records.flatMap(({ name, manifestDigest }) => {
      const repository = name.startsWith("file://") ? undefined : name.replace(/(?::[^:/]*)?(?:@.*)?$/, "");
      return repository === undefined ? [] : [`${repository}@${manifestDigest ?? `sha256:${sha256}`}`];
    });
    return {
      id: `sha256:${sha256}`,
      tags: records.map((each) => each.name),
      digests: [...new Set(digests)],
      sizeBytes: blob.sizeBytes,
      pinned: false,
    };
  }

  /** Reads the names once. */
  async #open(signal: AbortSignal): Promise<void> {
    checkCancelled(signal, "the list of images");
    this.#opened ??= this.#load().catch((error: unknown) => {
      this.#opened = undefined;
      throw fileError(error, `cannot read the images in ${this.#root}`);
    });
    await this.#opened;
  }

  async #load(): Promise<void> {
    await this.#components.prepare?.();
    // Half-written files of an agent that died.
    await rm(`${this.#root}/tmp`, { recursive: true, force: true });
    await mkdir(`${this.#root}/tmp`, { recursive: true });
    await this.#names.load();
    await this.#removeUnnamed();
    await this.#names.sync();
  }

  /** Stored, but the agent died before they got their name, or was renamed away from. */
  async #removeUnnamed(): Promise<void> {
    const named = this.#names.hashes();
    for (const sha256 of await this.#blobs.list()) if (!named.has(sha256)) await this.#forget(sha256);
  }
}
