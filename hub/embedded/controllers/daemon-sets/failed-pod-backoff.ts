import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import { targetNode } from "./daemon-set.ts";

/** As in Kubernetes: from a second, doubling, to a quarter of an hour. */
const DELAY: BackoffPolicy = { first: seconds(1), max: seconds(900) };
/** Set and node pairs that are remembered; the one that has not failed for longest is forgotten first. */
const MAX_ENTRIES = 10_000;

interface Entry {
  readonly podUid: string;
  /** Failures before this one. */
  readonly failures: number;
  readonly dueMs: number;
}

/** Delays the replacement of a pod that fails on a node again and again. */
export class FailedPodBackoff {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Milliseconds until this failed pod may be replaced. */
  waitFor(setUid: string, pod: Pod): number {
    const key = `${setUid}/${targetNode(pod) ?? ""}`;
    const now = this.#clock.monotonic();
    const podUid = pod.metadata.uid ?? "";
    const before = this.#entries.get(key);
    if (before?.podUid === podUid) return Math.max(0, before.dueMs - now);
    // One that has run for long has nothing to do with what was before.
    const isFresh = before === undefined || now - before.dueMs > 2 * DELAY.max;
    const failures = isFresh ? 0 : before.failures + 1;
    const waitMs = backoffDelay(DELAY, failures);
    this.#entries.delete(key);
    this.#entries.set(key, { podUid, failures, dueMs: now + waitMs });
    const oldest = this.#entries.size > MAX_ENTRIES ? this.#entries.keys().next().value : undefined;
    if (oldest !== undefined) this.#entries.delete(oldest);
    return waitMs;
  }
}
