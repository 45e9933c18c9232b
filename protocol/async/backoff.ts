import { type Millis, millis, type Random } from "../ports.ts";

/** Shares of the nominal delay between which the real one is drawn. */
export type Jitter = readonly [least: number, most: number];

const NO_JITTER: Jitter = [1, 1];
/** The jitter for clients that may fail in large numbers at the same moment. */
export const FULL_JITTER: Jitter = [0, 1];
/** The jitter for clients that should not retry at once. */
export const EQUAL_JITTER: Jitter = [0.5, 1];

export interface BackoffPolicy {
  /** Nominal delay after the first failure; each further failure doubles it. */
  readonly first: Millis;
  /** Longest nominal delay. */
  readonly max: Millis;
  /** None: the nominal delay, for the only client of a local peer. */
  readonly jitter?: Jitter;
  /** Shortest delay after jitter. */
  readonly least?: Millis;
}

/** @param lot drawn from [0, 1) */
export const jittered = (delay: Millis, [least, most]: Jitter, lot: number): Millis =>
  millis(delay * (least + (most - least) * lot));

/** @param failures in a row; 0 gives 0. @param lot drawn from [0, 1) */
export function backoffDelay(policy: BackoffPolicy, failures: number, lot = 1): Millis {
  const { first, max, jitter = NO_JITTER, least = 0 } = policy;
  const nominal = millis(Math.min(max, first * 2 ** (failures - 1)));
  return millis(failures > 0 ? Math.max(least, jittered(nominal, jitter, lot)) : 0);
}

/** Counts the failures in a row of one task. Success is reported with `reset`, by the task's own judgement of it. */
export class Backoff {
  readonly #policy: BackoffPolicy;
  readonly #random: Random;
  #failures = 0;

  constructor(random: Random, policy: BackoffPolicy) {
    this.#random = random;
    this.#policy = policy;
  }

  get failures(): number {
    return this.#failures;
  }

  /** Counts one more failure. @returns the delay before the next attempt */
  next(): Millis {
    this.#failures += 1;
    return backoffDelay(this.#policy, this.#failures, this.#random.next());
  }

  reset(): void {
    this.#failures = 0;
  }
}
