/** A record as it is in the ring. Names are short, because they are written to flash with each record. */
import type { Decision } from "@picolet/protocol/decisions/decision-kinds.ts";

/** When: milliseconds since the boot, and since 1970 by the clock of then. */
export type RecordTime = readonly [uptimeMs: number, wallMs: number];

export interface RingRecord {
  /** The sequence, from 1. Always the first field. */
  readonly n: number;
  /** The boot: a count from 1, and the first digits of the kernel's id. */
  readonly b: readonly [count: number, id: string];
  readonly t: RecordTime;
  /** Present when the clock was known to be wrong then. */
  readonly x?: 1;
  /** Present in a record that counts several equal decisions: how many, and when the first was. */
  readonly c?: number;
  readonly f?: RecordTime;
  /** The sequence of the record of the first of them, which this one replaces. */
  readonly r?: number;
  /** `namespace/name` and UID of the pod; absent: the node. */
  readonly p?: string;
  readonly u?: string;
  readonly d: Decision;
}
