import { encodeBatch, MAX_BATCH_BYTES, MAX_BATCH_RECORDS } from "@picolet/protocol/telemetry/batch.ts";
import { recordSize, type StampedRecord, type TelemetryOrigin } from "@picolet/protocol/telemetry/records.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { BoardTime } from "./board-time.ts";
import type { TelemetryHandover } from "./handover.ts";
import type { ClosedBatch } from "./telemetry-queue.ts";

/**
 * Bounds names and labels in a batch, enough for 64 labels. More labels are left out, so that each batch has room for
 * records.
 */
const MAX_ORIGIN_BYTES = 12 * KIBIBYTE;
const ROOM_BYTES = MAX_BATCH_BYTES - MAX_ORIGIN_BYTES;

interface OpenBatch {
  readonly origin: TelemetryOrigin;
  readonly records: StampedRecord[];
  bytes: number;
  /** By run, the last handover that is completely in this batch or in earlier ones. */
  readonly runs: Map<string, number>;
}

export interface ContainerBatch extends ClosedBatch {
  readonly runs: ReadonlyMap<string, number>;
  /** By `recordSize`. */
  readonly size: number;
}

/** Collects records in memory, one open batch for each container. */
export class BatchBuilder {
  readonly #open = new Map<string, OpenBatch>();
  #bytes = 0;

  /** By `recordSize`. */
  get bytes(): number {
    return this.#bytes;
  }

  get records(): number {
    let sum = 0;
    for (const { records } of this.#open.values()) sum += records.length;
    return sum;
  }

  /** @returns batches that it filled */
  add({ origin, run, number, records }: TelemetryHandover): OpenBatch[] {
    const key = JSON.stringify([origin.namespace, origin.pod, origin.uid, origin.container]);
    const full: OpenBatch[] = [];
    let batch = this.#open.get(key) ?? openBatch(origin);
    for (const stamped of records) {
      const size = recordSize(stamped.record);
      if (batch.bytes + size > ROOM_BYTES || batch.records.length >= MAX_BATCH_RECORDS) {
        full.push(batch);
        batch = openBatch(origin);
      }
      batch.records.push(stamped);
      batch.bytes += size;
      this.#bytes += size;
    }
    batch.runs.set(run, number);
    this.#open.set(key, batch);
    for (const each of full) this.#bytes -= each.bytes;
    return full;
  }

  /** Removes and returns all open batches. */
  take(): OpenBatch[] {
    const batches = [...this.#open.values()].filter(({ records }) => records.length > 0);
    this.#open.clear();
    this.#bytes = 0;
    return batches;
  }
}

const openBatch = (origin: TelemetryOrigin): OpenBatch => ({
  origin: { ...origin, labels: fittingLabels(origin) },
  records: [],
  bytes: 0,
  runs: new Map(),
});

function fittingLabels({ labels }: TelemetryOrigin): TelemetryOrigin["labels"] {
  let left = MAX_ORIGIN_BYTES - 1024;
  return labels.filter(([name, value]) => {
    left -= 6 + 3 * (name.length + value.length);
    return left >= 0;
  });
}

/** @param place the batch's id and sequence number */
export function closeBatch(
  { origin, records, bytes, runs }: OpenBatch,
  place: { readonly id: number; readonly sequence: number },
  time: BoardTime,
): ContainerBatch {
  const baseUs = records.reduce((least, { stampUs }) => Math.min(least, stampUs), Number.MAX_SAFE_INTEGER);
  const wallUs = time.wallUs();
  return {
    ...place,
    pod: `${origin.namespace}/${origin.pod}`,
    baseUs,
    wallUs: wallUs === undefined ? undefined : wallUs - time.nowUs() + baseUs,
    records: records.length,
    body: encodeBatch(origin, records, baseUs),
    runs,
    size: bytes,
  };
}
