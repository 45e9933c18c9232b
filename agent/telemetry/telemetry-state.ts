/**
 * The state of the node's telemetry: one value, changed by `transition` alone. Pure: times come in with the events. The
 * data itself (open batches, senders, the database), promises and timers are beside it, in telemetry.ts.
 *
 * ```
 * empty <-> holding
 *    \________/____> ended
 * ```
 */
import { type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import type { ContainerBatch } from "./batch-builder.ts";

export type TelemetryState = EmptyState | HoldingState | EndedState;

/** Nothing is in memory that the disk or the hub does not have. */
export interface EmptyState extends Circumstances {
  readonly kind: "empty";
}

export interface HoldingState extends Circumstances {
  readonly kind: "holding";
  /** When the oldest record in memory arrived. */
  readonly since: MonotonicMs;
  /** When the oldest urgent record in memory arrived; `undefined`: none is urgent. */
  readonly urgentAt: MonotonicMs | undefined;
  /** Batches that are closed and in no database. */
  readonly closed: readonly ContainerBatch[];
}

/** Nothing is taken any more. What the last write could not store is lost with the process. */
export interface EndedState extends Circumstances {
  readonly kind: "ended";
}

interface Circumstances {
  readonly hub: {
    /** True while a session takes telemetry. */
    readonly isForwarding: boolean;
    /** True once it was logged that the hub takes none; until it takes some. Sessions come and go meanwhile. */
    readonly isRefusalReported: boolean;
  };
  readonly disk: { readonly kind: "working" } | { readonly kind: "failing"; readonly problem: string };
  /** Factor by which records that are not urgent wait longer, from 1 to `MAX_STRETCH`. */
  readonly stretch: number;
  /** The id and the sequence number of the next batch. */
  readonly next: { readonly id: number; readonly sequence: number };
  /** Records since the agent's start. */
  readonly refused: number;
  readonly forwarded: number;
  readonly lastForwardedAt: Date | undefined;
}

export type TelemetryEvent =
  | { readonly kind: "taken"; readonly now: MonotonicMs; readonly isUrgent: boolean }
  | { readonly kind: "refused"; readonly records: number }
  | { readonly kind: "batchClosed"; readonly batch: ContainerBatch }
  /** All closed batches are in the database. `openRecords`: those of batches that are still open. */
  | { readonly kind: "written"; readonly openRecords: number; readonly now: MonotonicMs }
  | { readonly kind: "diskFailed"; readonly problem: string }
  /** The hub has all batches up to `id`, which are `records` records. */
  | {
      readonly kind: "acknowledged";
      readonly id: number;
      readonly records: number;
      readonly openRecords: number;
      readonly now: MonotonicMs;
      readonly wall: Date;
    }
  | { readonly kind: "refusalReported" }
  | { readonly kind: "forwardingChanged"; readonly isForwarding: boolean }
  | { readonly kind: "stretched"; readonly factor: number }
  | { readonly kind: "ended" };

/** Limits how much longer records wait in memory to spare the flash, and so what a power cut may take. */
const MAX_STRETCH = 10;

/** @param nextId above all ids in the database */
export const initialState = (nextId: number): EmptyState => ({
  kind: "empty",
  hub: { isForwarding: false, isRefusalReported: false },
  disk: { kind: "working" },
  stretch: 1,
  next: { id: nextId, sequence: 1 },
  refused: 0,
  forwarded: 0,
  lastForwardedAt: undefined,
});

/** An event that means nothing in a state leaves it as it is. */
export function transition(state: TelemetryState, event: TelemetryEvent): TelemetryState {
  switch (event.kind) {
    case "taken":
      return taken(state, event.now, event.isUrgent);
    case "refused":
      return { ...state, refused: state.refused + event.records };
    case "batchClosed": {
      if (state.kind !== "holding") return state;
      const next = { id: event.batch.id + 1, sequence: event.batch.sequence + 1 };
      return { ...state, closed: [...state.closed, event.batch], next };
    }
    case "written": {
      const written = { ...state, disk: { kind: "working" } } as const;
      return rested(written, [], event);
    }
    case "diskFailed":
      return { ...state, disk: { kind: "failing", problem: event.problem } };
    case "acknowledged": {
      const hub = { ...state.hub, isRefusalReported: false };
      const forwarded = state.forwarded + event.records;
      const informed = { ...state, hub, forwarded, lastForwardedAt: event.wall };
      return rested(
        informed,
        closedOf(state).filter(({ id }) => id > event.id),
        event,
      );
    }
    case "refusalReported":
      return state.hub.isRefusalReported ? state : { ...state, hub: { ...state.hub, isRefusalReported: true } };
    case "forwardingChanged": {
      const { isForwarding } = event;
      return state.hub.isForwarding === isForwarding ? state : { ...state, hub: { ...state.hub, isForwarding } };
    }
    case "stretched":
      return { ...state, stretch: Math.min(MAX_STRETCH, Math.max(1, event.factor)) };
    case "ended":
      return state.kind === "ended" ? state : { ...circumstancesOf(state), kind: "ended" };
  }
}

export const closedOf = (state: TelemetryState): readonly ContainerBatch[] =>
  state.kind === "holding" ? state.closed : [];

export const problemOf = ({ disk }: TelemetryState): string => (disk.kind === "failing" ? disk.problem : "");

export interface FlushDelays {
  /** How long records wait in memory if nothing is urgent, without stretch. */
  readonly interval: Millis;
  /** How long urgent records wait for the hub, which spares the disk. */
  readonly urgentForward: Millis;
  /** How long urgent records wait without a hub, so that those of several components share a write. */
  readonly urgentGather: Millis;
}

/** How long until the records in memory must go to the disk; below 0 when they are late, `undefined` without any. */
export function timeLeft(state: TelemetryState, now: MonotonicMs, delays: FlushDelays): number | undefined {
  if (state.kind !== "holding") return undefined;
  const due = state.since + intervalOf(state, delays);
  const urgent = state.urgentAt === undefined ? due : state.urgentAt + urgentDelayOf(state, delays);
  return Math.min(due, urgent) - now;
}

export const intervalOf = ({ stretch }: TelemetryState, { interval }: FlushDelays): Millis =>
  millis(interval * stretch);

export const urgentDelayOf = ({ hub }: TelemetryState, { urgentForward, urgentGather }: FlushDelays): Millis =>
  hub.isForwarding ? urgentForward : urgentGather;

function taken(state: TelemetryState, now: MonotonicMs, isUrgent: boolean): TelemetryState {
  if (state.kind === "ended") return state;
  const urgent = isUrgent ? now : undefined;
  if (state.kind === "empty") return { ...state, kind: "holding", since: now, urgentAt: urgent, closed: [] };
  return { ...state, urgentAt: state.urgentAt ?? urgent };
}

/** Some records have left memory: the time of the rest begins now. */
function rested(
  state: TelemetryState,
  closed: readonly ContainerBatch[],
  { openRecords, now }: { readonly openRecords: number; readonly now: MonotonicMs },
): TelemetryState {
  if (state.kind !== "holding") return state;
  if (closed.length === 0 && openRecords === 0) return { ...circumstancesOf(state), kind: "empty" };
  return { ...state, closed, since: now };
}

const circumstancesOf = (state: TelemetryState): Circumstances => {
  const { hub, disk, stretch, next, refused, forwarded, lastForwardedAt } = state;
  return { hub, disk, stretch, next, refused, forwarded, lastForwardedAt };
};
