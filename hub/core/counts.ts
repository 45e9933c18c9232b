/** Counters of the hub for its own metrics: plain numbers, counted where it happens, read when a client scrapes. */
import type { HistogramValue, Sample } from "@picolet/protocol/metrics/metrics.ts";

/** Bounds the series of one counter, whose labels may come from a peer; further ones are counted as `other`. */
const MAX_COUNTED_SERIES = 200;
const OTHER = "other";

/** Seconds: from a call within this process to one that waited for a board on a bad link. */
export const LATENCY_BOUNDS: readonly number[] = [0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 10, 30, 120];

/** Durations in seconds by the first bound that they fit in. */
export class Latencies implements HistogramValue {
  readonly bounds = LATENCY_BOUNDS;
  readonly counts = new Float64Array(LATENCY_BOUNDS.length + 1);
  sum = 0;

  /** @param milliseconds below 0 count as 0 */
  observe(milliseconds: number): void {
    const took = Math.max(0, milliseconds) / 1000;
    const fits = this.bounds.findIndex((bound) => took <= bound);
    const index = fits < 0 ? this.bounds.length : fits;
    this.counts[index] = (this.counts[index] ?? 0) + 1;
    this.sum += took;
  }
}

/** One value for each combination of the values of some labels. */
class Labelled<T> {
  readonly #make: () => T;
  readonly #series = new Map<string, { readonly labels: readonly string[]; value: T }>();

  constructor(make: () => T) {
    this.#make = make;
  }

  protected seriesOf(labels: readonly string[]): { value: T } {
    const key = labels.join("\0");
    const known = this.#series.get(key);
    if (known !== undefined) return known;
    if (this.#series.size >= MAX_COUNTED_SERIES && labels.some((label) => label !== OTHER)) {
      return this.seriesOf(labels.map(() => OTHER));
    }
    const series = { labels: [...labels], value: this.#make() };
    this.#series.set(key, series);
    return series;
  }

  /** In the order in which they first came. */
  *samples(): Generator<Sample<T>> {
    for (const { labels, value } of this.#series.values()) yield { labels, value };
  }
}

export class LabelledCounts extends Labelled<number> {
  constructor() {
    super(() => 0);
  }

  /** @param labels values of the labels of the metric, in their order */
  add(labels: readonly string[], by = 1): void {
    this.seriesOf(labels).value += by;
  }
}

export class LabelledLatencies extends Labelled<Latencies> {
  constructor() {
    super(() => new Latencies());
  }

  observe(labels: readonly string[], milliseconds: number): void {
    this.seriesOf(labels).value.observe(milliseconds);
  }
}
