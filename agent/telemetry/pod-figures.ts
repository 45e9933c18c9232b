import type { QueueDatabase } from "./queue-database.ts";

/** SQLite's overhead for one batch. */
export const ROW_BYTES = 64;

export interface QueueFigures {
  readonly batches: number;
  readonly records: number;
  readonly bytes: number;
}

/** Counts each pod's telemetry in the queue. */
export class PodFigures {
  readonly #pods: Map<string, QueueFigures>;

  constructor(pods: ReadonlyMap<string, QueueFigures>) {
    this.#pods = new Map(pods);
  }

  copy(): PodFigures {
    return new PodFigures(this.#pods);
  }

  get sum(): QueueFigures {
    const sum = { batches: 0, records: 0, bytes: 0 };
    for (const { batches, records, bytes } of this.#pods.values()) {
      sum.batches += batches;
      sum.records += records;
      sum.bytes += bytes;
    }
    return sum;
  }

  /** @returns the pod with most bytes; `bytes` count for the newcomer */
  heaviest(newcomer: string, bytes: number): string | undefined {
    const weights = new Map([...this.#pods].map(([pod, figures]) => [pod, figures.bytes]));
    if (weights.has(newcomer)) weights.set(newcomer, (weights.get(newcomer) ?? 0) + bytes);
    const [heaviest] = [...weights].toSorted(([, a], [, b]) => b - a);
    return heaviest?.[0];
  }

  add(pod: string, { batches, records, bytes }: QueueFigures): void {
    const old = this.#pods.get(pod) ?? { batches: 0, records: 0, bytes: 0 };
    const sum = { batches: old.batches + batches, records: old.records + records, bytes: old.bytes + bytes };
    this.#pods.set(pod, sum);
  }

  subtract(pod: string, { batches, records, bytes }: QueueFigures): void {
    const old = this.#pods.get(pod);
    if (old === undefined || old.batches <= batches) this.#pods.delete(pod);
    else {
      const left = { batches: old.batches - batches, records: old.records - records, bytes: old.bytes - bytes };
      this.#pods.set(pod, left);
    }
  }
}

/** Reads the figures of batches up to `upTo` from the database. */
export function figuresByPod(database: QueueDatabase, upTo: number): Map<string, QueueFigures> {
  const rows = database.rows(
    "SELECT pod, count(*) AS batches, sum(records) AS records, sum(length(body)) AS bytes FROM batches " +
      "WHERE id <= ? GROUP BY pod",
    upTo,
  );
  return new Map(
    rows.map((row) => {
      const batches = Number(row.batches);
      const bytes = Number(row.bytes) + batches * ROW_BYTES;
      return [String(row.pod), { batches, records: Number(row.records), bytes }];
    }),
  );
}
