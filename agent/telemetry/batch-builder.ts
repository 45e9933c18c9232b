import { encodeBatch, MAX_BATCH_BYTES, MAX_BATCH_RECORDS } from "@picolet/protocol/telemetry/batch.ts";
import { recordSize, type StampedRecord, type TelemetryOrigin } from "@picolet/protocol/telemetry/records.ts";
import type { BoardTime } from "./board-time.ts";
import type { TelemetryHandover } from "./handover.ts";
import type { ClosedBatch } from "./telemetry-queue.ts";

/**
 * With what stands around them: names, 64 labels of a pod. What is more is left out, for a batch must hold a record.
 */
const MAX_ORIGIN_BYTES = 12 * 1024;
const ROOM_BYTES = MAX_BATCH_BYTES - MAX_ORIGIN_BYTES;

interface OpenBatch {
  readonly origin: TelemetryOrigin;
  readonly records: StampedRecord[];
  bytes: number;
  /** Senders whose handovers up to a number are wholly in this batch, or in earlier ones. */
  readonly runs: Map<string, number>;
}

export interface ContainerBatch extends ClosedBatch {
  readonly runs: ReadonlyMap<string, number>;
  /** As its records were counted. */
  readonly size: number;
}

/** Records in memory, a batch a container, until each is closed. */
export class BatchBuilder {
  readonly #open = new Map<string, OpenBatch>();
  #bytes = 0;

  /** As `recordSize` counts. */
  get bytes(): number {
    return this.#bytes;
  }

  get records(): number {
    let sum = 0;
    for (const { records } of this.#open.values()) sum += records.length;
    return sum;
  }

  /** @returns batches that are full by it */
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

  /** All of them; none is open then. */
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

/** @param place its id and its sequence */
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
