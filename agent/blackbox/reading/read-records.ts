import { describeError, ignore } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { BlackBox } from "../black-box.ts";
import { readLines } from "../ring-file.ts";
import type { RingRecord } from "../ring-record.ts";

/** Keeps only what is asked for in memory: a full ring has some 5,000 records. */
export type Wanted = (record: RingRecord) => boolean;

/** The wanted records of disk and memory, oldest first; of those that count equal decisions the newest alone. */
export async function readRecords(
  box: Pick<BlackBox, "path" | "pending">,
  wanted: Wanted,
  log: Log,
): Promise<readonly RingRecord[]> {
  // Before the file: what is written meanwhile is found twice, and not missed.
  const pending = box.pending().filter(wanted);
  const latest = new Map<number, RingRecord>();
  const add = (record: RingRecord): void => {
    const first = record.r ?? record.n;
    const known = latest.get(first);
    if (known === undefined || (known.c ?? 1) <= (record.c ?? 1)) latest.set(first, record);
  };
  try {
    for await (const { json } of readLines(box.path)) {
      const record = recordOf(json);
      if (record !== undefined && wanted(record)) add(record);
    }
  } catch (error) {
    log.warn("cannot read the black box", { path: box.path, error: describeError(error) });
  }
  for (const record of pending) add(record);
  return [...latest.values()].toSorted(inOrder);
}

/** By boot, then by the time since it, then as they were written. */
const inOrder = (left: RingRecord, right: RingRecord): number =>
  left.b[0] - right.b[0] || left.t[0] - right.t[0] || (left.r ?? left.n) - (right.r ?? right.n);

/** @returns `undefined` for a line of another format, which a later version may have written */
function recordOf(json: string): RingRecord | undefined {
  try {
    const record = JSON.parse(json) as Partial<RingRecord>;
    const { n, b, t, d } = record;
    const isWhole = typeof n === "number" && isPair(b) && isPair(t) && typeof d === "object" && d !== null;
    return isWhole && typeof d.kind === "string" ? (record as RingRecord) : undefined;
  } catch {
    ignore("a line with a right checksum and no JSON is of another format");
    return undefined;
  }
}

const isPair = (value: unknown): boolean => Array.isArray(value) && value.length === 2 && typeof value[0] === "number";
