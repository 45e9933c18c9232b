/** Records as all export formats need them: with their origin and their time. Pure. */
import type { StampedRecord, Tags, TelemetryOrigin, TelemetryRecord } from "@picolet/protocol/telemetry/records.ts";
import type { StoredBatch } from "./telemetry-store.ts";

export interface RecordRow {
  readonly node: string;
  readonly origin: TelemetryOrigin;
  readonly record: TelemetryRecord;
  /** Nanoseconds since 1970. */
  readonly timeNs: bigint;
  /** The board did not know what time it was, and never learnt it. */
  readonly isEstimated: boolean;
  /** The point is a cumulative counter that began then: nanoseconds since 1970; 0: not known. */
  readonly sinceNs?: bigint;
}

/**
 * A time before this is of a component whose board's clock was not set: when it was handed over counts instead.
 * 2020-01-01.
 */
const EARLIEST_NS = 1_577_836_800_000_000_000n;

export function recordRowsOf({ node, baseUs, isEstimated, batch }: StoredBatch): RecordRow[] {
  return batch.records.map((stamped): RecordRow => {
    const own = ownTime(stamped);
    const timeNs = own ?? BigInt(Math.round(baseUs + stamped.stampUs)) * 1000n;
    return {
      node,
      origin: batch.origin,
      record: stamped.record,
      timeNs,
      isEstimated: isEstimated && own === undefined,
    };
  });
}

function ownTime({ record: { timeNs } }: StampedRecord): bigint | undefined {
  return timeNs !== undefined && timeNs >= EARLIEST_NS ? timeNs : undefined;
}

/** Tags of a record's origin; a component's own tags of these names are dropped. */
export const PLACE_TAGS: ReadonlySet<string> = new Set(["node", "namespace", "pod", "container"]);

/** Tags of a record that are its component's own. */
export const ownTags = (tags: Tags): Tags => tags.filter(([name]) => !PLACE_TAGS.has(name));
