import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { Backoff, type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import {
  type Clock,
  type Log,
  type Millis,
  type MonotonicMs,
  millis,
  type PodUid,
  type Random,
  seconds,
} from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import type { PodObserverSink } from "../core/pods/pod-observer.ts";

/** The period while things change; the kubelet's period at all times. */
const RELIST_PERIOD = seconds(1);
/**
 * The longest period while hints arrive: a relist only finds changes whose hint was lost, and the resync follows.
 * Listing 50 pods takes about 3 ms, which is 0.01 % of a core.
 */
const MAX_PERIOD_WITH_HINTS = seconds(30);
/**
 * Without changes there are no hints, so the runtime is asked for one. After a lost hint, hints are relied on again
 * after this time at the earliest.
 */
const TRY_HINTS_PERIOD = seconds(600);
/** The wait after the runtime could not answer, for example because it has just been started. */
const ASK_HINTS_PERIOD = seconds(60);
const TRY_HINTS_LIMIT = seconds(2);
/** A change shows in the next list or two after its hint. */
const HINTED_FOR = seconds(5);
/** A worker announces what it does, before and after: a sandbox shows in lists long before it is done. */
const EXPECTED_FOR = seconds(60);
/** The longest period without hints, which bounds how late a crash is seen. 3 ms every 3 s are 0.1 % of a core. */
const MAX_PERIOD_WITHOUT_HINTS = seconds(3);
/** Bounds one list, which takes milliseconds; on a busy board a second or two. */
const LIST_TIMEOUT = seconds(20);
/** The wait after a failed list: short enough to see a runtime come back, doubled up to the longest wait. */
const RELIST_RETRY: BackoffPolicy = { first: RELIST_PERIOD, max: seconds(5), jitter: [0.75, 1.25] };
/** The kubelet's `relistThreshold`. A runtime without a socket is reported at once. */
const RELIST_THRESHOLD = seconds(180);
/** The time between two pings of the runtime; a successful relist counts as one. 0.3 ms each. */
const PING_PERIOD = seconds(3);
/**
 * Bounds one ping. An answer takes a millisecond, but on a board that swaps a healthy runtime may not run for some
 * seconds.
 */
const PING_LIMIT = seconds(6);
/**
 * Bounds the ping limit, which doubles each time a runtime is silent again within `LATELY`, so that a slow board does
 * not flap.
 */
const MAX_PING_LIMIT = seconds(60);
const LATELY = seconds(600);
/** The wait between subscriptions to hints that end. */
const RESUBSCRIBE: BackoffPolicy = { first: seconds(1), max: seconds(30), jitter: [0.75, 1.25] };

interface Announcement {
  readonly how: "hint" | "expected";
  readonly at: MonotonicMs;
}

export interface RuntimeWatcherComponents {
  readonly adapter: RuntimeAdapter;
  readonly sink: PodObserverSink;
  readonly healthChanged: () => void;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly counts?: NodeCounts;
}

/** Watches one runtime: lists its pods, more often while things change, and listens to its hints. */
export class RuntimeWatcher {
  readonly #components: RuntimeWatcherComponents;
  readonly #alarm: Alarm;
  #listing: ReadonlyMap<PodUid, string> | undefined;
  #health: RuntimeHealth | undefined;
  #period: Millis = RELIST_PERIOD;
  /** The pods with a recent hint or an expected change; at most one entry for each pod. */
  readonly #announced = new Map<PodUid, Announcement>();
  /** True when the last change that a relist found had a hint, or there was none since hints were tried. */
  #hintsCome = false;
  #tryHintsAfter = 0 as MonotonicMs;
  #succeededAt: MonotonicMs | undefined;
  #failures = 0;
  #pingLimit: Millis = PING_LIMIT;
  /** `undefined`: it has always answered. */
  #silentAt: MonotonicMs | undefined;

  constructor(components: RuntimeWatcherComponents) {
    this.#components = components;
    this.#alarm = new Alarm(components.clock);
  }

  get listing(): ReadonlyMap<PodUid, string> | undefined {
    return this.#listing;
  }

  get health(): RuntimeHealth | undefined {
    return this.#health;
  }

  expect(uid: PodUid): void {
    this.#announce(uid, this.#announcement(uid) === "hint" ? "hint" : "expected");
    this.#hurry();
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([
      this.#relistForEver(signal),
      this.#listen(signal),
      this.#pingForEver(signal),
      this.#noticeLosses(signal),
    ]);
  }

  #hurry(): void {
    this.#period = RELIST_PERIOD;
    this.#alarm.set(RELIST_PERIOD);
  }

  async #relistForEver(signal: AbortSignal): Promise<void> {
    const { adapter, clock } = this.#components;
    this.#alarm.set(millis(0));
    for (let before: MonotonicMs | undefined; ; ) {
      await this.#alarm.ring(signal);
      const began = clock.monotonic();
      this.#countInterval(before, began);
      before = began;
      try {
        const list = await withDeadline(clock, LIST_TIMEOUT, "list pods", (deadline) => adapter.list(deadline), signal);
        this.#components.counts?.observe("kubelet_pleg_relist_duration_seconds", clock.monotonic() - began);
        this.#listed(new Map(list.map(({ uid, version }) => [uid, version])));
        if (!this.#hintsCome && this.#period === MAX_PERIOD_WITHOUT_HINTS) await this.#tryHints(signal);
      } catch (error) {
        if (signal.aborted) throw error;
        this.#failed(error);
      }
    }
  }

  #countInterval(before: MonotonicMs | undefined, now: MonotonicMs): void {
    const { counts, clock } = this.#components;
    if (before !== undefined) counts?.observe("kubelet_pleg_relist_interval_seconds", now - before);
    counts?.mark("kubelet_pleg_last_seen_seconds", clock.wall().getTime() / 1000);
  }

  #announce(uid: PodUid, how: Announcement["how"]): void {
    this.#announced.set(uid, { how, at: this.#components.clock.monotonic() });
  }

  /** The origin of a change of the pod that is found now; undefined: neither hinted nor expected. */
  #announcement(uid: PodUid): Announcement["how"] | undefined {
    const found = this.#announced.get(uid);
    if (found === undefined) return undefined;
    const age = this.#components.clock.monotonic() - found.at;
    if (age > EXPECTED_FOR) {
      this.#announced.delete(uid);
      return undefined;
    }
    return found.how === "hint" && age > HINTED_FOR ? "expected" : found.how;
  }

  #listed(listing: ReadonlyMap<PodUid, string>): void {
    const { adapter, sink, clock } = this.#components;
    const before = this.#listing;
    this.#listing = listing;
    this.#succeededAt = clock.monotonic();
    const isBack = before === undefined || this.#failures > 0;
    this.#failures = 0;
    this.#setHealth(true, "", "");
    if (isBack) sink.listed(adapter);
    const changed = before === undefined ? [] : changesBetween(before, listing);
    for (const uid of changed) {
      const how = this.#announcement(uid);
      if (how !== "expected") this.#hintsCome = how === "hint";
      if (how === undefined) this.#tryHintsIn(TRY_HINTS_PERIOD);
      sink.podChanged(adapter, uid, "relist");
    }
    for (const uid of this.#announced.keys()) this.#announcement(uid);
    const longest = this.#hintsCome ? MAX_PERIOD_WITH_HINTS : MAX_PERIOD_WITHOUT_HINTS;
    this.#period = changed.length > 0 ? RELIST_PERIOD : millis(Math.min(this.#period * 2, longest));
    this.#alarm.set(this.#period);
  }

  #failed(error: unknown): void {
    const { adapter, clock, log, random } = this.#components;
    const message = describeError(error);
    this.#failures += 1;
    if (this.#failures === 1) log.warn("cannot list the pods of a runtime", { runtime: adapter.name, error: message });
    const silent = this.#succeededAt === undefined ? undefined : clock.monotonic() - this.#succeededAt;
    if (isPicoletError(error, "unavailable")) this.#setHealth(false, "RuntimeNotReady", message);
    else if (silent === undefined)
      this.#setHealth(false, "PLEGNotHealthy", `pleg has yet to be successful: ${message}`);
    else if (silent >= RELIST_THRESHOLD) {
      const ago = `pleg was last seen active ${Math.round(silent / 1000)}s ago; threshold is ${RELIST_THRESHOLD / 1000}s`;
      this.#setHealth(false, "PLEGNotHealthy", `${ago}: ${message}`);
    }
    this.#alarm.set(backoffDelay(RELIST_RETRY, this.#failures, random.next()));
  }

  async #tryHints(signal: AbortSignal): Promise<void> {
    const { adapter, clock } = this.#components;
    if (adapter.tryHints === undefined || clock.monotonic() < this.#tryHintsAfter) return;
    const ask = (limit: AbortSignal): Promise<boolean> => adapter.tryHints?.(limit) ?? Promise.resolve(false);
    try {
      this.#hintsCome = await withDeadline(clock, TRY_HINTS_LIMIT, "see a hint come", ask, signal);
      this.#tryHintsIn(ASK_HINTS_PERIOD);
    } catch (error) {
      if (signal.aborted) throw error;
      this.#tryHintsIn(TRY_HINTS_PERIOD);
    }
  }

  #tryHintsIn(duration: Millis): void {
    this.#tryHintsAfter = (this.#components.clock.monotonic() + duration) as MonotonicMs;
  }

  /** Pings the runtime: one that does not answer also hangs lists, whose limit is much longer. */
  async #pingForEver(signal: AbortSignal): Promise<void> {
    const { adapter, clock } = this.#components;
    if (adapter.ping === undefined) return;
    const ping = (deadline: AbortSignal): Promise<void> => adapter.ping?.(deadline) ?? Promise.resolve();
    const what = "get an answer from the container runtime";
    for (;;) {
      await clock.sleep(PING_PERIOD, signal);
      const listedAgo = this.#succeededAt === undefined ? undefined : clock.monotonic() - this.#succeededAt;
      if (listedAgo !== undefined && listedAgo < PING_PERIOD) continue;
      try {
        await withDeadline(clock, this.#pingLimit, what, ping, signal);
        // A list decides whether it is healthy again.
        if (this.#health?.healthy === false) this.#alarm.set(millis(0));
      } catch (error) {
        if (signal.aborted) throw error;
        if (isPicoletError(error, "deadline_exceeded")) this.#fellSilent(describeError(error));
        else this.#hurry();
      }
    }
  }

  #fellSilent(message: string): void {
    if (this.#health?.healthy === false) return;
    const now = this.#components.clock.monotonic();
    const isLately = this.#silentAt !== undefined && now - this.#silentAt < LATELY;
    this.#silentAt = now;
    this.#pingLimit = isLately ? millis(Math.min(this.#pingLimit * 2, MAX_PING_LIMIT)) : PING_LIMIT;
    this.#setHealth(false, "RuntimeNotReady", message);
  }

  /** A runtime that is back within a second was restarted; otherwise the list fails. */
  async #noticeLosses(signal: AbortSignal): Promise<void> {
    const { adapter, clock } = this.#components;
    while (adapter.disconnected !== undefined && !signal.aborted) {
      await adapter.disconnected(signal);
      if (signal.aborted) return;
      this.#hurry();
      await clock.sleep(RELIST_PERIOD, signal);
    }
  }

  #setHealth(healthy: boolean, reason: string, message: string): void {
    const { adapter, clock, log, healthChanged } = this.#components;
    if (this.#health?.healthy === healthy && this.#health.reason === reason) return;
    const sinceMs = this.#health?.healthy === healthy ? this.#health.sinceMs : clock.wall().getTime();
    if (healthy) log.info("runtime is ready", { runtime: adapter.name });
    else log.warn("runtime is not ready", { runtime: adapter.name, reason, message });
    this.#health = { name: adapter.name, healthy, reason, message, sinceMs };
    healthChanged();
  }

  async #listen(signal: AbortSignal): Promise<void> {
    const { adapter, clock, random } = this.#components;
    if (adapter.hints === undefined) return;
    const backoff = new Backoff(random, RESUBSCRIBE);
    while (!signal.aborted) {
      const began = clock.monotonic();
      if (!(await this.#hear(adapter.hints(signal), signal))) return;
      // Changes without a subscription show in the next list.
      this.#hintsCome = false;
      this.#hurry();
      if (clock.monotonic() - began > RESUBSCRIBE.max) backoff.reset();
      await clock.sleep(backoff.next(), signal);
    }
  }

  /** @returns whether to subscribe again */
  async #hear(hints: AsyncIterable<PodUid>, signal: AbortSignal): Promise<boolean> {
    const { adapter, sink, log } = this.#components;
    try {
      for await (const uid of hints) {
        this.#announce(uid, "hint");
        this.#hurry();
        sink.podChanged(adapter, uid, "hint");
      }
    } catch (error) {
      if (signal.aborted || isPicoletError(error, "unimplemented")) return false;
      log.debug("hints of a runtime ended", { runtime: adapter.name, error: describeError(error) });
    }
    return !signal.aborted;
  }
}

function changesBetween(before: ReadonlyMap<PodUid, string>, after: ReadonlyMap<PodUid, string>): PodUid[] {
  const changed = [...after].filter(([uid, version]) => before.get(uid) !== version).map(([uid]) => uid);
  for (const uid of before.keys()) if (!after.has(uid)) changed.push(uid);
  return changed;
}
