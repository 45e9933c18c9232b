import { Alarm } from "../../protocol/async/alarm.ts";
import type { Component } from "../../protocol/async/component.ts";
import type { Watch } from "../../protocol/async/watch.ts";
import { isCancelled } from "../../protocol/errors.ts";
import { type Clock, type Log, type MonotonicMs, millis, seconds } from "../../protocol/ports.ts";
import type { DesiredStore, EventStore, StatusOutbox } from "../core/store.ts";
import type { Connection } from "./connection.ts";
import { DesiredPods } from "./desired-pods.ts";
import { type DesiredContents, readDesired } from "./desired-rows.ts";
import { type EventContents, Events, readEvents } from "./events.ts";
import { PodStatuses, readStatuses, type StatusContents } from "./pod-statuses.ts";
import { StoreFile, type StoreState } from "./store-file.ts";

/** Statuses and events come in bursts of a few per pod; one transaction takes a whole burst. A power cut costs as much. */
const TICK = seconds(1);
/** For counts of repeated events alone: a pod that fails for a week writes once a minute, not at every failure. */
const LAZY_TICK = seconds(60);
/** After a failed write the next try, doubled up to MAX_RETRY: space on a disk comes back in minutes, if at all. */
const RETRY = seconds(2);
const MAX_RETRY = seconds(60);
/** How often a store in memory looks whether its file can be written again. */
const RETURN_TO_FILE = seconds(60);

interface Contents {
  readonly desired: DesiredContents;
  readonly statuses: StatusContents;
  readonly events: EventContents;
}

/**
 * What the agent keeps across reboots and power cuts, in one SQLite file that one process has open. Works from its
 * making to its disposal; `run` only writes the batches. With nothing to write there is no timer and no write.
 */
export class Store implements Component {
  readonly name = "store";
  readonly desired: DesiredStore;
  readonly statuses: StatusOutbox;
  readonly events: EventStore;
  readonly #clock: Clock;
  readonly #file: StoreFile<Contents>;
  readonly #alarm: Alarm;
  #isKeeping = false;
  #triedFileAt: MonotonicMs;

  /**
   * @param init.path the database file, absolute, its folder is made when it is missing; or `:memory:`
   * @param init.maxBytes of the database; writes fail as on a full disk when it is reached
   * @throws `conflict` when another process has the file open, or a newer picolet wrote it. Damage, a full disk and a
   *   place that cannot be written are no errors: see `state`.
   */
  constructor(
    components: { readonly clock: Clock; readonly log: Log },
    init: { readonly path: string; readonly maxBytes?: number },
  ) {
    const { clock, log } = components;
    this.#clock = clock;
    this.#triedFileAt = clock.monotonic();
    this.#alarm = new Alarm(clock);
    this.#file = new StoreFile(components, { ...init, load });
    const { desired, statuses, events } = this.#file.contents;
    const file = this.#file;
    const keepBack = (urgency: "soon" | "later" = "soon"): void => this.#keepBack(urgency);
    const pods = new DesiredPods({ file, keepBack }, desired);
    const outbox = new PodStatuses({ file, keepBack }, statuses);
    const ring = new Events({ clock, log, file, keepBack }, events);
    for (const part of [pods, outbox, ring]) file.join(part);
    this.desired = pods;
    this.statuses = outbox;
    this.events = ring;
  }

  /** Whether what is written now will be there after a power cut, and what was found when the file was opened. */
  get state(): Watch<StoreState> {
    return this.#file.state;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        if (this.state.current.kind === "inMemory") this.#alarm.set(RETURN_TO_FILE);
        await this.#alarm.ring(signal);
        this.#returnToFile();
        await this.#flushUntilWritten(signal);
      }
    } catch (error) {
      if (!isCancelled(error)) throw error;
    }
  }

  /** Writes what is kept back, now. @returns false when the disk did not take it; it is kept then. */
  flush(): boolean {
    if (!this.#isKeeping) return true;
    if (!this.#file.flush()) return false;
    this.#isKeeping = false;
    return true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.flush();
    this.#file.close();
  }

  async #flushUntilWritten(signal: AbortSignal): Promise<void> {
    let retry = RETRY;
    while (!this.flush()) {
      await this.#clock.sleep(retry, signal);
      retry = millis(Math.min(MAX_RETRY, retry * 2));
    }
  }

  #returnToFile(): void {
    const now = this.#clock.monotonic();
    if (now - this.#triedFileAt < RETURN_TO_FILE) return;
    this.#triedFileAt = now;
    this.#file.returnToFile();
  }

  #keepBack(urgency: "soon" | "later"): void {
    this.#isKeeping = true;
    this.#alarm.set(urgency === "soon" ? TICK : LAZY_TICK);
  }
}

const load = (connection: Connection): Contents => ({
  desired: readDesired(connection),
  statuses: readStatuses(connection),
  events: readEvents(connection),
});
