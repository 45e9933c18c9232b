/** The samples that the hub has not acknowledged yet, in their compact form, thinned with age. */
import { SampleDecoder, SampleEncoder, type SequencedSample } from "@picolet/protocol/telemetry/sample-codec.ts";
import { LengthPrefixedReader } from "@picolet/protocol/telemetry/stream-messages.ts";
import type { UsageSample } from "@picolet/protocol/telemetry/usage-sample.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

/**
 * Bounds the log in memory and on the disk, but for the newest sample. Ten pods take 130 bytes a sample, so seven hours
 * fit in full. Of a week away 420 samples are left: the last three hours in full, the oldest four hours apart.
 */
export const MAX_LOG_BYTES = 64 * KIBIBYTE;
/** An hour of them. A chunk is what is thinned, and its first sample is a whole one. */
const CHUNK_SAMPLES = 60;
/** The least number of chunks in a full log: of fewer too much would be lost when two of them become one. */
const FULL_CHUNKS = 6;

/** Samples of one encoder. */
interface Chunk {
  readonly sequences: number[];
  readonly frames: Uint8Array[];
  bytes: number;
}

const emptyChunk = (): Chunk => ({ sequences: [], frames: [], bytes: 0 });

export class SampleLog {
  readonly #maxBytes: number;
  /** Oldest first; none is empty. */
  #chunks: Chunk[] = [];
  /** The encoder of the last chunk; undefined: the next sample begins a new one. */
  #encoder: SampleEncoder | undefined;
  #thinned = 0;

  /** @param maxBytes only tests name another limit */
  constructor(maxBytes = MAX_LOG_BYTES) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#chunks.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  get size(): number {
    return this.#chunks.reduce((sum, { frames }) => sum + frames.length, 0);
  }

  /** How many samples were given up so that others have room. */
  get thinned(): number {
    return this.#thinned;
  }

  /** @param sequence above those before */
  append(sequence: number, sample: UsageSample): void {
    let chunk = this.#chunks.at(-1);
    const isFull = (chunk?.frames.length ?? 0) >= CHUNK_SAMPLES || (chunk?.bytes ?? 0) >= this.#maxBytes / FULL_CHUNKS;
    if (chunk === undefined || this.#encoder === undefined || isFull) {
      chunk = emptyChunk();
      this.#chunks.push(chunk);
      this.#encoder = new SampleEncoder();
    }
    add(chunk, sequence, this.#encoder.encode(sequence, sample));
    while (this.bytes > this.#maxBytes && this.#thin());
  }

  /** @returns the oldest after `after` */
  pending(after: number, limit: number): readonly SequencedSample[] {
    const found: SequencedSample[] = [];
    for (const chunk of this.#chunks) {
      if (found.length >= limit) break;
      if ((chunk.sequences.at(-1) ?? 0) <= after) continue;
      found.push(...decoded(chunk).filter(({ sequence }) => sequence > after));
    }
    return found.slice(0, limit);
  }

  /** Forgets chunks of which the hub has every sample, and ends the one that it has all of so far. */
  ack(sequence: number): void {
    this.#chunks = this.#chunks.filter(({ sequences }) => (sequences.at(-1) ?? 0) > sequence);
    if (this.#chunks.length === 0) this.#encoder = undefined;
  }

  clear(): void {
    this.#chunks = [];
    this.#encoder = undefined;
  }

  /** @returns the chunks, each the bytes of its samples, for `restored` */
  saved(): readonly Uint8Array[] {
    return this.#chunks.map(({ frames }) => Buffer.concat(frames));
  }

  /** @throws `invalid` for bytes that are no chunk. @returns its samples, for a log that is to take them */
  static restored(chunk: Uint8Array): readonly UsageSample[] {
    const decoder = new SampleDecoder();
    return new LengthPrefixedReader().push(chunk).map((message) => decoder.decode(message).sample);
  }

  /** @returns whether there is less now: two neighbours, or the only chunk, became one of every second sample */
  #thin(): boolean {
    const pair = this.#leastMissed();
    const samples = this.#chunks.slice(pair, pair + 2).flatMap(decoded);
    if (samples.length < 2) return false;
    // The newest of them stays, so that what follows is no further away than its own step.
    const kept = samples.filter((_, index) => (samples.length - 1 - index) % 2 === 0);
    const merged = emptyChunk();
    const encoder = new SampleEncoder();
    for (const { sequence, sample } of kept) add(merged, sequence, encoder.encode(sequence, sample));
    if (pair + 2 >= this.#chunks.length) this.#encoder = undefined;
    this.#chunks.splice(pair, 2, merged);
    this.#thinned += samples.length - kept.length;
    return true;
  }

  /** @returns the pair that has the smallest step for its age when it is one; the open chunk only if there is no other */
  #leastMissed(): number {
    const newest = this.#chunks.at(-1)?.sequences.at(-1) ?? 0;
    let least = { pair: 0, step: Infinity };
    for (let pair = 0; pair + 2 < this.#chunks.length; pair += 1) {
      const sequences = [...(this.#chunks[pair]?.sequences ?? []), ...(this.#chunks[pair + 1]?.sequences ?? [])];
      const [first = 0, last = 0] = [sequences[0], sequences.at(-1)];
      const step = (last - first) / sequences.length / (newest - last);
      if (step < least.step) least = { pair, step };
    }
    return least.pair;
  }
}

function add(chunk: Chunk, sequence: number, frame: Uint8Array): void {
  chunk.sequences.push(sequence);
  chunk.frames.push(frame);
  chunk.bytes += frame.length;
}

function decoded({ frames }: Chunk): SequencedSample[] {
  const decoder = new SampleDecoder();
  const reader = new LengthPrefixedReader();
  return frames.flatMap((frame) => reader.push(frame)).map((message) => decoder.decode(message));
}
