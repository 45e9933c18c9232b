import { Backoff, type BackoffPolicy, EQUAL_JITTER } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { type RecordRow, recordRowsOf } from "./record-rows.ts";
import type { StoredBatch, TelemetryStore } from "./telemetry-store.ts";

/** One request. The other end has taken it, will never take it (`refused`), or should be asked again. */
export interface TelemetrySink {
  /** For the log and the store: "influx", "otlp". */
  readonly name: string;
  /** @throws `invalid` when it is refused for what it is; anything else is tried again */
  send(rows: readonly RecordRow[], signal: AbortSignal): Promise<void>;
}

export interface ExporterComponents {
  readonly store: TelemetryStore;
  readonly sink: TelemetrySink;
  /** For the log. Default: telemetry. */
  readonly what?: string;
  /** Default: the records of a batch. */
  readonly rowsOf?: (stored: StoredBatch) => readonly RecordRow[];
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** One request holds at most so many batches, and so many bytes of them: some 20,000 points, 3 MB of lines. */
const MAX_BATCHES = 256;
const MAX_BYTES = 512 * KIBIBYTE;
/** Batches that the fleet sends within this time go in one request. */
const GATHER = millis(500);
const RETRY: BackoffPolicy = { first: seconds(1), max: seconds(60), jitter: EQUAL_JITTER };

/**
 * Exports the store's content in order, one request at a time. A receiver that is slow or gone costs the memory of one
 * request: what it does not take stays in the store.
 */
export class TelemetryExporter implements Component {
  readonly name: string;
  readonly #components: ExporterComponents;
  readonly #what: string;
  readonly #backoff: Backoff;
  /** Batches at a time: halved for a request that is refused, until it is known which one of them is. */
  #limit = MAX_BATCHES;

  constructor(components: ExporterComponents) {
    this.#components = components;
    this.#backoff = new Backoff(components.random, RETRY);
    this.#what = components.what ?? "telemetry";
    this.name = `${this.#what} to ${components.sink.name}`;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { store, sink, clock } = this.#components;
    while (!signal.aborted) {
      await store.more(store.exportedBy(sink.name), signal);
      await clock.sleep(GATHER, signal);
      for (let batches = this.#next(); batches.length > 0; batches = this.#next()) await this.#send(batches, signal);
    }
  }

  #next(): readonly StoredBatch[] {
    const { store, sink } = this.#components;
    return store.after(store.exportedBy(sink.name), this.#limit, MAX_BYTES);
  }

  async #send(batches: readonly StoredBatch[], signal: AbortSignal): Promise<void> {
    const { store, sink, log } = this.#components;
    const last = batches.at(-1)?.id ?? 0;
    try {
      await sink.send(batches.flatMap(this.#components.rowsOf ?? recordRowsOf), signal);
      const { failures } = this.#backoff;
      if (failures > 0) log.info(`${this.#what} is taken again`, { by: sink.name, failures });
      this.#backoff.reset();
      this.#limit = Math.min(MAX_BATCHES, this.#limit * 2);
      store.exported(sink.name, last);
    } catch (error) {
      if (isCancelled(error) || signal.aborted) throw error;
      const isRefused = error instanceof PicoletError && error.code === "invalid";
      if (isRefused && batches.length > 1) {
        this.#limit = Math.ceil(batches.length / 2);
        return;
      }
      if (isRefused) {
        log.error(`a batch of ${this.#what} is refused, and left out`, { by: sink.name, error: describeError(error) });
        store.exported(sink.name, last);
        return;
      }
      await this.#pause(error, signal);
    }
  }

  async #pause(error: unknown, signal: AbortSignal): Promise<void> {
    const { sink, clock, log } = this.#components;
    if (this.#backoff.failures === 0) {
      log.warn(`${this.#what} is not taken, will try again`, { by: sink.name, error: describeError(error) });
    }
    await clock.sleep(this.#backoff.next(), signal);
  }
}
