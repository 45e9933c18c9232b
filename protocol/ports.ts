/**
 * The ports every part of picolet is handed instead of reaching for globals: time, chance, logging.
 * Pure declarations; `agent/core` and the tests bring the implementations.
 */

declare const brand: unique symbol;
type Branded<T, B extends string> = T & { readonly [brand]: B };

/** A duration in milliseconds. */
export type Millis = Branded<number, "Millis">;
/** A reading of a clock that never jumps; its origin means nothing, only differences do. Milliseconds. */
export type MonotonicMs = Branded<number, "MonotonicMs">;
/** `metadata.uid` of one incarnation of a pod. Two incarnations of one name never share it. */
export type PodUid = Branded<string, "PodUid">;

export const millis = (value: number): Millis => value as Millis;
export const seconds = (value: number): Millis => (value * 1000) as Millis;
export const podUid = (value: string): PodUid => value as PodUid;

/** The part of an AbortSignal that a wait uses; every AbortSignal is one. */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: "abort", listener: () => void): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** Never aborts: for a call that nothing cancels. */
export const NEVER: AbortSignal = new AbortController().signal;

export interface Clock {
  /** The time for durations and deadlines. */
  monotonic(): MonotonicMs;
  /** The time to show, and for certificates. May be wrong or jump both ways (a board without an RTC starts in 1970). */
  wall(): Date;
  /** Resolves after `duration`; rejects with a PicoletError `cancelled` as soon as `signal` aborts. */
  sleep(duration: Millis, signal: CancelSignal): Promise<void>;
}

export interface Random {
  /** Uniform in [0, 1). */
  next(): number;
}

export type LogFields = Readonly<Record<string, unknown>>;

/** Structured log: a constant message, with what varies in the fields. Cancellation is not logged. */
export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** A log that adds `fields` to every entry. */
  child(fields: LogFields): Log;
}
