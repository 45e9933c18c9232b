import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type BackoffPolicy, backoffDelay, FULL_JITTER } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, type Random, seconds } from "@picolet/protocol/ports.ts";

/** Keys by the time at which they are due: a binary heap. An entry that no longer counts is left in until its time. */

interface Entry {
  readonly dueMs: number;
  readonly key: string;
}

export class DueQueue {
  readonly #heap: Entry[] = [];

  /** Time at which the next key is due; undefined when there is none. */
  get nextDueMs(): number | undefined {
    return this.#heap[0]?.dueMs;
  }

  push(key: string, dueMs: number): void {
    const heap = this.#heap;
    const entry = { dueMs, key };
    let at = heap.length;
    heap.push(entry);
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above];
      if (parent === undefined || parent.dueMs <= dueMs) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = entry;
  }

  /** Takes out what is due by now; undefined when nothing is. */
  pop(nowMs: number): Entry | undefined {
    const heap = this.#heap;
    const [first] = heap;
    if (first === undefined || first.dueMs > nowMs) return undefined;
    const last = heap.pop();
    if (last !== undefined && last !== first) this.#sink(last);
    return first;
  }

  /** Puts `entry` in the place of the first. */
  #sink(entry: Entry): void {
    const heap = this.#heap;
    let at = 0;
    for (;;) {
      const [left, right] = [heap[2 * at + 1], heap[2 * at + 2]];
      const child = right !== undefined && left !== undefined && right.dueMs < left.dueMs ? 2 * at + 2 : 2 * at + 1;
      const lower = heap[child];
      if (lower === undefined || lower.dueMs >= entry.dueMs) break;
      heap[at] = lower;
      at = child;
    }
    heap[at] = entry;
  }
}

const RETRY: BackoffPolicy = { first: millis(50), max: seconds(60), jitter: FULL_JITTER, least: millis(25) };
/** A conflict is over as soon as the cache has caught up, however many there were before. */
const RETRY_OF_RACE: BackoffPolicy = { ...RETRY, max: seconds(1) };
/** Keys that are worked on at once: a slow request of one holds up no other. What is over waits in line. */
const DEFAULT_WORKERS = 8;

export interface ReconcileLoopInit {
  readonly name: string;
  /** The caches that must have been listed before the first round. */
  readonly needs: readonly { readonly synced: Watch<boolean> }[];
  /**
   * Brings the object `key` closer to what it should be, from what is seen now. Runs once at a time for each key.
   * @returns when to look again though nothing has changed
   */
  readonly reconcile: (key: string, signal: AbortSignal) => Promise<Millis | undefined>;
  readonly workers?: number;
}

type KeyState =
  | { readonly kind: "waiting"; readonly dueMs: number }
  | { readonly kind: "queued" }
  | { readonly kind: "running"; readonly isDirty: boolean };

/**
 * One controller's work: keys, not facts, so that a lost, late or doubled event is harmless. It holds at most one entry
 * for each key that exists, so it needs no other bound.
 */
export class ReconcileLoop implements Component {
  readonly name: string;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Log;
  readonly #init: ReconcileLoopInit;
  readonly #states = new Map<string, KeyState>();
  readonly #queue = new Set<string>();
  readonly #due = new DueQueue();
  readonly #failures = new Map<string, number>();
  readonly #alarm: Alarm;
  readonly #running = new Set<Promise<void>>();

  constructor(
    { clock, random, log }: { readonly clock: Clock; readonly random: Random; readonly log: Log },
    init: ReconcileLoopInit,
  ) {
    this.name = init.name;
    this.#clock = clock;
    this.#random = random;
    this.#log = log;
    this.#init = init;
    this.#alarm = new Alarm(clock);
  }

  /** True when all keys wait for a time. */
  get isIdle(): boolean {
    return this.#queue.size === 0 && this.#running.size === 0;
  }

  /** As soon as a worker is free. */
  add(key: string): void {
    const state = this.#states.get(key);
    if (state?.kind === "running") this.#states.set(key, { kind: "running", isDirty: true });
    else if (state?.kind !== "queued") {
      this.#states.set(key, { kind: "queued" });
      this.#queue.add(key);
      this.#alarm.set(millis(0));
    }
  }

  /** Not later than that. */
  addAfter(key: string, delay: Millis): void {
    const state = this.#states.get(key);
    const dueMs = this.#clock.monotonic() + delay;
    if (state === undefined || (state.kind === "waiting" && state.dueMs > dueMs)) {
      this.#states.set(key, { kind: "waiting", dueMs });
      this.#due.push(key, dueMs);
      this.#alarm.set(delay);
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    for (const { synced } of this.#init.needs) {
      for await (const isSynced of synced.changes(signal)) if (isSynced) break;
    }
    try {
      while (!signal.aborted) {
        this.#startWork(signal);
        await this.#alarm.ring(signal);
        this.#queueDue();
      }
    } finally {
      await Promise.all(this.#running);
    }
  }

  #startWork(signal: AbortSignal): void {
    for (const key of this.#queue) {
      if (this.#running.size >= (this.#init.workers ?? DEFAULT_WORKERS)) return;
      this.#queue.delete(key);
      this.#states.set(key, { kind: "running", isDirty: false });
      const work: Promise<void> = this.#work(key, signal).finally(() => {
        this.#running.delete(work);
        this.#alarm.set(millis(0));
      });
      this.#running.add(work);
    }
  }

  async #work(key: string, signal: AbortSignal): Promise<void> {
    let again: Millis | undefined;
    try {
      again = await this.#init.reconcile(key, signal);
      this.#failures.delete(key);
    } catch (error) {
      if (signal.aborted || isCancelled(error)) return;
      again = this.#failed(key, error);
    }
    const state = this.#states.get(key);
    this.#states.delete(key);
    if (state?.kind === "running" && state.isDirty && !this.#failures.has(key)) this.add(key);
    else if (again !== undefined) this.addAfter(key, again);
  }

  #failed(key: string, error: unknown): Millis {
    const failures = this.#failures.get(key) ?? 0;
    this.#failures.set(key, failures + 1);
    const isRace = isPicoletError(error, "conflict") || isPicoletError(error, "already_exists");
    // The first conflict of a race is expected; repeats are logged as a count once they are many.
    const isLogged = isRace ? failures === 10 : failures === 0 || failures === 10;
    if (isLogged) {
      this.#log.warn("cannot reconcile", {
        controller: this.name,
        key,
        failures: failures + 1,
        error: describeError(error),
      });
    }
    return backoffDelay(isRace ? RETRY_OF_RACE : RETRY, failures + 1, this.#random.next());
  }

  #queueDue(): void {
    const now = this.#clock.monotonic();
    for (let entry = this.#due.pop(now); entry !== undefined; entry = this.#due.pop(now)) {
      const state = this.#states.get(entry.key);
      if (state?.kind !== "waiting" || state.dueMs !== entry.dueMs) continue;
      this.#states.set(entry.key, { kind: "queued" });
      this.#queue.add(entry.key);
    }
    const next = this.#due.nextDueMs;
    if (next !== undefined) this.#alarm.set(millis(next - now));
  }
}
