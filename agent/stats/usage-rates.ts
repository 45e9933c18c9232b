import type { MonotonicMs } from "@picolet/protocol/ports.ts";

interface Look {
  readonly at: MonotonicMs;
  readonly cpuNanoseconds: number;
}

/** Between two looks that make a rate. A shorter one is blurred by the kernel's ticks. */
export const MIN_INTERVAL_MS = 500;
/** A look is compared with until it is so old; then the newest takes its place. */
const REFRESH_MS = 10_000;
/** A rate over more than this says nothing of now. */
const MAX_INTERVAL_MS = 120_000;
const MS_PER_SECOND = 1000;

/** From what was used of all time, twice, what is used now. */
export class UsageRates {
  /** By what was looked at; as many as the last look had. */
  #looks = new Map<string, Look>();

  /** Whether each of `keys` can be given a rate by a look at that time. */
  known(keys: Iterable<string>, now: MonotonicMs): boolean {
    return [...keys].every((key) => {
      const age = now - (this.#looks.get(key)?.at ?? Number.NEGATIVE_INFINITY);
      return age >= MIN_INTERVAL_MS && age <= MAX_INTERVAL_MS;
    });
  }

  /**
   * @param at when it was looked, by a clock that nobody sets
   * @returns nanocores; undefined for what was never seen before. What is not in `used` is forgotten.
   */
  take(used: ReadonlyMap<string, number>, at: MonotonicMs): ReadonlyMap<string, number | undefined> {
    const next = new Map<string, Look>();
    const rates = new Map<string, number | undefined>();
    for (const [key, cpuNanoseconds] of used) {
      const before = this.#looks.get(key);
      const age = before === undefined ? 0 : at - before.at;
      const now = { at, cpuNanoseconds };
      const usable = before !== undefined && age >= MIN_INTERVAL_MS && age <= MAX_INTERVAL_MS;
      // A cgroup that was made anew counts from 0.
      const from = before === undefined || before.cpuNanoseconds > cpuNanoseconds ? 0 : before.cpuNanoseconds;
      rates.set(key, usable ? Math.round(((cpuNanoseconds - from) / age) * MS_PER_SECOND) : undefined);
      next.set(key, before === undefined || from !== before.cpuNanoseconds || age > REFRESH_MS ? now : before);
    }
    this.#looks = next;
    return rates;
  }
}
