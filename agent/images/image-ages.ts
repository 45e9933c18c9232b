import { type Clock, type Millis, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import type { KeptRecords } from "../core/store/kept-records.ts";

/** The area in KeptRecords. */
const AREA = "images";
/** Bounds writes for an image in use, whose last use counts only once nothing uses it any more. */
const WRITE_INTERVAL = seconds(24 * 3600);
/**
 * Bounds the images whose ages survive the agent to a quarter of all records. A board has dozens of images; the ages of
 * further ones start again.
 */
const MAX_KEPT_IMAGES = 1024;

interface Moment {
  readonly wallMs: number;
  /** By this agent's clock; undefined: it was before this agent. */
  readonly at: MonotonicMs | undefined;
}

interface ImageRecord {
  readonly first: Moment;
  last: Moment | undefined;
  isUsed: boolean;
}

/**
 * Since when images are here and when they were last used. Across restarts by wall time, as nothing else goes on while
 * the machine is off; but what this agent has seen itself counts by the clock that never jumps, and nothing that was
 * here before is younger than this agent. An image in use is written down once a day, and when its use ends.
 */
export class ImageAges {
  readonly #kept: KeptRecords;
  readonly #clock: Clock;
  readonly #startedAt: MonotonicMs;
  #records: Map<string, ImageRecord> | undefined;
  /** Wall time of the last use on disk. */
  readonly #writtenAt = new Map<string, number>();

  constructor({ kept, clock }: { readonly kept: KeptRecords; readonly clock: Clock }) {
    this.#kept = kept;
    this.#clock = clock;
    this.#startedAt = clock.monotonic();
  }

  /** @param used now; @returns how old it is, and for how long nothing has used it */
  seen(key: string, used: boolean): { readonly age: Millis; readonly unused: Millis | undefined } {
    const now = this.#now();
    const records = this.#all();
    const known = records.get(key);
    const record = known ?? { first: now, last: undefined, isUsed: false };
    records.set(key, record);
    const before = record.last;
    if (used) record.last = now;
    const isStale = before === undefined || Math.abs(now.wallMs - this.#written(key)) >= WRITE_INTERVAL;
    const hasEnded = record.isUsed && !used;
    record.isUsed = used;
    if (known === undefined || hasEnded || (used && isStale)) this.#write(key, record);
    return {
      age: this.#since(record.first),
      unused: record.last === undefined ? undefined : this.#since(record.last),
    };
  }

  /** What is no longer here, of those whose key begins so. */
  keepOnly(prefix: string, keys: ReadonlySet<string>): void {
    for (const key of this.#all().keys()) if (key.startsWith(prefix) && !keys.has(key)) this.forget(key);
  }

  forget(key: string): void {
    if (!this.#all().delete(key)) return;
    this.#writtenAt.delete(key);
    this.#kept.delete(AREA, key);
  }

  #written(key: string): number {
    return this.#writtenAt.get(key) ?? Number.NEGATIVE_INFINITY;
  }

  #write(key: string, { first, last }: ImageRecord): void {
    if (!this.#writtenAt.has(key) && this.#writtenAt.size >= MAX_KEPT_IMAGES) return;
    this.#writtenAt.set(key, last?.wallMs ?? first.wallMs);
    const value = { firstAtMs: first.wallMs, ...(last === undefined ? {} : { lastAtMs: last.wallMs }) };
    this.#kept.put(AREA, key, value, "later");
  }

  #now(): Moment {
    return { wallMs: this.#clock.wall().getTime(), at: this.#clock.monotonic() };
  }

  #since({ wallMs, at }: Moment): Millis {
    const monotonic = this.#clock.monotonic();
    if (at !== undefined) return millis(monotonic - at);
    return millis(Math.max(monotonic - this.#startedAt, this.#clock.wall().getTime() - wallMs));
  }

  #all(): Map<string, ImageRecord> {
    this.#records ??= this.#read();
    return this.#records;
  }

  #read(): Map<string, ImageRecord> {
    const records = new Map<string, ImageRecord>();
    for (const [key, value] of this.#kept.all(AREA)) {
      const { firstAtMs, lastAtMs } = (value ?? {}) as { readonly firstAtMs?: unknown; readonly lastAtMs?: unknown };
      if (typeof firstAtMs !== "number") continue;
      const last = typeof lastAtMs === "number" ? { wallMs: lastAtMs, at: undefined } : undefined;
      records.set(key, { first: { wallMs: firstAtMs, at: undefined }, last, isUsed: false });
      this.#writtenAt.set(key, last?.wallMs ?? firstAtMs);
    }
    return records;
  }
}
