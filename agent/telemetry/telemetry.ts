import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import type { TelemetryReport } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type Millis, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import { checkRecords, recordSize } from "@picolet/protocol/telemetry/records.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { TelemetryPutAnswer } from "@picolet/runtime-contract/telemetry-message.ts";
import type { OutgoingBatch, OutgoingTelemetry } from "../core/hub/outgoing-telemetry.ts";
import { BatchBuilder, type ContainerBatch, closeBatch } from "./batch-builder.ts";
import type { BoardTime } from "./board-time.ts";
import type { TelemetryHandover } from "./handover.ts";
import type { QueueDatabases } from "./queue-database.ts";
import { TelemetryQueue } from "./telemetry-queue.ts";
import {
  closedOf,
  type FlushDelays,
  initialState,
  intervalOf,
  problemOf,
  type TelemetryEvent,
  type TelemetryState,
  timeLeft,
  transition,
  urgentDelayOf,
} from "./telemetry-state.ts";

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
  /** How long records wait in memory for the disk: a power cut may take that much. */
  readonly flushInterval: Millis;
  /** Names this life of the agent: 16 hexadecimal digits, never the same twice. */
  readonly queue: string;
}

/**
 * Bounds the records in memory: ten batches of 50 KiB, more than a board's components send in an interval. At the limit
 * all go to the disk; if the disk takes nothing, components get `resource_exhausted`.
 */
const MAX_MEMORY_BYTES = 512 * KIBIBYTE;
/** Records that arrive within it go to the hub in one batch. */
const FORWARD_GATHER = seconds(1);
/** Urgent records of several components that arrive within it share one write. */
const URGENT_GATHER = millis(50);
/** Urgent records wait so long for the hub's acknowledgement, which spares the disk. */
const URGENT_FORWARD = seconds(2);
/** Delay after a failed write. */
const RETRY = seconds(30);
/** Bounds the senders in memory; the database knows the others. */
const MAX_RUNS = 1024;

interface Waiter {
  readonly run: string;
  readonly number: number;
  readonly resolve: () => void;
  readonly reject: (error: PicoletError) => void;
}

/**
 * Takes what components hand over, keeps it in memory for a while and then on the disk, and gives it to the tunnel,
 * oldest first. While the hub takes it in time nothing is written to the disk. Its state is one `TelemetryState`.
 */
export class Telemetry implements Component, OutgoingTelemetry {
  readonly name = "telemetry";
  readonly #components: TelemetryComponents;
  readonly #init: TelemetryInit;
  readonly #delays: FlushDelays;
  #state: TelemetryState;
  readonly #queue: TelemetryQueue;
  readonly #builder = new BatchBuilder();
  readonly #latest: WatchSource<number>;
  readonly #closing: Alarm;
  readonly #flushing: Alarm;
  /** By run, the last handover that was taken, and the last that is on the disk or the hub. */
  readonly #taken = new Map<string, number>();
  readonly #kept = new Map<string, number>();
  #waiters: Waiter[] = [];

  /** @throws when the database can be neither opened nor made */
  constructor(components: TelemetryComponents, init: TelemetryInit) {
    const { databases, time, clock, log } = components;
    const { path, maxBytes, maxAge, queue, flushInterval } = init;
    this.#components = components;
    this.#init = init;
    this.#delays = { interval: flushInterval, urgentForward: URGENT_FORWARD, urgentGather: URGENT_GATHER };
    this.#queue = new TelemetryQueue({ databases, time, log }, { path, maxBytes, maxAgeUs: maxAge * 1000, queue });
    this.#closing = new Alarm(clock);
    this.#flushing = new Alarm(clock);
    this.#latest = new WatchSource(this.#queue.lastId);
    this.#state = initialState(this.#queue.lastId + 1);
  }

  get latest(): Watch<number> {
    return this.#latest;
  }

  #dispatch(event: TelemetryEvent): void {
    this.#state = transition(this.#state, event);
  }

  get #now(): MonotonicMs {
    return this.#components.clock.monotonic();
  }

  /**
   * Takes a handover into memory. An urgent one is on the disk or the hub when this resolves, unless the disk fails.
   * @throws `invalid` with what is wrong with it; `resource_exhausted`, retryable, while disk and memory are full;
   *   `unavailable` when the agent ends before it is kept
   */
  async put(handover: TelemetryHandover): Promise<TelemetryPutAnswer> {
    const { run, number, isUrgent } = handover;
    try {
      this.#take(handover);
    } catch (error) {
      this.#dispatch({ kind: "refused", records: handover.records.length });
      throw error;
    }
    const { taken, kept } = this.#positionOf(run);
    if (isUrgent && taken > kept && number <= taken) await this.#untilKept(run, taken);
    return this.#positionOf(run);
  }

  #positionOf(run: string): TelemetryPutAnswer {
    return { taken: this.#taken.get(run) ?? 0, kept: this.#kept.get(run) ?? 0 };
  }

  #take(handover: TelemetryHandover): void {
    const { run, number, firstUnkept, records, isUrgent } = handover;
    if (this.#state.kind === "ended") throw new PicoletError("unavailable", "the agent is ending", { retryable: true });
    const taken = Math.max(this.#taken.get(run) ?? this.#recall(run), firstUnkept - 1);
    if (number !== taken + 1) return;
    checkRecords(records.map(({ record }) => record));
    this.#ensureRoom(records.reduce((sum, { record }) => sum + recordSize(record), 0));
    this.#dispatch({ kind: "taken", now: this.#now, isUrgent });
    for (const full of this.#builder.add(handover)) this.#close(full);
    // The tunnel sends nothing before it sees a first id, and no batch is closed in time before the tunnel sends.
    if (this.#latest.current === 0) this.#latest.set(this.#state.next.id);
    // Deleted first, so that the map stays in the order of last use: the longest silent sender is forgotten first.
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
    const problem = problemOf(this.#state);
    throw new PicoletError("resource_exhausted", `the board keeps no more telemetry: ${problem}`, { retryable: true });
  }

  get #memoryBytes(): number {
    return closedOf(this.#state).reduce((sum, { size }) => sum + size, this.#builder.bytes);
  }

  #schedule(isUrgent: boolean): void {
    if (this.#state.hub.isForwarding) this.#closing.set(isUrgent ? URGENT_GATHER : FORWARD_GATHER);
    const delay = isUrgent ? urgentDelayOf : intervalOf;
    this.#flushing.set(delay(this.#state, this.#delays));
  }

  /** @param factor by which records that are not urgent wait longer for the disk, to spare the flash */
  stretch(factor: number): void {
    this.#dispatch({ kind: "stretched", factor });
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#closeInTime(signal), this.#flushInTime(signal)]);
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
      // Records that the hub has taken meanwhile need no write.
      const left = timeLeft(this.#state, this.#now, this.#delays);
      if (left === undefined) continue;
      if (left > 0) this.#flushing.set(millis(left));
      else if (!this.#flush()) this.#flushing.set(RETRY);
    }
  }

  #closeAll(): void {
    for (const batch of this.#builder.take()) this.#close(batch);
  }

  #close(batch: Parameters<typeof closeBatch>[0]): void {
    const { next } = this.#state;
    this.#dispatch({ kind: "batchClosed", batch: closeBatch(batch, next, this.#components.time) });
    this.#latest.set(next.id);
  }

  /** @returns false when the disk takes nothing; the records stay in memory then */
  #flush(): boolean {
    this.#closeAll();
    const closed = closedOf(this.#state);
    if (closed.length === 0) return true;
    try {
      this.#queue.store(closed, runsOf(closed));
    } catch (error) {
      this.#reportProblem(error);
      // Their senders learn that it is taken and not kept, and remember it.
      for (const { resolve } of this.#waiters.splice(0)) resolve();
      return false;
    }
    if (this.#state.disk.kind === "failing") this.#components.log.info("telemetry is written to the disk again");
    this.#dispatch({ kind: "written", openRecords: this.#builder.records, now: this.#now });
    this.#keep(closed);
    this.#rescheduleFlush();
    return true;
  }

  #reportProblem(error: unknown): void {
    const problem = describeError(error);
    if (this.#state.disk.kind === "working") {
      this.#components.log.warn("cannot write telemetry to the disk", { error: problem });
    }
    this.#dispatch({ kind: "diskFailed", problem });
  }

  /** These batches cannot be lost any more: resolves the handovers that wait for that. */
  #keep(batches: readonly ContainerBatch[]): void {
    for (const [run, number] of runsOf(batches)) this.#kept.set(run, number);
    const [kept, waiting] = [[] as Waiter[], [] as Waiter[]];
    for (const waiter of this.#waiters) {
      (waiter.number <= (this.#kept.get(waiter.run) ?? 0) ? kept : waiting).push(waiter);
    }
    this.#waiters = waiting;
    for (const { resolve } of kept) resolve();
  }

  #rescheduleFlush(): void {
    const left = timeLeft(this.#state, this.#now, this.#delays);
    if (left !== undefined) this.#flushing.set(millis(Math.max(0, left)));
  }

  pending(after: number, limit: number): readonly OutgoingBatch[] {
    const stored = this.#stored(after, limit);
    if (stored.length > 0) return stored;
    const { queue } = this.#init;
    const { time } = this.#components;
    const offsetUs = (time.wallUs() ?? time.nowUs()) - time.nowUs();
    const isEstimated = time.wallUs() === undefined;
    return closedOf(this.#state)
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
      this.#reportProblem(error);
      return [];
    }
  }

  /** Logged once until a hub takes some: a session that comes and goes changes nothing. */
  untaken(reason: string): void {
    if (this.#state.hub.isRefusalReported) return;
    this.#dispatch({ kind: "refusalReported" });
    const { maxBytes } = this.#init;
    this.#components.log.warn("the hub takes no telemetry: the board keeps the newest", { reason, maxBytes });
  }

  ack(id: number): void {
    const before = this.#records;
    try {
      this.#queue.ack(id);
    } catch (error) {
      this.#reportProblem(error);
    }
    const acknowledged = closedOf(this.#state).filter((batch) => batch.id <= id);
    const inMemory = acknowledged.reduce((sum, { records }) => sum + records, 0);
    this.#dispatch({
      kind: "acknowledged",
      id,
      records: before - this.#records + inMemory,
      openRecords: this.#builder.records,
      now: this.#now,
      wall: this.#components.clock.wall(),
    });
    this.#keep(acknowledged);
    this.#rescheduleFlush();
  }

  get #records(): number {
    const memory = closedOf(this.#state).reduce((sum, { records }) => sum + records, this.#builder.records);
    return memory + this.#queue.figures.records;
  }

  forwarding(isForwarding: boolean): void {
    this.#dispatch({ kind: "forwardingChanged", isForwarding });
    if (!isForwarding) this.#queue.rewind();
    else if (this.#builder.records > 0) this.#closing.set(FORWARD_GATHER);
    this.#rescheduleFlush();
  }

  report(): TelemetryReport {
    const { batches, bytes } = this.#queue.figures;
    const { refused, forwarded, lastForwardedAt } = this.#state;
    const inMemory = closedOf(this.#state).length;
    return {
      queued: { records: this.#records, batches: batches + inMemory, bytes: bytes + this.#memoryBytes },
      maxBytes: this.#init.maxBytes,
      dropped: this.#queue.dropped,
      refused,
      forwarded,
      lastForwardedAt: lastForwardedAt?.toISOString() ?? null,
      problem: problemOf(this.#state),
    };
  }

  /** Writes the records in memory to the disk, if it works. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#state.kind === "ended") return;
    this.#flush();
    this.#dispatch({ kind: "ended" });
    const gone = new PicoletError("unavailable", "the agent has ended before telemetry was kept", { retryable: true });
    for (const { reject } of this.#waiters.splice(0)) reject(gone);
    this.#queue[Symbol.dispose]();
  }
}

const runsOf = (batches: readonly ContainerBatch[]): ReadonlyMap<string, number> =>
  new Map(batches.flatMap(({ runs }) => [...runs]));
