import { type BoardTime, type BootOffset, bootOffsets, type Life } from "./board-time.ts";
import type { QueueDatabase } from "./queue-database.ts";

/** The row of this run of the agent in the queue's file. */
export interface WrittenLife {
  /** Undefined: there is no row yet. */
  readonly id: number | undefined;
  /** True when the row has the wall time. */
  readonly isTimed: boolean;
}

/** Keeps a row for each run of the agent that has written batches, from which the batches get their times. */
export class QueueLives {
  readonly #time: BoardTime;
  readonly #queue: string;
  #id: number | undefined;
  #isTimed = false;

  /** @param queue names this run: 16 hexadecimal digits */
  constructor(time: BoardTime, queue: string) {
    this.#time = time;
    this.#queue = queue;
  }

  get written(): WrittenLife {
    return { id: this.#id, isTimed: this.#isTimed };
  }

  /** Restores the state before a transaction that was rolled back. */
  restore({ id, isTimed }: WrittenLife): void {
    this.#id = id;
    this.#isTimed = isTimed;
  }

  /** Writes the row, and once more when the time is known, which then holds for all batches of this boot. */
  write(database: QueueDatabase): number {
    const time = this.#time;
    const nowUs = time.nowUs();
    const wallUs = time.wallUs();
    const offset = wallUs === undefined ? null : wallUs - nowUs;
    if (this.#id !== undefined) {
      if (offset !== null && !this.#isTimed) {
        database.run("UPDATE lives SET lastUs = ?, offsetUs = ? WHERE id = ?", nowUs, offset, this.#id);
        this.#isTimed = true;
      }
      return this.#id;
    }
    this.#isTimed = offset !== null;
    database.run("DELETE FROM lives WHERE id NOT IN (SELECT DISTINCT life FROM batches)");
    const last = database.row("SELECT max(id) AS id FROM lives")?.id;
    const id = Number(last ?? 0) + 1;
    const values = [id, this.#queue, time.bootId, offset, nowUs];
    database.run("INSERT INTO lives (id, queue, boot, offsetUs, lastUs) VALUES (?, ?, ?, ?, ?)", ...values);
    this.#id = id;
    return id;
  }

  /** While the time is unknown the boot counts as the epoch: differences within the boot are right. */
  get wallUs(): number {
    const time = this.#time;
    return time.wallUs() ?? time.nowUs();
  }

  offsets(database: QueueDatabase): ReadonlyMap<string, BootOffset> {
    const time = this.#time;
    const lives = database.rows(
      "SELECT id, queue, boot, offsetUs, max(lastUs, coalesce((SELECT max(baseUs) FROM batches WHERE life = lives.id), 0)) " +
        "AS lastUs FROM lives ORDER BY id",
    );
    const offsetUs = this.wallUs - time.nowUs();
    const isEstimated = time.wallUs() === undefined;
    return bootOffsets(lives as unknown as readonly Life[], { boot: time.bootId, offsetUs, isEstimated });
  }
}

/** @param row a batch with the boot of its life */
export function timeOf(
  row: Record<string, unknown>,
  offsets: ReadonlyMap<string, BootOffset>,
): { baseUs: number; isEstimated: boolean } {
  const wallUs = Number(row.wallUs);
  if (wallUs > 0) return { baseUs: wallUs, isEstimated: false };
  const { offsetUs, isEstimated } = offsets.get(String(row.boot)) ?? { offsetUs: 0, isEstimated: true };
  return { baseUs: Math.max(0, offsetUs + Number(row.baseUs)), isEstimated };
}
