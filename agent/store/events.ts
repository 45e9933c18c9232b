import { hash } from "node:crypto";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { type Clock, type Log, type Millis, millis } from "@picolet/protocol/ports.ts";
import type { EventItem } from "@picolet/protocol/tunnel/messages.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { OutgoingEvents } from "../core/hub/tunnel-ports.ts";
import {
  type EventInput,
  type EventRecord,
  type EventStore,
  MAX_EVENT_MESSAGE_LENGTH,
  nodeReference,
  type ObjectReference,
  type Sequenced,
} from "../core/store/store-ports.ts";
import type { Connection } from "./connection.ts";
import { EventAggregator } from "./event-aggregator.ts";
import { EventRateLimit, type NodeEventRate } from "./event-rate-limit.ts";
import {
  COLUMNS,
  type EventContents,
  eventItem,
  eventRecord,
  identityOf,
  insertEvent,
  MAX_RECENT_EVENTS,
  updateEvent,
} from "./event-rows.ts";
import { writeNumber } from "./status-rows.ts";
import type { Batched } from "./store-file.ts";

/** Bounds the ring: a day of a node with an event every two minutes. `edgectl events` shows no more at once. */
const MAX_EVENTS = 1000;
/** Bounds all events together to one flash erase block; 1,000 ordinary ones of 300 bytes stay below it. */
const MAX_EVENTS_BYTES = 512 * KIBIBYTE;
/** Bounds memory while the disk takes no events. The oldest Normal ones are dropped first, then the oldest. */
const MAX_PENDING_EVENTS = 256;
/**
 * Within this time equal events are one: an API server keeps one for an hour (`--event-ttl`), and counts it up until
 * then.
 */
const SAME_EVENT_MS = 60 * 60 * 1000;
/** Reports of an event without delay, as Kubernetes' spam filter allows; then the intervals grow. */
const REPORTS_AT_ONCE = 25;
const INTERVAL_MS = 5 * 60 * 1000;
/**
 * A count that has grown is reported after so long at the latest, well before the API server drops the event. An event
 * that never ceases is 96 reports a day, and MAX_RECENT_EVENTS of them one report every 4 s.
 */
const MAX_INTERVAL_MS = 3 * INTERVAL_MS;

export interface EventsComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly file: { use<R>(message: string, work: (connection: Connection) => R): R };
  /** Called when a record waits for the next batch; `later` when only a count has grown. */
  readonly keepBack: (urgency: "soon" | "later") => void;
  /** Calls `reportCounts` in `delay`, or earlier. */
  readonly remind: (delay: Millis) => void;
  /** The object of events about the node itself. */
  readonly nodeName: string;
  readonly rate: NodeEventRate;
}

/** One event and its repetitions. */
interface Occurrence {
  sequence: number;
  count: number;
  readonly firstAtMs: number;
  lastAtMs: number;
  /** Monotonic. */
  lastAt: number;
  /** The number of reports, and the monotonic time of the last one. */
  reports: number;
  reportedAt: number;
  /** Its sequence in the file; `undefined` before it is written. */
  stored: number | undefined;
}

interface Pending {
  readonly input: EventInput;
  readonly occurrence: Occurrence;
}

/** A ring of events on disk, the newest last. A repeated event moves to the end and counts up. */
export class Events implements EventStore, OutgoingEvents, Batched {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #file: EventsComponents["file"];
  readonly #keepBack: EventsComponents["keepBack"];
  readonly #remind: EventsComponents["remind"];
  readonly #aggregator: EventAggregator;
  readonly #rateLimit: EventRateLimit;
  /** By digest of the whole input, least recent first. */
  readonly #recent = new Map<string, Occurrence>();
  /** In order of sequence, so that the first is the oldest. */
  readonly #pending = new Map<string, Pending>();
  /** Counts that have grown since they were reported, by key. */
  readonly #withheld = new Map<string, Pending>();
  readonly #latest: WatchSource<number>;
  readonly #node: ObjectReference;
  #sequence: number;
  /** 0: no event was ever reported. */
  #acknowledged: number;
  /** Events that the ring has dropped since the last batch before they were reported. */
  #lost = 0;
  /** The sequence of the event about the loss. There is no second one while it is not acknowledged. */
  #lossEvent: number | undefined;
  #totals: { readonly events: number; readonly bytes: number };
  /** The totals once the transaction is committed. */
  #totalsWritten: { readonly events: number; readonly bytes: number };

  constructor(components: EventsComponents, contents: EventContents) {
    this.#clock = components.clock;
    this.#log = components.log;
    this.#file = components.file;
    this.#keepBack = components.keepBack;
    this.#remind = components.remind;
    this.#aggregator = new EventAggregator(components.clock);
    this.#rateLimit = new EventRateLimit(components.clock, components.rate);
    const { nodeName } = components;
    this.#node = nodeReference(nodeName);
    this.#acknowledged = contents.acknowledged;
    this.#sequence = contents.sequence;
    this.#totals = { events: contents.events, bytes: contents.bytes };
    this.#totalsWritten = this.#totals;
    this.#latest = new WatchSource(contents.sequence);
    const now = this.#clock.wall().getTime();
    for (const event of contents.recent) {
      const age = now - event.lastAtMs;
      if (age < 0 || age >= SAME_EVENT_MS) continue;
      const { sequence, count, firstAtMs, lastAtMs } = event;
      const lastAt = this.#clock.monotonic() - age;
      const reported = { reports: count, reportedAt: lastAt };
      this.#recent.set(keyOf(event), { sequence, count, firstAtMs, lastAtMs, lastAt, ...reported, stored: sequence });
    }
  }

  get latest(): Watch<number> {
    return this.#latest;
  }

  record(event: EventInput): void {
    const input = cut(this.#aggregator.aggregate(cut(event)));
    const key = keyOf(input);
    const occurrence = this.#repeat(key) ?? this.#first();
    this.#remember(key, occurrence);
    const now = this.#clock.monotonic();
    if (now - occurrence.reportedAt >= intervalOf(occurrence) && this.#isAdmitted(input)) {
      this.#report(key, { input, occurrence });
    } else if (occurrence.reports > 0) {
      this.#withheld.set(key, { input, occurrence });
      this.#remind(millis(Math.max(0, occurrence.reportedAt + MAX_INTERVAL_MS - now)));
    }
  }

  /** Reports counts that were withheld for as long as they may be, or all of them. */
  reportCounts(which: "due" | "all"): void {
    const now = this.#clock.monotonic();
    for (const [key, pending] of this.#withheld) {
      const left = pending.occurrence.reportedAt + MAX_INTERVAL_MS - now;
      if (which === "all" || left <= 0) this.#report(key, pending);
      else this.#remind(millis(left));
    }
  }

  #report(key: string, { input, occurrence }: Pending): void {
    this.#withheld.delete(key);
    occurrence.reports += 1;
    occurrence.reportedAt = this.#clock.monotonic();
    this.#sequence += 1;
    occurrence.sequence = this.#sequence;
    const isWaiting = this.#pending.delete(key);
    if (!isWaiting) this.#makeRoom();
    this.#pending.set(key, { input, occurrence });
    this.#keepBack(occurrence.stored === undefined ? "soon" : "later");
    this.#latest.set(this.#sequence);
  }

  /** A refused event is counted too, and the next admitted one of its kind reports the count. */
  #isAdmitted(input: EventInput): boolean {
    const taken = this.#rateLimit.take(input);
    if (taken === "first") {
      const { kind, namespace, name } = input.regarding;
      this.#log.warn("too many events of one object, further ones are dropped", { kind, namespace, name });
    }
    return taken === "admitted";
  }

  pending(limit: number): readonly Sequenced<EventItem>[] {
    const rows = this.#file.use("cannot read the events", (connection) =>
      connection.rows(
        `SELECT ${COLUMNS} FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?`,
        this.#acknowledged,
        limit + this.#pending.size,
      ),
    );
    return this.#withKeptBack(rows.map(eventRecord))
      .filter(({ sequence }) => sequence > this.#acknowledged)
      .slice(0, limit)
      .map((event) => ({ sequence: event.sequence, value: eventItem(event) }));
  }

  ack(sequence: number): void {
    const upTo = Math.min(sequence, this.#sequence);
    if (upTo <= this.#acknowledged) return;
    this.#acknowledged = upTo;
    if (this.#lossEvent !== undefined && this.#lossEvent <= upTo) this.#lossEvent = undefined;
    this.#keepBack("later");
  }

  list(filter: {
    readonly namespace?: string;
    readonly name?: string;
    readonly limit: number;
  }): readonly EventRecord[] {
    const namespace = filter.namespace ?? null;
    const name = filter.name ?? null;
    const rows = this.#file.use("cannot read the events", (connection) =>
      connection.rows(
        `SELECT ${COLUMNS} FROM events WHERE namespace = coalesce(?, namespace) AND name = coalesce(?, name) ` +
          "ORDER BY sequence DESC LIMIT ?",
        namespace,
        name,
        filter.limit + this.#pending.size,
      ),
    );
    const all = this.#withKeptBack(rows.map(eventRecord))
      .filter(({ regarding }) => namespace === null || regarding.namespace === namespace)
      .filter(({ regarding }) => name === null || regarding.name === name);
    return filter.limit > 0 ? all.slice(-filter.limit) : [];
  }

  /** In order of sequence. */
  #withKeptBack(rows: readonly EventRecord[]): EventRecord[] {
    const pending = [...this.#pending.values()];
    const outdated = new Set(pending.map(({ occurrence }) => occurrence.stored));
    const stored = rows.filter(({ sequence }) => !outdated.has(sequence));
    const kept = pending.map(({ input, occurrence }) => ({ ...input, ...timesOf(occurrence) }));
    return [...stored, ...kept].toSorted((a, b) => a.sequence - b.sequence);
  }

  write(connection: Connection): void {
    let { events, bytes } = this.#totals;
    for (const { input, occurrence } of this.#pending.values()) {
      if (updateEvent(connection, input, occurrence)) continue;
      const size = insertEvent(connection, input, occurrence);
      events += 1;
      bytes += size;
    }
    while (events > MAX_EVENTS || bytes > MAX_EVENTS_BYTES) {
      const oldest = connection.row("SELECT sequence, bytes FROM events ORDER BY sequence LIMIT 1");
      if (oldest === undefined) break;
      connection.run("DELETE FROM events WHERE sequence = ?", Number(oldest.sequence));
      events -= 1;
      bytes -= Number(oldest.bytes);
      if (Number(oldest.sequence) > this.#acknowledged) this.#lost += 1;
      // The event about the loss was dropped itself, so another one is recorded.
      if (Number(oldest.sequence) === this.#lossEvent) this.#lossEvent = undefined;
    }
    if (this.#acknowledged > 0) writeNumber(connection, "eventsAcknowledged", this.#acknowledged);
    this.#totalsWritten = { events, bytes };
  }

  written(): void {
    this.#totals = this.#totalsWritten;
    for (const { occurrence } of this.#pending.values()) occurrence.stored = occurrence.sequence;
    this.#pending.clear();
    if (this.#lost > 0) this.#reportLoss();
    this.#lost = 0;
  }

  /** A node that has never reported an event has no reader who would miss one. */
  #reportLoss(): void {
    if (this.#acknowledged === 0 || this.#lossEvent !== undefined) return;
    const message = `Events were dropped before they could be sent: at most ${MAX_EVENTS} are kept while there is no connection`;
    this.record({ regarding: this.#node, type: "Warning", reason: "EventsLost", message });
    this.#lossEvent = this.#sequence;
  }

  rewrite(): void {
    this.#totals = { events: 0, bytes: 0 };
    for (const occurrence of this.#recent.values()) occurrence.stored = undefined;
    for (const { occurrence } of this.#pending.values()) occurrence.stored = undefined;
    if (this.#pending.size > 0) this.#keepBack("soon");
  }

  #repeat(key: string): Occurrence | undefined {
    const occurrence = this.#recent.get(key);
    const now = this.#clock.monotonic();
    if (occurrence === undefined || now - occurrence.lastAt >= SAME_EVENT_MS) return undefined;
    occurrence.count += 1;
    occurrence.lastAtMs = this.#clock.wall().getTime();
    occurrence.lastAt = now;
    return occurrence;
  }

  #first(): Occurrence {
    const atMs = this.#clock.wall().getTime();
    const lastAt = this.#clock.monotonic();
    const unreported = { reports: 0, reportedAt: lastAt, stored: undefined };
    return { sequence: 0, count: 1, firstAtMs: atMs, lastAtMs: atMs, lastAt, ...unreported };
  }

  #remember(key: string, occurrence: Occurrence): void {
    this.#recent.delete(key);
    this.#recent.set(key, occurrence);
    if (this.#recent.size <= MAX_RECENT_EVENTS) return;
    const [leastRecent] = this.#recent.keys();
    if (leastRecent === undefined) return;
    this.#recent.delete(leastRecent);
    const withheld = this.#withheld.get(leastRecent);
    if (withheld !== undefined) this.#report(leastRecent, withheld);
  }

  #makeRoom(): void {
    if (this.#pending.size < MAX_PENDING_EVENTS) return;
    const entries = [...this.#pending];
    const [key] = entries.find(([, { input }]) => input.type === "Normal") ?? entries[0] ?? [];
    if (key === undefined) return;
    this.#pending.delete(key);
    this.#lost += 1;
  }
}

function cut(event: EventInput): EventInput {
  if (event.message.length <= MAX_EVENT_MESSAGE_LENGTH) return event;
  return { ...event, message: `${event.message.slice(0, MAX_EVENT_MESSAGE_LENGTH - 1)}…` };
}

const keyOf = (input: EventInput): string => hash("sha256", JSON.stringify(identityOf(input)), "base64");

const intervalOf = ({ reports }: Occurrence): number =>
  Math.min(MAX_INTERVAL_MS, INTERVAL_MS * Math.max(0, reports - REPORTS_AT_ONCE + 1));

const timesOf = ({ sequence, count, firstAtMs, lastAtMs }: Occurrence): Omit<EventRecord, keyof EventInput> => ({
  sequence,
  count,
  firstAtMs,
  lastAtMs,
});
