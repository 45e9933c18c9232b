/** The kubelet's metrics of one probe of a container (/metrics/probes), over all of its runs. */

/** Prometheus' default buckets, seconds. */
const BUCKETS: readonly number[] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

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

  /** @param labels of the metric, without braces, in alphabetical order as far as they stand before `result`. */
  *totals(labels: string): Generator<string> {
    if (this.#failed > 0) yield `${TOTAL}{${labels},result="failed"} ${this.#failed}\n`;
    if (this.#successful > 0) yield `${TOTAL}{${labels},result="successful"} ${this.#successful}\n`;
  }

  *histogram(labels: string): Generator<string> {
    if (this.#durations === undefined) return;
    let count = 0;
    for (const [index, each] of this.#durations.entries()) {
      count += each;
      yield `${DURATION}_bucket{${labels},le="${BUCKETS[index] ?? "+Inf"}"} ${count}\n`;
    }
    yield `${DURATION}_sum{${labels}} ${this.#seconds}\n${DURATION}_count{${labels}} ${count}\n`;
  }
}

const TOTAL = "prober_probe_total";
const DURATION = "prober_probe_duration_seconds";
export const TOTAL_HEAD = `# HELP ${TOTAL} [BETA] How often a probe of a container ended, by its result.\n# TYPE ${TOTAL} counter\n`;
export const DURATION_HEAD = `# HELP ${DURATION} [ALPHA] How long successful probes took, in seconds.\n# TYPE ${DURATION} histogram\n`;
