/** The distribution of observed values: the figures of a histogram. Apart from `metrics.ts`, which a scrape loads. */
export class Distribution {
  /** Upper bounds in ascending order, without +Inf. */
  readonly bounds: readonly number[];
  /** Observations by the first bound that they fit in, and in the last place those above all bounds. */
  readonly counts: Uint32Array;
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Uint32Array(bounds.length + 1);
  }

  observe(value: number): void {
    this.sum += value;
    const fits = this.bounds.findIndex((bound) => value <= bound);
    const index = fits < 0 ? this.bounds.length : fits;
    this.counts[index] = (this.counts[index] ?? 0) + 1;
  }
}

/** Prometheus' default bounds, seconds. */
export const DEFAULT_BOUNDS: readonly number[] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
