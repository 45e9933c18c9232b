/** The table `events`, row by row. */
import { hash } from "node:crypto";
import type { EventItem } from "@picolet/protocol/tunnel/messages.ts";
import type { EventInput, EventRecord } from "../core/store/store-ports.ts";
import type { Connection } from "./connection.ts";
import { COMBINED } from "./event-aggregator.ts";

/** Events of which a repetition is recognised. Of the least recent a repetition is an event of its own. */
export const MAX_RECENT_EVENTS = 256;
/** The bytes of a row besides its texts. */
const ROW_OVERHEAD_BYTES = 64;
/** Hexadecimal digits of an event's id: no two of a node's 1,000 events have the same. */
const ID_LENGTH = 16;

export interface EventContents {
  readonly events: number;
  readonly bytes: number;
  readonly sequence: number;
  readonly acknowledged: number;
  /** Newest last. */
  readonly recent: readonly EventRecord[];
}

export const COLUMNS =
  "sequence, kind, namespace, name, uid, fieldPath, type, reason, message, count, firstAtMs, lastAtMs";

export function readEvents(connection: Connection): EventContents {
  const totals = connection.row("SELECT count(*) AS events, total(bytes) AS bytes, max(sequence) AS last FROM events");
  const told = connection.row("SELECT value FROM meta WHERE name = 'eventsAcknowledged'");
  const recent = connection
    .rows(`SELECT ${COLUMNS} FROM events ORDER BY sequence DESC LIMIT ${MAX_RECENT_EVENTS}`)
    .map(eventRecord)
    .toReversed();
  const { events, bytes, last } = totals ?? {};
  const acknowledged = Number(told?.value ?? 0);
  // A power cut may have lost reported events but not the acknowledgement. No number is given twice.
  const sequence = Math.max(Number(last ?? 0), acknowledged);
  return { events: Number(events), bytes: Number(bytes), sequence, acknowledged, recent };
}

/**
 * All that tells one event from another: one that stands for several takes on the message and the place of the last.
 */
export function identityOf(input: EventInput): readonly string[] {
  if (!input.message.startsWith(COMBINED)) return textsOf(input);
  return textsOf({ ...input, message: COMBINED, regarding: { ...input.regarding, fieldPath: "" } });
}

function textsOf({ regarding, type, reason, message }: EventInput): readonly string[] {
  const { kind, namespace, name, uid, fieldPath } = regarding;
  return [kind, namespace, name, uid, fieldPath, type, reason, message];
}

/** A repetition keeps the event's id; the same event after an hour has another. */
export function eventItem(event: EventRecord): EventItem {
  const { regarding, type, reason, message, count, firstAtMs, lastAtMs } = event;
  const id = hash("sha256", JSON.stringify([identityOf(event), firstAtMs]), "hex").slice(0, ID_LENGTH);
  return { id, regarding, type, reason, message, count, firstAtMs, lastAtMs };
}

type Times = Pick<EventRecord, "sequence" | "count" | "firstAtMs" | "lastAtMs">;

/** @returns false when the ring has left it behind, or it was never there. */
export function updateEvent(
  connection: Connection,
  { regarding, message }: EventInput,
  { sequence, count, lastAtMs, stored }: Times & { readonly stored: number | undefined },
): boolean {
  if (stored === undefined) return false;
  if (!message.startsWith(COMBINED)) {
    const sql = "UPDATE events SET sequence = ?, count = ?, lastAtMs = ? WHERE sequence = ?";
    return connection.run(sql, sequence, count, lastAtMs, stored) > 0;
  }
  // Its share of MAX_EVENTS_BYTES stays that of its first message: such events are few, and their messages similar.
  const sql = "UPDATE events SET sequence = ?, count = ?, lastAtMs = ?, message = ?, fieldPath = ? WHERE sequence = ?";
  return connection.run(sql, sequence, count, lastAtMs, message, regarding.fieldPath, stored) > 0;
}

/** @returns its share of MAX_EVENTS_BYTES. */
export function insertEvent(connection: Connection, input: EventInput, times: Times): number {
  const texts = textsOf(input);
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), ROW_OVERHEAD_BYTES);
  const { sequence, count, firstAtMs, lastAtMs } = times;
  connection.run(
    `INSERT INTO events (${COLUMNS}, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    sequence,
    ...texts,
    count,
    firstAtMs,
    lastAtMs,
    bytes,
  );
  return bytes;
}

export function eventRecord(columns: Record<string, unknown>): EventRecord {
  const text = (name: string): string => String(columns[name]);
  return {
    sequence: Number(columns.sequence),
    regarding: {
      kind: text("kind") === "Pod" ? "Pod" : "Node",
      namespace: text("namespace"),
      name: text("name"),
      uid: text("uid"),
      fieldPath: text("fieldPath"),
    },
    type: text("type") === "Warning" ? "Warning" : "Normal",
    reason: text("reason"),
    message: text("message"),
    count: Number(columns.count),
    firstAtMs: Number(columns.firstAtMs),
    lastAtMs: Number(columns.lastAtMs),
  };
}
