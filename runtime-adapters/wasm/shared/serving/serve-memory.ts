/**
 * Bounds the memory of serving, by the limit of its container. The bounds are those of the most that a flood can take.
 * The guard measures what the process really takes, because a component has a memory of its own, and V8 its garbage.
 */
import { MEBIBYTE } from "@picolet/protocol/units.ts";

export interface ServeMemory {
  readonly maxConnections: number;
  /** Bounds the bytes that are written and not sent, of all connections together. */
  readonly maxUnsentBytes: number;
}

/** The memory of a runner that serves nothing yet. */
const RUNNER_BYTES = 16 * MEBIBYTE;
/**
 * Each takes about 6 KiB and a file descriptor, and buffers at most 4 KiB of a body that the component has not
 * requested.
 */
const MAX_CONNECTIONS = 512;
const MIN_CONNECTIONS = 32;
/** The memory of a connection, with the parts of V8 and the kernel. */
const CONNECTION_BYTES = 65_536;
const MAX_UNSENT_BYTES = 8 * MEBIBYTE;
/** Two responses that are not taken, as far as they are written. */
const MIN_UNSENT_BYTES = 262_144;

/**
 * @param limitBytes of the container; undefined: it has none
 * @param weight of a connection, see `NodeParts`
 */
export function serveMemory(limitBytes: number | undefined, weight = 1): ServeMemory {
  if (limitBytes === undefined) return { maxConnections: MAX_CONNECTIONS, maxUnsentBytes: MAX_UNSENT_BYTES };
  const room = Math.max(limitBytes - RUNNER_BYTES, 0);
  return {
    // Connections get half of the room, their unsent bytes an eighth. The rest is for instances and garbage.
    maxConnections: clamped(room / 2 / CONNECTION_BYTES / weight, MIN_CONNECTIONS / weight, MAX_CONNECTIONS),
    maxUnsentBytes: clamped(room / 8, MIN_UNSENT_BYTES, MAX_UNSENT_BYTES),
  };
}

const clamped = (value: number, least: number, most: number): number =>
  Math.floor(Math.min(Math.max(value, least), most));

/** Beyond it no more is begun than one thing at a time: between two looks some MiB may come. */
const TIGHT_SHARE = 0.6;
/** A look takes some 30 microseconds. */
const SAMPLE_INTERVAL_MS = 10;
/** A collection takes some 20 ms. */
const COLLECT_INTERVAL_MS = 500;

export interface MemoryGuardComponents {
  /** Anonymous memory of the process, bytes. */
  readonly anonBytes: () => number;
  /** Collects garbage. */
  readonly collect: () => void;
  /** Milliseconds, monotonic. */
  readonly now: () => number;
}

export class MemoryGuard {
  readonly #components: MemoryGuardComponents;
  readonly #limitBytes: number | undefined;
  #sampledMs = Number.NEGATIVE_INFINITY;
  #collectedMs = Number.NEGATIVE_INFINITY;
  #isTight = false;

  constructor(components: MemoryGuardComponents, limitBytes: number | undefined) {
    this.#components = components;
    this.#limitBytes = limitBytes;
  }

  /** True when so little is left that no more work should be started. */
  get isTight(): boolean {
    if (this.#limitBytes === undefined) return false;
    const { now, collect, anonBytes } = this.#components;
    const nowMs = now();
    if (nowMs - this.#sampledMs < SAMPLE_INTERVAL_MS) return this.#isTight;
    const most = this.#limitBytes * TIGHT_SHARE;
    this.#isTight = anonBytes() > most;
    if (this.#isTight && nowMs - this.#collectedMs >= COLLECT_INTERVAL_MS) {
      collect();
      this.#isTight = anonBytes() > most;
      this.#collectedMs = now();
    }
    this.#sampledMs = now();
    return this.#isTight;
  }
}
