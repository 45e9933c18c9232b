import { ignoreCancelled } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import type { TelemetryReport } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type Millis, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import { checkRecords, recordSize } from "@picolet/protocol/telemetry/records.ts";
import type { TelemetryPutAnswer } from "@picolet/runtime-contract/telemetry-message.ts";
import type { OutgoingBatch, OutgoingTelemetry } from "../core/hub/outgoing-telemetry.ts";
import { BatchBuilder, type ContainerBatch, closeBatch } from "./batch-builder.ts";
import type { BoardTime } from "./board-time.ts";
import type { TelemetryHandover } from "./handover.ts";
import type { QueueDatabases } from "./queue-database.ts";
import { TelemetryQueue } from "./telemetry-queue.ts";

export interface TelemetryComponents {
  readonly databases: QueueDatabases;
  readonly time: BoardTime;
  readonly clock: Clock;
  readonly log: Log;
}

export interface TelemetryInit {
  readonly path: string;
  readonly maxBytes: number;
  readonly maxAge: Millis;
  /** How long points wait in memory for the disk; what a power cut may take. */
  readonly flushInterval: Millis;
  /** Of this life of the agent: 16 hexadecimal digits, never the same twice. */
  readonly queue: string;
}

/**
 * What waits in memory: ten batches of 50 KiB, more than a board's components give in an interval. When it is reached
 * all of it goes to the disk; when the disk takes nothing, no more is taken from components.
 */
const MAX_MEMORY_BYTES = 512 * 1024;
/** For batches to the hub: what comes within it goes together. */
const FORWARD_GATHER = seconds(1);
/** For events of several components to have one write. */
const URGENT_GATHER = millis(50);
/** What is urgent is first left to the hub, which spares the disk. */
const URGENT_FORWARD = seconds(2);
/** After a failed write. */
const RETRY = seconds(30);
/** Wear of the flash makes points wait longer, by this at the most. */
const MOST_STRETCHED = 10;

/** Senders remembered in memory; of others the database knows. */
const MAX_RUNS = 1024;

interface Waiter {
  readonly run: string;
  readonly number: number;
  readonly resolve: () => void;
  readonly reject: (error: PicoletError) => void;
}

/**
 * The node's telemetry: takes what components hand over, keeps it in memory for a while and then on the disk, gives it
 * to the tunnel, oldest first. While the hub takes it in time nothing is written at all.
 */
export class Telemetry implements Component, OutgoingTelemetry {
  readonly name = "telemetry";
  readonly #components: TelemetryComponents;
  readonly #init: TelemetryInit;
  readonly #queue: TelemetryQueue;
  readonly #gathering = new BatchBuilder();
  /** Closed, in no database yet. */
  #fresh: ContainerBatch[] = [];
  readonly #latest: WatchSource<number>;
  readonly #closing: Alarm;
  readonly #flushing: Alarm;
  /** Of the oldest that is in memory alone. */
  #since: MonotonicMs | undefined;
  #urgentAt: MonotonicMs | undefined;
  #nextId: number;
  #sequence = 0;
  /** Taken of each sender, and of that what is kept. */
  readonly #taken = new Map<string, number>();
  readonly #kept = new Map<string, number>();
  #waiters: Waiter[] = [];
  #isForwarding = false;
  #stretch = 1;
  #problem = "";
  #refused = 0;
  #forwarded = 0;
  #lastForwardedAt: Date | undefined;
  #isEnding = false;
  #isUntaken = false;

  /** @throws when the database can be neither opened nor made */
  constructor(components: TelemetryComponents, init: TelemetryInit) {
    const { databases, time, clock, log } = components;
    const { path, maxBytes, maxAge, queue } = init;
    this.#components = components;
    this.#init = init;
    this.#queue = new TelemetryQueue({ databases, time, log }, { path, maxBytes, maxAgeUs: maxAge * 1000, queue });
    this.#closing = new Alarm(clock);
    this.#flushing = new Alarm(clock);
    this.#latest = new WatchSource(this.#queue.lastId);
    this.#nextId = this.#queue.lastId + 1;
  }

  get latest(): Watch<number> {
    return this.#latest;
  }

  /**
   * Takes it into memory; what is urgent is kept when this resolves, unless the disk takes nothing.
   * @throws `invalid` with what is wrong with it; `resource_exhausted`, retryable, while disk and memory are full;
   *   `unavailable` when the agent ends before it is kept
   */
  async put(handover: TelemetryHandover): Promise<TelemetryPutAnswer> {
    const { run, number, isUrgent } = handover;
    try {
      this.#take(handover);
    } catch (error) {
      this.#refused += handover.records.length;
      throw error;
    }
    const { taken, kept } = this.#stateOf(run);
    if (isUrgent && taken > kept && number <= taken) await this.#untilKept(run, taken);
    return this.#stateOf(run);
  }

  #stateOf(run: string): TelemetryPutAnswer {
    return { taken: this.#taken.get(run) ?? 0, kept: this.#kept.get(run) ?? 0 };
  }

  #take(handover: TelemetryHandover): void {
    const { run, number, firstUnkept, records, isUrgent } = handover;
    if (this.#isEnding) throw new PicoletError("unavailable", "the agent is ending", { retryable: true });
    const taken = Math.max(this.#taken.get(run) ?? this.#recall(run), firstUnkept - 1);
    if (number !== taken + 1) return;
    checkRecords(records.map(({ record }) => record));
    this.#ensureRoom(records.reduce((sum, { record }) => sum + recordSize(record), 0));
    for (const full of this.#gathering.add(handover)) this.#close(full);
    // Nobody sends before he hears of the first, and nothing is closed in time before somebody sends.
    if (this.#latest.current === 0) this.#latest.set(this.#nextId);
    // Behind all others: who was silent for the longest is forgotten first.
    this.#taken.delete(run);
    this.#taken.set(run, number);
    this.#schedule(isUrgent);
  }

  #untilKept(run: string, number: number): Promise<void> {
    return new Promise((resolve, reject) => this.#waiters.push({ run, number, resolve, reject }));
  }

  #recall(run: string): number {
    const number = this.#queue.numberOf(run);
    this.#taken.set(run, number);
    this.#kept.set(run, number);
    const [oldest] = this.#taken.keys();
    if (this.#taken.size > MAX_RUNS && oldest !== undefined) {
      this.#taken.delete(oldest);
      this.#kept.delete(oldest);
    }
    return number;
  }

  #ensureRoom(bytes: number): void {
    if (this.#memoryBytes + bytes <= MAX_MEMORY_BYTES) return;
    this.#flush();
    if (this.#memoryBytes + bytes <= MAX_MEMORY_BYTES) return;
    throw new PicoletError("resource_exhausted", `the board keeps no more telemetry: ${this.#problem}`, {
      retryable: true,
    });
  }

  get #memoryBytes(): number {
    return this.#fresh.reduce((sum, { size }) => sum + size, this.#gathering.bytes);
  }

  #schedule(isUrgent: boolean): void {
    const now = this.#components.clock.monotonic();
    this.#since ??= now;
    if (isUrgent) this.#urgentAt ??= now;
    if (this.#isForwarding) this.#closing.set(isUrgent ? URGENT_GATHER : FORWARD_GATHER);
    this.#flushing.set(isUrgent ? this.#urgentDelay : this.#interval);
  }

  get #interval(): Millis {
    return millis(this.#init.flushInterval * this.#stretch);
  }

  get #urgentDelay(): Millis {
    return this.#isForwarding ? URGENT_FORWARD : URGENT_GATHER;
  }

  /** What waits for the disk waits longer, so that less of the flash is worn; never what is urgent. */
  stretch(factor: number): void {
    this.#stretch = Math.min(MOST_STRETCHED, Math.max(1, factor));
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#closeInTime(signal), this.#flushInTime(signal)]).catch(ignoreCancelled);
  }

  async #closeInTime(signal: AbortSignal): Promise<never> {
    for (;;) {
      await this.#closing.ring(signal);
      this.#closeAll();
    }
  }

  async #flushInTime(signal: AbortSignal): Promise<never> {
    for (;;) {
      await this.#flushing.ring(signal);
      const left = this.#timeLeft();
      if (left === undefined) continue;
      if (left > 0) this.#flushing.set(millis(left));
      else if (!this.#flush()) this.#flushing.set(RETRY);
    }
  }

  /** Until something in memory has to go to the disk; what the hub has taken meanwhile has not. */
  #timeLeft(): number | undefined {
    if (this.#since === undefined) return undefined;
    const now = this.#components.clock.monotonic();
    const due = this.#since + this.#interval;
    const urgent = this.#urgentAt === undefined ? due : this.#urgentAt + this.#urgentDelay;
    return Math.min(due, urgent) - now;
  }

  #closeAll(): void {
    for (const batch of this.#gathering.take()) this.#close(batch);
  }

  #close(batch: Parameters<typeof closeBatch>[0]): void {
    this.#sequence += 1;
    const place = { id: this.#nextId, sequence: this.#sequence };
    this.#nextId += 1;
    this.#fresh.push(closeBatch(batch, place, this.#components.time));
    this.#latest.set(place.id);
  }

  /** @returns false when the disk did not take it; it stays in memory then */
  #flush(): boolean {
    this.#closeAll();
    if (this.#fresh.length === 0) return true;
    try {
      this.#queue.store(this.#fresh, this.#runsOf(this.#fresh));
    } catch (error) {
      this.#tellProblem(error);
      // They hear that it is taken and not kept, which they remember it for.
      for (const { resolve } of this.#waiters.splice(0)) resolve();
      return false;
    }
    if (this.#problem !== "") this.#components.log.info("telemetry is written to the disk again");
    this.#problem = "";
    this.#keep(this.#fresh);
    this.#fresh = [];
    this.#rested();
    return true;
  }

  #tellProblem(error: unknown): void {
    const problem = describeError(error);
    if (this.#problem === "") this.#components.log.warn("cannot write telemetry to the disk", { error: problem });
    this.#problem = problem;
  }

  #runsOf(batches: readonly ContainerBatch[]): ReadonlyMap<string, number> {
    return new Map(batches.flatMap(({ runs }) => [...runs]));
  }

  /** These cannot be lost any more: whoever handed them over hears of it. */
  #keep(batches: readonly ContainerBatch[]): void {
    for (const [run, number] of this.#runsOf(batches)) this.#kept.set(run, number);
    const [kept, waiting] = [[] as Waiter[], [] as Waiter[]];
    for (const waiter of this.#waiters) {
      (waiter.number <= (this.#kept.get(waiter.run) ?? 0) ? kept : waiting).push(waiter);
    }
    this.#waiters = waiting;
    for (const { resolve } of kept) resolve();
  }

  /** What is in memory now has only just come. */
  #rested(): void {
    const isEmpty = this.#fresh.length === 0 && this.#gathering.records === 0;
    this.#since = isEmpty ? undefined : this.#components.clock.monotonic();
    if (isEmpty) this.#urgentAt = undefined;
    else
      this.#flushing.set(this.#timeLeft() === undefined ? this.#interval : millis(Math.max(0, this.#timeLeft() ?? 0)));
  }

  pending(after: number, limit: number): readonly OutgoingBatch[] {
    const stored = this.#stored(after, limit);
    if (stored.length > 0) return stored;
    const { queue } = this.#init;
    const { time } = this.#components;
    const offsetUs = (time.wallUs() ?? time.nowUs()) - time.nowUs();
    const isEstimated = time.wallUs() === undefined;
    return this.#fresh
      .filter(({ id }) => id > after)
      .slice(0, limit)
      .map(({ id, sequence, baseUs, wallUs, body }) => {
        const base = wallUs ?? offsetUs + baseUs;
        return { id, queue, sequence, baseUs: base, isEstimated: wallUs === undefined && isEstimated, batch: body };
      });
  }

  #stored(after: number, limit: number): readonly OutgoingBatch[] {
    try {
      return after < this.#queue.lastId ? this.#queue.pending(after, limit) : [];
    } catch (error) {
      this.#tellProblem(error);
      return [];
    }
  }

  /** Said once until a hub takes some: a session that comes and goes is no news. */
  untaken(reason: string): void {
    if (this.#isUntaken) return;
    this.#isUntaken = true;
    const { maxBytes } = this.#init;
    this.#components.log.warn("the hub takes no telemetry: the board keeps the newest", { reason, maxBytes });
  }

  ack(id: number): void {
    this.#isUntaken = false;
    const before = this.#records;
    try {
      this.#queue.ack(id);
    } catch (error) {
      this.#tellProblem(error);
    }
    const acknowledged = this.#fresh.filter((batch) => batch.id <= id);
    this.#fresh = this.#fresh.filter((batch) => batch.id > id);
    this.#keep(acknowledged);
    this.#rested();
    this.#forwarded += before - this.#records;
    this.#lastForwardedAt = this.#components.clock.wall();
  }

  get #records(): number {
    const memory = this.#fresh.reduce((sum, { records }) => sum + records, this.#gathering.records);
    return memory + this.#queue.figures.records;
  }

  forwarding(isForwarding: boolean): void {
    this.#isForwarding = isForwarding;
    if (!isForwarding) this.#queue.rewind();
    else if (this.#gathering.records > 0) this.#closing.set(FORWARD_GATHER);
    if (this.#since !== undefined) this.#flushing.set(millis(Math.max(0, this.#timeLeft() ?? 0)));
  }

  report(): TelemetryReport {
    const { batches, bytes } = this.#queue.figures;
    return {
      queued: { records: this.#records, batches: batches + this.#fresh.length, bytes: bytes + this.#memoryBytes },
      maxBytes: this.#init.maxBytes,
      dropped: this.#queue.dropped,
      refused: this.#refused,
      forwarded: this.#forwarded,
      lastForwardedAt: this.#lastForwardedAt?.toISOString() ?? null,
      problem: this.#problem,
    };
  }

  /** What is in memory goes to the disk, if it can. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isEnding) return;
    this.#isEnding = true;
    this.#flush();
    const gone = new PicoletError("unavailable", "the agent has ended before telemetry was kept", { retryable: true });
    for (const { reject } of this.#waiters.splice(0)) reject(gone);
    this.#queue[Symbol.dispose]();
  }
}
