import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { StatusError } from "../api/status-error.ts";

/**
 * The rank of a writer: boards' creates give way first, then other users' writes. Administrators may use the last byte.
 */
export type WriteRank = "create of a board" | "other";

interface Space {
  /** On the file system, for this process. */
  readonly freeBytes: number;
  readonly totalBytes: number;
}

export interface DiskSpaceComponents {
  readonly clock: Clock;
  readonly log: Log;
  /** Inside the store's file: what is used, and what further writes reuse before the file grows. */
  readonly storeSpace: () => { readonly usedBytes: number; readonly reusableBytes: number };
  /** Default: statfs(2) of the folder. */
  readonly diskSpace?: ((folder: string) => Space) | undefined;
}

export interface DiskSpaceInit {
  readonly storePath: string;
  /** Size of the store above which boards are refused. Undefined: as much as the disk has, less the reserve. */
  readonly maxStoreBytes?: number | undefined;
}

/** A call of statfs(2) takes some microseconds; in this time a flow of 429s is cheaper than it is. */
const MAX_AGE_MS = 1000;
/**
 * Left for administrators: enough for the write-ahead log of the store (4 MiB), a compaction, and the time until an
 * administrator comes. A fiftieth of a small disk, no more of a large one than that takes.
 */
const RESERVE_SHARE = 1 / 50;
const MIN_RESERVE_BYTES = 32 * MEBIBYTE;
const MAX_RESERVE_BYTES = 256 * MEBIBYTE;
/** A client that comes back sooner finds nothing changed. */
const RETRY_SECONDS = 30;

/**
 * Keeps the last part of the disk for administrators: a full disk would refuse them too, and with them what makes room.
 * Boards may create nothing once the reserve is touched; once half of it is gone only administrators write.
 */
export class DiskSpace {
  readonly #components: DiskSpaceComponents;
  readonly #init: DiskSpaceInit;
  #left: { readonly bytes: number; readonly reserve: number; readonly atMs: number } | undefined;
  #isShort = false;

  constructor(components: DiskSpaceComponents, init: DiskSpaceInit) {
    this.#components = components;
    this.#init = init;
  }

  /** @throws StatusError 507 */
  require(rank: WriteRank): void {
    const { bytes, reserve } = this.#current();
    if (bytes >= (rank === "other" ? reserve / 2 : reserve)) return;
    const mebibytes = (count: number): string => `${Math.max(0, Math.floor(count / 1024 / 1024))} MiB`;
    const message =
      `the hub's store has ${mebibytes(bytes)} left, of which it keeps ${mebibytes(reserve)} for administrators: ` +
      `free space on the disk of ${this.#init.storePath}, or remove objects`;
    throw new StatusError("InsufficientStorage", message, { retryAfterSeconds: RETRY_SECONDS });
  }

  #current(): { readonly bytes: number; readonly reserve: number } {
    const now = this.#components.clock.monotonic();
    if (this.#left !== undefined && now - this.#left.atMs < MAX_AGE_MS) return this.#left;
    const left = { ...this.#measure(), atMs: now };
    this.#left = left;
    const isShort = left.bytes < left.reserve;
    const { log } = this.#components;
    if (isShort && !this.#isShort) log.error("the store is nearly full: boards' writes are refused", { ...left });
    if (!isShort && this.#isShort) log.info("the store has room again", { ...left });
    this.#isShort = isShort;
    return left;
  }

  #measure(): { readonly bytes: number; readonly reserve: number } {
    const { storeSpace, diskSpace = statfs } = this.#components;
    const { storePath, maxStoreBytes = Number.POSITIVE_INFINITY } = this.#init;
    const { usedBytes, reusableBytes } = storeSpace();
    const { freeBytes, totalBytes } = diskSpace(dirname(storePath));
    const capacity = Math.min(totalBytes, maxStoreBytes);
    const bytes = Math.min(freeBytes + reusableBytes, maxStoreBytes - usedBytes);
    const reserve = Math.min(MAX_RESERVE_BYTES, Math.max(MIN_RESERVE_BYTES, capacity * RESERVE_SHARE));
    // A limit that is smaller than the reserve would refuse the first board.
    return { bytes, reserve: Math.min(reserve, capacity / 4) };
  }
}

function statfs(folder: string): Space {
  const { bavail, bsize, blocks } = statfsSync(folder);
  return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
}
