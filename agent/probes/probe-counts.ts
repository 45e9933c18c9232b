/** The kubelet's metrics of one probe of a container (/metrics/probes), over all of its runs. */
import type { HistogramValue } from "@picolet/protocol/metrics/metrics.ts";

/** Prometheus' default buckets, seconds. */
const BUCKETS: readonly number[] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Counts the results of one probe of a container, over all of its runs. */
export class ProbeCounts {
  #successful = 0;
  #failed = 0;
  #seconds = 0;
  /** Durations of successes by the first bucket that fits; created with the first success. */
  #durations: Uint32Array | undefined;

  success(durationMs: number): void {
    const took = durationMs / 1000;
    this.#successful += 1;
    this.#seconds += took;
    this.#durations ??= new Uint32Array(BUCKETS.length + 1);
    const fits = BUCKETS.findIndex((bucket) => took <= bucket);
    const index = fits < 0 ? BUCKETS.length : fits;
    this.#durations[index] = (this.#durations[index] ?? 0) + 1;
  }

  failure(): void {
    this.#failed += 1;
  }

  get figures() {
    const counts = this.#durations;
    const durations: HistogramValue | undefined =
      counts === undefined ? undefined : { bounds: BUCKETS, counts, sum: this.#seconds };
    return { failed: this.#failed, successful: this.#successful, durations };
  }
}
