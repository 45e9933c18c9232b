import type { UsageReader } from "@picolet/hub-core/telemetry-ports.ts";
import { metricsText } from "@picolet/protocol/metrics/metrics.ts";
import { METRICS_TYPES, metricsFormatOf } from "@picolet/protocol/metrics/metrics-format.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { BoardSamples } from "./board-samples.ts";
import { NODE_RESOURCE_METRICS } from "./fleet-metrics.ts";

/** Nodes whose last question is remembered; the oldest is forgotten. */
const MAX_NODES = 20_000;

/**
 * Answers `/metrics/resource` of a node from its newest sample, for clients that ask again and again: a scraper such as
 * metrics-server costs the tunnel nothing. A question that is the first for longer than the samples' interval is the
 * board's to answer.
 */
export class ResourceAnswers implements UsageReader {
  readonly #samples: Pick<BoardSamples, "usageOf" | "everySeconds">;
  readonly #clock: Clock;
  /** Monotonic milliseconds, in their order. */
  readonly #askedAt = new Map<string, number>();

  constructor({
    samples,
    clock,
  }: { readonly samples: Pick<BoardSamples, "usageOf" | "everySeconds">; readonly clock: Clock }) {
    this.#samples = samples;
    this.#clock = clock;
  }

  read(node: string, accept: string | undefined): { readonly contentType: string; readonly text: string } | undefined {
    const now = this.#clock.monotonic();
    const before = this.#askedAt.get(node) ?? Number.NEGATIVE_INFINITY;
    this.#askedAt.delete(node);
    this.#askedAt.set(node, now);
    const [oldest] = this.#askedAt.keys();
    if (this.#askedAt.size > MAX_NODES && oldest !== undefined) this.#askedAt.delete(oldest);
    if (now - before > this.#samples.everySeconds * 1000) return undefined;
    const usage = this.#samples.usageOf(node);
    if (usage?.usage === undefined) return undefined;
    const format = metricsFormatOf(accept);
    const text = [...metricsText(NODE_RESOURCE_METRICS, () => [[node, usage]], format)].join("");
    return { contentType: METRICS_TYPES[format], text };
  }
}
