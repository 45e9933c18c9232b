/** The kubelet's metrics of one probe of a container (/metrics/probes), over all of its runs. */
import { DEFAULT_BOUNDS, Distribution } from "@picolet/protocol/metrics/distribution.ts";

/** Counts the results of one probe of a container, over all of its runs. */
export class ProbeCounts {
  #successful = 0;
  #failed = 0;
  /** Durations of successes in seconds; created with the first success. */
  #durations: Distribution | undefined;

  success(durationMs: number): void {
    this.#successful += 1;
    this.#durations ??= new Distribution(DEFAULT_BOUNDS);
    this.#durations.observe(durationMs / 1000);
  }

  failure(): void {
    this.#failed += 1;
  }

  get figures() {
    return { failed: this.#failed, successful: this.#successful, durations: this.#durations };
  }
}
