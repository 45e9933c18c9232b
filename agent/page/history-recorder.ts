import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import type { HistoryFigures } from "@picolet/protocol/page/board-data.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import type { HistoryBlock, HistorySample } from "./history-ring.ts";

/** Between two samples; each reads eight small files of the kernel. */
export const SAMPLE_INTERVAL = seconds(60);
/** A block for each 20 minutes: 288 KiB a day. A power cut loses as much. */
const SAMPLES_PER_BLOCK = 20;

export interface HistoryRecorderComponents {
  readonly figures: () => HistoryFigures;
  /** The seconds since the machine started, and which start it was. */
  readonly boot: { readonly id: string; readonly uptimeMs: () => number };
  /** False while `clock` only has a lower bound of the time. */
  readonly isTimeKnown: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

/** Samples the node once a minute, and keeps a day of it in the ring at `path`. */
export class HistoryRecorder implements Component {
  readonly name = "history";
  readonly #components: HistoryRecorderComponents;
  readonly #path: string;
  #samples: HistorySample[] = [];
  #sequence: number | undefined;
  #hasFailed = false;

  constructor(components: HistoryRecorderComponents, { path }: { readonly path: string }) {
    this.#components = components;
    this.#path = path;
  }

  /** What is not on disk yet; undefined: nothing. */
  get pending(): Omit<HistoryBlock, "sequence"> | undefined {
    if (this.#samples.length === 0) return undefined;
    const { clock, boot, isTimeKnown } = this.#components;
    const bootedAtMs = isTimeKnown() ? clock.wall().getTime() - boot.uptimeMs() : Number.NaN;
    return { boot: boot.id, bootedAtMs, samples: this.#samples };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, boot, figures } = this.#components;
    try {
      for (;;) {
        await clock.sleep(SAMPLE_INTERVAL, signal);
        this.#samples.push({ uptimeSeconds: Math.floor(boot.uptimeMs() / 1000), figures: figures() });
        if (this.#samples.length >= SAMPLES_PER_BLOCK) await this.#flush();
      }
    } catch (error) {
      // An agent that ends in order loses nothing.
      if (isCancelled(error)) await this.#flush();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#samples = [];
  }

  /** A disk that takes nothing costs the samples, and nothing else. */
  async #flush(): Promise<void> {
    const block = this.pending;
    if (block === undefined) return;
    this.#samples = [];
    try {
      const { appendBlock } = await import("./history-ring.ts");
      this.#sequence = await appendBlock(this.#path, block, this.#sequence);
      this.#hasFailed = false;
    } catch (error) {
      if (!this.#hasFailed) this.#components.log.warn("cannot keep the history", { error: describeError(error) });
      this.#hasFailed = true;
    }
  }
}
