import { renameSync, rmSync } from "node:fs";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { OutgoingBatch } from "../core/hub/outgoing-telemetry.ts";
import type { BoardTime, BootOffset } from "./board-time.ts";
import { figuresByPod, PodFigures, type QueueFigures, ROW_BYTES } from "./pod-figures.ts";
import { prepareQueue, type QueueDatabase, type QueueDatabases } from "./queue-database.ts";
import { QueueLives, timeOf } from "./queue-lives.ts";

/** A batch to which no records are added. */
export interface ClosedBatch {
  readonly id: number;
  readonly sequence: number;
  /** `namespace/name`. */
  readonly pod: string;
  /** Time of the first record by the monotonic clock. */
  readonly baseUs: number;
  /** The same by the wall clock; undefined: unknown. */
  readonly wallUs: number | undefined;
  readonly records: number;
  readonly body: Uint8Array;
}

export interface TelemetryQueueComponents {
  readonly databases: QueueDatabases;
  readonly time: BoardTime;
  readonly log: Log;
}

export interface TelemetryQueueInit {
  readonly path: string;
  /** Bounds the batches, each with ROW_BYTES. */
  readonly maxBytes: number;
  readonly maxAgeUs: number;
  /** Names this run of the agent: 16 hexadecimal digits. */
  readonly queue: string;
}

/** Room in the file for partly filled pages, the log, and rows deleted in the same transaction as new ones. */
const ROOM_BYTES = 2 * MEBIBYTE;
/** Divides the quota: at least this share is dropped at once, because each time costs a query. */
const DROPPED_SHARE = 32;
/** Bounds the rows of one query for batches to drop. */
const DROP_ROWS = 64;
/** Bounds the known senders: five runs each of 200 containers. The one that was silent longest is forgotten. */
const MAX_RUNS = 1024;
/** Bounds acknowledged batches in the file; they are deleted with the next write, or above this. */
const MAX_ACKNOWLEDGED_BYTES = MEBIBYTE;

/**
 * Keeps batches on the disk in a database of their own, oldest first. When it is full the oldest batches of the pod
 * with most bytes are dropped, so that no pod displaces another's. Batches that are too old are dropped too.
 */
export class TelemetryQueue implements Disposable {
  readonly #components: TelemetryQueueComponents;
  readonly #init: TelemetryQueueInit;
  #database: QueueDatabase | undefined;
  readonly #lives: QueueLives;
  #figures = new PodFigures(new Map());
  #acknowledged = 0;
  #acknowledgedBytes = 0;
  /** Batches up to this id may be on their way to the hub, and are not dropped. */
  #sent = 0;
  #lastId = 0;
  #dropped = 0;

  /** @throws when the file cannot be opened; a damaged one is set aside */
  constructor(components: TelemetryQueueComponents, init: TelemetryQueueInit) {
    this.#components = components;
    this.#init = init;
    this.#lives = new QueueLives(components.time, init.queue);
    this.#open();
  }

  get figures(): QueueFigures {
    return this.#figures.sum;
  }

  /** Records displaced by newer ones or too old, since the queue was made. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Id of the newest batch; ids only grow. */
  get lastId(): number {
    return this.#lastId;
  }

  /** @returns the last handover of the run that ever was in the queue; 0: none */
  numberOf(run: string): number {
    const row = this.#mustBeOpen().row("SELECT number FROM runs WHERE run = ?", run);
    return Number(row?.number ?? 0);
  }

  /**
   * Stores batches on disk. @param runs the last handover taken from each of their senders
   * @throws what SQLite throws; then nothing has changed
   */
  store(batches: readonly ClosedBatch[], runs: ReadonlyMap<string, number>): void {
    const database = this.#mustBeOpen();
    const before = { figures: this.#figures.copy(), dropped: this.#dropped, life: this.#lives.written };
    try {
      database.durably(() => {
        this.#deleteAcknowledged();
        this.#dropOld();
        const life = this.#lives.write(database);
        for (const batch of batches) {
          this.#makeRoom(batch.pod, batch.body.length + ROW_BYTES);
          this.#insert(life, batch);
        }
        for (const [run, number] of runs) {
          const sql = "INSERT OR REPLACE INTO runs (run, number, batch) VALUES (?, ?, ?)";
          database.run(sql, run, number, batches.at(-1)?.id ?? 0);
        }
        const oldest = "SELECT batch FROM runs ORDER BY batch DESC LIMIT 1 OFFSET ?";
        database.run(`DELETE FROM runs WHERE batch <= (${oldest})`, MAX_RUNS);
        if (this.#dropped !== before.dropped) this.#writeDropped();
      });
    } catch (error) {
      // SQLite has rolled back.
      this.#figures = before.figures;
      this.#dropped = before.dropped;
      this.#lives.restore(before.life);
      throw error;
    }
    this.#acknowledgedBytes = 0;
    this.#lastId = batches.at(-1)?.id ?? this.#lastId;
  }

  /** @returns the oldest batches after `after`, all of one run of an agent */
  pending(after: number, limit: number): readonly OutgoingBatch[] {
    const rows = this.#mustBeOpen().rows(
      "SELECT b.id, b.life, l.queue, l.boot, b.sequence, b.baseUs, b.wallUs, b.body FROM batches b " +
        "JOIN lives l ON l.id = b.life WHERE b.id > ? ORDER BY b.id LIMIT ?",
      Math.max(after, this.#acknowledged),
      limit,
    );
    const [first] = rows;
    if (first === undefined) return [];
    const offsets = this.#lives.offsets(this.#mustBeOpen());
    const batches = rows.filter(({ life }) => life === first.life).map((row) => outgoingOf(row, offsets));
    this.#sent = Math.max(this.#sent, batches.at(-1)?.id ?? 0);
    return batches;
  }

  ack(id: number): void {
    this.#acknowledged = Math.max(this.#acknowledged, Math.min(id, this.#lastId));
    const row = this.#mustBeOpen().row(
      "SELECT sum(length(body)) AS bytes FROM batches WHERE id <= ?",
      this.#acknowledged,
    );
    this.#acknowledgedBytes = Number(row?.bytes ?? 0);
    const isAll = this.#acknowledged === this.#lastId && this.#acknowledgedBytes > 0;
    if (isAll || this.#acknowledgedBytes > MAX_ACKNOWLEDGED_BYTES) this.#settle();
  }

  /** No batch is on its way any more. */
  rewind(): void {
    this.#sent = this.#acknowledged;
  }

  [Symbol.dispose](): void {
    this.#database?.[Symbol.dispose]();
    this.#database = undefined;
  }

  #mustBeOpen(): QueueDatabase {
    if (this.#database === undefined) throw new Error("the queue of telemetry is closed");
    return this.#database;
  }

  #open(): void {
    const { databases, log } = this.#components;
    const { path } = this.#init;
    try {
      this.#database = this.#openFile();
    } catch (error) {
      if (!databases.isDamage(error)) throw error;
      log.warn("the queue of telemetry is damaged; it is set aside", { path, error: describeError(error) });
      setAside(path);
      this.#database = this.#openFile();
    }
    this.#load(this.#database);
  }

  #openFile(): QueueDatabase {
    const { path, maxBytes } = this.#init;
    const database = this.#components.databases.open(path, maxBytes + maxBytes / 2 + ROOM_BYTES);
    try {
      prepareQueue(database);
      return database;
    } catch (error) {
      database[Symbol.dispose]();
      throw error;
    }
  }

  #load(database: QueueDatabase): void {
    this.#lastId = Number(database.row("SELECT max(id) AS id FROM batches")?.id ?? 0);
    this.#dropped = Number(database.row("SELECT value FROM meta WHERE name = 'dropped'")?.value ?? 0);
    this.#figures = new PodFigures(figuresByPod(database, Number.MAX_SAFE_INTEGER));
  }

  #insert(life: number, { id, sequence, pod, baseUs, wallUs = 0, records, body }: ClosedBatch): void {
    this.#mustBeOpen().run(
      "INSERT INTO batches (id, life, sequence, pod, baseUs, wallUs, records, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      ...[id, life, sequence, pod, baseUs, wallUs, records, Buffer.from(body)],
    );
    this.#figures.add(pod, { batches: 1, records, bytes: body.length + ROW_BYTES });
  }

  #writeDropped(): void {
    const sql = "INSERT INTO meta (name, value) VALUES ('dropped', ?) ON CONFLICT DO UPDATE SET value = excluded.value";
    this.#mustBeOpen().run(sql, this.#dropped);
  }

  #settle(): void {
    try {
      this.#mustBeOpen().transaction(() => this.#deleteAcknowledged());
      this.#acknowledgedBytes = 0;
    } catch (error) {
      // The next write deletes it. After a restart it would be sent again, and the hub knows it.
      this.#components.log.debug("cannot delete telemetry that the hub has", { error: describeError(error) });
    }
  }

  #deleteAcknowledged(): void {
    const database = this.#mustBeOpen();
    const gone = figuresByPod(database, this.#acknowledged);
    if (gone.size === 0) return;
    database.run("DELETE FROM batches WHERE id <= ?", this.#acknowledged);
    for (const [pod, figures] of gone) this.#figures.subtract(pod, figures);
  }

  /** Drops batches of the pod with most bytes, the newcomer's included. */
  #makeRoom(newcomer: string, bytes: number): void {
    const { maxBytes } = this.#init;
    let missing = this.figures.bytes + bytes - maxBytes;
    if (missing <= 0) return;
    missing = Math.max(missing, Math.floor(maxBytes / DROPPED_SHARE));
    while (missing > 0) {
      const heaviest = this.#figures.heaviest(newcomer, bytes);
      if (heaviest === undefined) return;
      const freed = this.#dropOldest(heaviest, missing);
      if (freed === 0) return;
      missing -= freed;
    }
  }

  /** @returns the freed bytes; 0: all other batches are on their way */
  #dropOldest(pod: string, bytes: number): number {
    const rows = this.#mustBeOpen().rows(
      "SELECT id, records, length(body) AS bytes FROM batches WHERE pod = ? AND id > ? ORDER BY id LIMIT ?",
      ...[pod, Math.max(this.#sent, this.#acknowledged), DROP_ROWS],
    );
    let freed = 0;
    for (const row of rows) {
      if (freed >= bytes) break;
      freed += this.#drop(pod, row);
    }
    return freed;
  }

  #drop(pod: string, row: Record<string, unknown>): number {
    const [id, records, body] = [Number(row.id), Number(row.records), Number(row.bytes)];
    this.#mustBeOpen().run("DELETE FROM batches WHERE id = ?", id);
    this.#figures.subtract(pod, { batches: 1, records, bytes: body + ROW_BYTES });
    this.#dropped += records;
    return body + ROW_BYTES;
  }

  /** Drops batches that are too old, by their best known time. */
  #dropOld(): void {
    const offsets = this.#lives.offsets(this.#mustBeOpen());
    const nowUs = this.#lives.wallUs;
    for (;;) {
      const rows = this.#mustBeOpen().rows(
        "SELECT b.id, b.pod, b.records, length(b.body) AS bytes, b.baseUs, b.wallUs, l.boot FROM batches b " +
          "JOIN lives l ON l.id = b.life WHERE b.id > ? ORDER BY b.id LIMIT ?",
        ...[Math.max(this.#sent, this.#acknowledged), DROP_ROWS],
      );
      const old = rows.filter((row) => timeOf(row, offsets).baseUs < nowUs - this.#init.maxAgeUs);
      for (const row of old) this.#drop(String(row.pod), row);
      if (old.length < DROP_ROWS) return;
    }
  }
}

function outgoingOf(row: Record<string, unknown>, offsets: ReadonlyMap<string, BootOffset>): OutgoingBatch {
  const { id, sequence, queue, body } = row;
  return {
    id: Number(id),
    queue: String(queue),
    sequence: Number(sequence),
    ...timeOf(row, offsets),
    batch: body as Buffer,
  };
}

/** Keeps one damaged file for analysis. */
function setAside(path: string): void {
  const aside = `${path}.damaged`;
  for (const companion of ["-wal", "-shm", "-journal"]) rmSync(path + companion, { force: true });
  rmSync(aside, { recursive: true, force: true });
  renameSync(path, aside);
}
