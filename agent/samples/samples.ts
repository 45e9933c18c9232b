import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";
import {
  MAX_SAMPLE_INTERVAL_SECONDS,
  MIN_SAMPLE_INTERVAL_SECONDS,
  type UsageSample,
} from "@picolet/protocol/telemetry/usage-sample.ts";
import type { OutgoingSample, OutgoingSamples } from "../core/hub/outgoing-telemetry.ts";
import { SampleLog } from "./sample-log.ts";

/** Where samples wait over a restart of the agent; a file of at most `MAX_LOG_BYTES`, four thirds of it as text. */
export interface SampleFile {
  /** Undefined: there is none. */
  read(): string | undefined;
  /** The whole file, replaced at once. */
  write(text: string): void;
  remove(): void;
}

export interface SamplesComponents {
  readonly take: (signal: AbortSignal) => Promise<UsageSample>;
  readonly file: SampleFile;
  readonly clock: Clock;
  readonly log: Log;
}

export interface SamplesInit {
  /** Names this life of the agent: 16 hexadecimal digits, never the same twice. */
  readonly queue: string;
  /** Seconds between two samples. */
  readonly every: Watch<number | undefined>;
  /** Only tests name another limit. */
  readonly maxBytes?: number;
}

/**
 * How often the log is written while no hub takes it: 64 KiB twelve times a day are a sixth of the agent's own budget
 * of flash bytes. A power cut takes the samples since the last write.
 */
const WRITE_INTERVAL = seconds(2 * 3600);
/** The form of the file. A file of another version, or a damaged one, is ignored. */
const FILE_VERSION = 1;

/** Takes samples as often as the hub wants them, and keeps what it has not acknowledged. */
export class Samples implements OutgoingSamples {
  readonly #components: SamplesComponents;
  readonly #init: SamplesInit;
  readonly #entries: SampleLog;
  readonly #latest = new WatchSource(0);
  #sequence = 0;
  #isForwarding = false;
  #writtenAt: MonotonicMs;
  #isOnDisk = false;
  /** Wall clock minus monotonic clock while the time was not known. */
  #estimatedOffsetMs: number | undefined;
  /** The last sample of an earlier life: its time is not corrected. */
  #restoredTo = 0;
  #problem = "";

  constructor(components: SamplesComponents, init: SamplesInit) {
    this.#components = components;
    this.#init = init;
    this.#entries = new SampleLog(init.maxBytes);
    this.#writtenAt = components.clock.monotonic();
    this.#restore();
  }

  get latest(): Watch<number> {
    return this.#latest;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#components;
    const { every } = this.#init;
    while (!signal.aborted && every.current !== undefined) {
      await this.#takeOne(signal);
      this.#writeIfDue();
      const wanted = Math.min(Math.max(every.current, MIN_SAMPLE_INTERVAL_SECONDS), MAX_SAMPLE_INTERVAL_SECONDS);
      await clock.sleep(seconds(wanted), signal);
    }
    if (every.current !== undefined) return;
    this.#entries.clear();
    this.#removeFile();
  }

  async #takeOne(signal: AbortSignal): Promise<void> {
    const { take, log } = this.#components;
    try {
      const sample = await take(signal);
      if (sample.isEstimated) this.#estimatedOffsetMs = this.#offsetMs;
      this.#append(sample);
      this.#problem = "";
    } catch (error) {
      if (isCancelled(error)) throw error;
      const problem = describeError(error);
      if (this.#problem === "") log.warn("cannot take a sample of usage for the hub", { error: problem });
      this.#problem = problem;
    }
  }

  get #offsetMs(): number {
    const { clock } = this.#components;
    return clock.wall().getTime() - clock.monotonic();
  }

  #append(sample: UsageSample): void {
    this.#sequence += 1;
    this.#entries.append(this.#sequence, sample);
    this.#latest.set(this.#sequence);
  }

  pending(after: number, limit: number): readonly OutgoingSample[] {
    const { queue } = this.#init;
    return this.#entries
      .pending(after, limit)
      .map(({ sequence, sample }) => ({ id: sequence, queue, sequence, sample: this.#corrected(sequence, sample) }));
  }

  /** A board that learns the time late corrects the samples of before. */
  #corrected(sequence: number, sample: UsageSample): UsageSample {
    const estimated = this.#estimatedOffsetMs;
    if (!sample.isEstimated || estimated === undefined || sequence <= this.#restoredTo) return sample;
    const correctionMs = Math.round(this.#offsetMs - estimated);
    // The clock steps when the time becomes known; until then there is nothing better.
    return correctionMs === 0 ? sample : { ...sample, atMs: sample.atMs + correctionMs, isEstimated: false };
  }

  ack(id: number): void {
    this.#entries.ack(id);
    if (this.#entries.size === 0) this.#removeFile();
  }

  untaken(reason: string): void {
    this.#components.log.info("the hub takes no samples of usage", { reason });
  }

  forwarding(isForwarding: boolean): void {
    // An outage begins: what came before it is with the hub.
    if (this.#isForwarding && !isForwarding) this.#writtenAt = this.#components.clock.monotonic();
    this.#isForwarding = isForwarding;
  }

  #writeIfDue(): void {
    const now = this.#components.clock.monotonic();
    if (this.#isForwarding || now - this.#writtenAt < WRITE_INTERVAL) return;
    this.#writtenAt = now;
    this.#write();
  }

  #write(): void {
    const chunks = this.#entries.saved().map((bytes) => Buffer.from(bytes).toString("base64"));
    try {
      this.#components.file.write(JSON.stringify({ version: FILE_VERSION, chunks }));
      this.#isOnDisk = true;
    } catch (error) {
      this.#components.log.warn("cannot write the samples of usage", { error: describeError(error) });
    }
  }

  #restore(): void {
    const { file, log } = this.#components;
    try {
      const text = file.read();
      if (text === undefined) return;
      this.#isOnDisk = true;
      for (const chunk of chunksIn(text)) {
        for (const sample of SampleLog.restored(Buffer.from(chunk, "base64"))) this.#append(sample);
      }
    } catch (error) {
      log.warn("the kept samples of usage cannot be read, and are left out", { error: describeError(error) });
    }
    this.#restoredTo = this.#sequence;
  }

  #removeFile(): void {
    if (!this.#isOnDisk) return;
    this.#isOnDisk = false;
    try {
      this.#components.file.remove();
    } catch (error) {
      this.#components.log.warn("cannot remove the samples of usage", { error: describeError(error) });
    }
  }

  /** An agent that ends without a hub leaves its samples to the next one. */
  [Symbol.dispose](): void {
    if (!this.#isForwarding && this.#entries.size > 0 && this.#init.every.current !== undefined) this.#write();
  }
}

function chunksIn(text: string): readonly string[] {
  const value: unknown = JSON.parse(text);
  const { version, chunks } = (value ?? {}) as { readonly version?: unknown; readonly chunks?: unknown };
  if (version !== FILE_VERSION || !Array.isArray(chunks)) return [];
  return chunks.filter((each): each is string => typeof each === "string");
}
