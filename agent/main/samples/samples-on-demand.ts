/** Samples of this board's usage for a hub: loaded with the first hub that asks for them. */
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import type { OutgoingSamples, SampleSource } from "../../core/hub/outgoing-telemetry.ts";
import type { Samples } from "../../samples/samples.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { SamplesParts } from "./make-samples.ts";

const AREA = "samples";
const EVERY = "everySeconds";

export class SamplesOnDemand implements Component, SampleSource {
  readonly name = "samples";
  readonly #base: AgentBase;
  readonly #parts: SamplesParts;
  /** Kept, so that a board that starts without its hub samples as it did before. */
  readonly #every: WatchSource<number | undefined>;
  #loading: Promise<Samples> | undefined;

  constructor(base: AgentBase, parts: SamplesParts) {
    this.#base = base;
    this.#parts = parts;
    const kept = base.store.kept.all(AREA).get(EVERY);
    this.#every = new WatchSource(typeof kept === "number" && kept > 0 ? kept : undefined);
  }

  want(everySeconds: number | undefined): void {
    if (everySeconds === this.#every.current) return;
    this.#every.set(everySeconds);
    const { kept } = this.#base.store;
    if (everySeconds === undefined) kept.delete(AREA, EVERY);
    else kept.put(AREA, EVERY, everySeconds);
  }

  outgoing(): Promise<OutgoingSamples> {
    return this.#load();
  }

  async run(signal: AbortSignal): Promise<void> {
    for await (const every of this.#every.changes(signal)) {
      if (every === undefined) continue;
      const samples = await this.#load();
      using life = joinSignals(signal);
      // Another interval begins at once.
      const changed = (async (): Promise<void> => {
        for await (const next of this.#every.changes(life.signal)) if (next !== every) break;
        life.abort();
      })();
      await samples.run(life.signal).catch((error: unknown) => {
        if (!life.signal.aborted) throw error;
      });
      life.abort();
      await changed;
    }
  }

  #load(): Promise<Samples> {
    const make = async (): Promise<Samples> => {
      const { makeSamples } = await import("./make-samples.ts");
      return makeSamples(this.#base, this.#parts, this.#every);
    };
    this.#loading ??= make().catch((error: unknown) => {
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    (await this.#loading)?.[Symbol.dispose]();
  }
}
