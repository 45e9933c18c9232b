import { stat, statfs } from "node:fs/promises";
import { SharedSample } from "@picolet/protocol/async/shared-task.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";
import type { ImageService, RuntimeFilesystem } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { FilesystemUsage, NodeFilesystems } from "../core/node/usage.ts";

/** The result of statfs(2), with its names. */
export interface FilesystemStatistics {
  readonly type: number;
  readonly bsize: number;
  readonly blocks: number;
  readonly bfree: number;
  readonly bavail: number;
  readonly files: number;
  readonly ffree: number;
}

export interface FilesystemSamplerComponents {
  /** The image service of the containers' runtime; undefined: there is none, images are below the root directory. */
  readonly images: Pick<ImageService, "filesystems"> | undefined;
  readonly clock: Clock;
  readonly log: Log;
  /** Only tests bring another one. */
  readonly statfs?: (path: string) => Promise<FilesystemStatistics>;
}

/** The usage that the runtime reports of its file systems. */
export interface RuntimeFilesystems {
  readonly images: RuntimeFilesystem;
  readonly containers: RuntimeFilesystem;
}

export interface FilesystemSample extends NodeFilesystems {
  readonly atMs: number;
  /** As it said last; undefined: never yet. */
  readonly runtime: RuntimeFilesystems | undefined;
}

/**
 * So long what asks for a file system waits for one that has been asked already, and is no longer believed to answer
 * then.
 */
const PATIENCE = seconds(5);
/** Its subvolumes have device numbers of their own, and share all of the space. */
const BTRFS_MAGIC = 0x9123683e;

interface Seen {
  readonly device: number;
  readonly isBtrfs: boolean;
  readonly usage: FilesystemUsage;
}

/**
 * The node's file systems. Where images are is asked of the runtime each time, and kept: a runtime that does not
 * answer, perhaps because the disk is full, must not hide that. Before its first answer images count as being where the
 * node's files are.
 */
export class FilesystemSampler {
  readonly #components: FilesystemSamplerComponents;
  readonly #rootDir: string;
  readonly #samples: SharedSample<FilesystemSample>;
  #runtime: RuntimeFilesystems | undefined;
  /**
   * By path: calls that nothing can end, each of which holds one of the few threads that all of the agent's files
   * share.
   */
  readonly #asked = new Map<string, { readonly at: MonotonicMs; readonly seen: Promise<Seen> }>();
  /** True once the failure was logged. */
  #isSilent = false;

  constructor(components: FilesystemSamplerComponents, init: { readonly rootDir: string }) {
    this.#components = components;
    this.#rootDir = init.rootDir;
    this.#samples = new SharedSample(components, "the sample of file systems", (signal) => this.#take(signal));
  }

  /** @throws `failed`, with the path, for a file system that cannot be asked or says what cannot be */
  filesystems(maxAge: Millis, signal: AbortSignal): Promise<FilesystemSample> {
    return this.#samples.get(maxAge, signal);
  }

  async #take(signal: AbortSignal): Promise<FilesystemSample> {
    const atMs = this.#components.clock.wall().getTime();
    const runtime = await this.#ask(signal);
    const node = await this.#see(this.#rootDir);
    const images = runtime === undefined ? node : same(await this.#see(runtime.images.mountPoint), [node]);
    const containers =
      runtime === undefined ? node : same(await this.#see(runtime.containers.mountPoint), [images, node]);
    return { atMs, nodefs: node.usage, imagefs: images.usage, containerfs: containers.usage, runtime };
  }

  async #ask(signal: AbortSignal): Promise<RuntimeFilesystems | undefined> {
    const { images, log } = this.#components;
    try {
      this.#runtime = (await images?.filesystems?.(signal)) ?? this.#runtime;
      this.#isSilent = false;
    } catch (error) {
      if (isCancelled(error)) throw error;
      const isKnown = this.#runtime !== undefined;
      const fields = { isKnown, error: describeError(error) };
      if (!this.#isSilent) log.warn("the runtime does not report where its images are", fields);
      this.#isSilent = true;
    }
    return this.#runtime;
  }

  /**
   * One call at a time for each path, however often it is asked for: a disk that hangs must not stop what lies on
   * others.
   */
  async #see(path: string): Promise<Seen> {
    const { clock } = this.#components;
    const now = clock.monotonic();
    const underway = this.#asked.get(path);
    if (underway !== undefined) {
      if (now - underway.at <= PATIENCE) return await underway.seen;
      throw new PicoletError("unavailable", `the file system of ${path} does not answer`, { retryable: true });
    }
    const seen = this.#statistics(path).finally(() => this.#asked.delete(path));
    this.#asked.set(path, { at: now, seen });
    return await seen;
  }

  async #statistics(path: string): Promise<Seen> {
    const ask: (path: string) => Promise<FilesystemStatistics> = this.#components.statfs ?? statfs;
    try {
      const { dev } = await stat(path);
      const statistics = await ask(path);
      return { device: dev, isBtrfs: statistics.type === BTRFS_MAGIC, usage: usageOf(statistics) };
    } catch (error) {
      throw new PicoletError("failed", `cannot read the free space of the file system of ${path}`, {
        cause: error,
        retryable: true,
      });
    }
  }
}

function same(seen: Seen, others: readonly Seen[]): Seen {
  return others.find((other) => seen.device === other.device || isSameBtrfs(seen, other)) ?? seen;
}

const isSameBtrfs = (one: Seen, other: Seen): boolean =>
  one.isBtrfs && other.isBtrfs && one.usage.capacityBytes === other.usage.capacityBytes;

/** @throws `corrupt` for impossible figures, so that no pod is evicted because of them */
export function usageOf(statistics: FilesystemStatistics): FilesystemUsage {
  const { bsize, blocks, bfree, bavail, files, ffree } = statistics;
  const isSane =
    [bsize, blocks, bfree, bavail, files, ffree].every((value) => Number.isFinite(value) && value >= 0) &&
    blocks * bsize > 0 &&
    bfree <= blocks &&
    bavail <= blocks &&
    ffree <= files;
  if (!isSane) {
    const said = `${blocks} blocks of ${bsize} bytes, ${bfree} free, ${bavail} available, ${files} inodes, ${ffree} free`;
    throw new PicoletError("corrupt", `it cannot have ${said}`);
  }
  return {
    capacityBytes: blocks * bsize,
    availableBytes: bavail * bsize,
    usedBytes: (blocks - bfree) * bsize,
    inodes: files,
    inodesFree: ffree,
    inodesUsed: files - ffree,
  };
}
