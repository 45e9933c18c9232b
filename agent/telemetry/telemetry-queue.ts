import { renameSync, rmSync } from "node:fs";
import { describeError } from "../../protocol/errors.ts";
import type { Log } from "../../protocol/ports.ts";
import type { OutgoingBatch } from "../core/outgoing-telemetry.ts";
import { type BoardTime, type BootOffset, bootOffsets, type Life } from "./board-time.ts";
import { prepareQueue, type QueueDatabase, type QueueDatabases } from "./queue-database.ts";

/** A batch that is closed: nothing comes to it any more. */
export interface ClosedBatch {
  readonly id: number;
  readonly sequence: number;
  /** `namespace/name`. */
  readonly pod: string;
  /** Of the first record, by the monotonic clock. */
  readonly baseUs: number;
  /** The same by the wall clock; undefined: it was not known. */
  readonly wallUs: number | undefined;
  readonly records: number;
  readonly body: Uint8Array;
}

export interface QueueFigures {
  readonly batches: number;
  readonly records: number;
  readonly bytes: number;
}

export interface TelemetryQueueComponents {
  readonly databases: QueueDatabases;
  readonly time: BoardTime;
  readonly log: Log;
}

export interface TelemetryQueueInit {
  readonly path: string;
  /** Of batches, each with ROW_BYTES. */
  readonly maxBytes: number;
  readonly maxAgeUs: number;
  /** Of this life of the agent: 16 hexadecimal digits. */
  readonly queue: string;
}

/** What SQLite keeps around a batch. */
const ROW_BYTES = 64;
/** Pages that are partly full, the log, and what is deleted while the new is written. */
const ROOM_BYTES = 2 * 1024 * 1024;
/** As much of the quota is dropped at least: each time the oldest of one pod are looked for. */
const DROPPED_SHARE = 32;
/** Batches looked at together, when some are to go. */
const LOOK = 64;
/** Senders remembered: five runs each of 200 containers. The one that was silent longest is forgotten. */
const MAX_RUNS = 1024;
/** What was acknowledged is deleted with the next write, or when it has grown to so many bytes. */
const MAX_ACKNOWLEDGED_BYTES = 1024 * 1024;

/**
 * Batches on the disk, the oldest first, in a database of their own. Bounded: when it is full the oldest batches of the
 * pod that takes most room go first, so that nobody pushes out another's; so does what is too old.
 */
export class TelemetryQueue implements Disposable {
  readonly #components: TelemetryQueueComponents;
  readonly #init: TelemetryQueueInit;
  #database: QueueDatabase | undefined;
  /** Of this agent, once it has written; its row. */
  #life: number | undefined;
  /** Its row says what time it was. */
  #isTimed = false;
  #pods = new Map<string, QueueFigures>();
  #acknowledged = 0;
  #acknowledgedBytes = 0;
  /** What may be on its way to the hub is not dropped. */
  #sent = 0;
  #lastId = 0;
  #dropped = 0;

  /** @throws whatever keeps the file from being opened; a damaged one is set aside */
  constructor(components: TelemetryQueueComponents, init: TelemetryQueueInit) {
    this.#components = components;
    this.#init = init;
    this.#open();
  }

  get figures(): QueueFigures {
    const sum = { batches: 0, records: 0, bytes: 0 };
    for (const { batches, records, bytes } of this.#pods.values()) {
      sum.batches += batches;
      sum.records += records;
      sum.bytes += bytes;
    }
    return sum;
  }

  /** Records, since the queue was made: pushed out by newer ones, or too old. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Of the newest batch; later ones have higher ids. */
  get lastId(): number {
    return this.#lastId;
  }

  /** The last handover of a run that is in the queue, or was; 0: none. */
  numberOf(run: string): number {
    const row = this.#mustBeOpen().row("SELECT number FROM runs WHERE run = ?", run);
    return Number(row?.number ?? 0);
  }

  /**
   * On the disk when it returns. @param runs what was taken of senders up to now
   * @throws what SQLite throws; nothing has changed then
   */
  store(batches: readonly ClosedBatch[], runs: ReadonlyMap<string, number>): void {
    const database = this.#mustBeOpen();
    const before = { pods: new Map(this.#pods), dropped: this.#dropped, life: this.#life, isTimed: this.#isTimed };
    try {
      database.durably(() => {
        this.#deleteAcknowledged();
        this.#dropOld();
        const life = this.#writeLife();
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
      // Taken back by SQLite, so here too.
      this.#pods = before.pods;
      this.#dropped = before.dropped;
      this.#life = before.life;
      this.#isTimed = before.isTimed;
      throw error;
    }
    this.#acknowledgedBytes = 0;
    this.#lastId = batches.at(-1)?.id ?? this.#lastId;
  }

  /** The oldest after `after`, all of one life. */
  pending(after: number, limit: number): readonly OutgoingBatch[] {
    const rows = this.#mustBeOpen().rows(
      "SELECT b.id, b.life, l.queue, l.boot, b.sequence, b.baseUs, b.wallUs, b.body FROM batches b " +
        "JOIN lives l ON l.id = b.life WHERE b.id > ? ORDER BY b.id LIMIT ?",
      Math.max(after, this.#acknowledged),
      limit,
    );
    const [first] = rows;
    if (first === undefined) return [];
    const offsets = this.#offsets();
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

  /** Nothing is on its way any more. */
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
    this.#pods = figuresByPod(database, Number.MAX_SAFE_INTEGER);
  }

  #insert(life: number, { id, sequence, pod, baseUs, wallUs = 0, records, body }: ClosedBatch): void {
    this.#mustBeOpen().run(
      "INSERT INTO batches (id, life, sequence, pod, baseUs, wallUs, records, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      ...[id, life, sequence, pod, baseUs, wallUs, records, Buffer.from(body)],
    );
    const old = this.#pods.get(pod) ?? { batches: 0, records: 0, bytes: 0 };
    const bytes = old.bytes + body.length + ROW_BYTES;
    this.#pods.set(pod, { batches: old.batches + 1, records: old.records + records, bytes });
  }

  /** Once, and once more when the time is known, which then is known of all that this boot has written. */
  #writeLife(): number {
    const database = this.#mustBeOpen();
    const { time } = this.#components;
    const nowUs = time.nowUs();
    const wallUs = time.wallUs();
    const offset = wallUs === undefined ? null : wallUs - nowUs;
    if (this.#life !== undefined) {
      if (offset !== null && !this.#isTimed) {
        database.run("UPDATE lives SET lastUs = ?, offsetUs = ? WHERE id = ?", nowUs, offset, this.#life);
        this.#isTimed = true;
      }
      return this.#life;
    }
    this.#isTimed = offset !== null;
    database.run("DELETE FROM lives WHERE id NOT IN (SELECT DISTINCT life FROM batches)");
    const last = database.row("SELECT max(id) AS id FROM lives")?.id;
    const id = Number(last ?? 0) + 1;
    const values = [id, this.#init.queue, time.bootId, offset, nowUs];
    database.run("INSERT INTO lives (id, queue, boot, offsetUs, lastUs) VALUES (?, ?, ?, ?, ?)", ...values);
    this.#life = id;
    return id;
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
      // It goes with the next write; until then it is only sent again after a restart, and known to the hub.
      this.#components.log.debug("cannot delete telemetry that the hub has", { error: describeError(error) });
    }
  }

  #deleteAcknowledged(): void {
    const database = this.#mustBeOpen();
    const gone = figuresByPod(database, this.#acknowledged);
    if (gone.size === 0) return;
    database.run("DELETE FROM batches WHERE id <= ?", this.#acknowledged);
    for (const [pod, figures] of gone) this.#subtract(pod, figures);
  }

  #subtract(pod: string, { batches, records, bytes }: QueueFigures): void {
    const old = this.#pods.get(pod);
    if (old === undefined || old.batches <= batches) this.#pods.delete(pod);
    else {
      const left = { batches: old.batches - batches, records: old.records - records, bytes: old.bytes - bytes };
      this.#pods.set(pod, left);
    }
  }

  /** Of whoever has most, the newcomer's share counted. */
  #makeRoom(newcomer: string, bytes: number): void {
    const { maxBytes } = this.#init;
    let missing = this.figures.bytes + bytes - maxBytes;
    if (missing <= 0) return;
    missing = Math.max(missing, Math.floor(maxBytes / DROPPED_SHARE));
    while (missing > 0) {
      const weights = new Map([...this.#pods].map(([pod, figures]) => [pod, figures.bytes]));
      if (weights.has(newcomer)) weights.set(newcomer, (weights.get(newcomer) ?? 0) + bytes);
      const [heaviest] = [...weights].toSorted(([, a], [, b]) => b - a);
      if (heaviest === undefined) return;
      const freed = this.#dropOldest(heaviest[0], missing);
      if (freed === 0) return;
      missing -= freed;
    }
  }

  /** @returns bytes; 0: the rest of it is on its way */
  #dropOldest(pod: string, bytes: number): number {
    const rows = this.#mustBeOpen().rows(
      "SELECT id, records, length(body) AS bytes FROM batches WHERE pod = ? AND id > ? ORDER BY id LIMIT ?",
      ...[pod, Math.max(this.#sent, this.#acknowledged), LOOK],
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
    this.#subtract(pod, { batches: 1, records, bytes: body + ROW_BYTES });
    this.#dropped += records;
    return body + ROW_BYTES;
  }

  /** The oldest come first, by what is known of their time. */
  #dropOld(): void {
    const offsets = this.#offsets();
    const nowUs = this.#wallUs();
    for (;;) {
      const rows = this.#mustBeOpen().rows(
        "SELECT b.id, b.pod, b.records, length(b.body) AS bytes, b.baseUs, b.wallUs, l.boot FROM batches b " +
          "JOIN lives l ON l.id = b.life WHERE b.id > ? ORDER BY b.id LIMIT ?",
        ...[Math.max(this.#sent, this.#acknowledged), LOOK],
      );
      const old = rows.filter((row) => timeOf(row, offsets).baseUs < nowUs - this.#init.maxAgeUs);
      for (const row of old) this.#drop(String(row.pod), row);
      if (old.length < LOOK) return;
    }
  }

  /** Without anybody's word the boot counts as the epoch: differences within it are right. */
  #wallUs(): number {
    const { time } = this.#components;
    return time.wallUs() ?? time.nowUs();
  }

  #offsets(): ReadonlyMap<string, BootOffset> {
    const { time } = this.#components;
    const lives = this.#mustBeOpen().rows(
      "SELECT id, queue, boot, offsetUs, max(lastUs, coalesce((SELECT max(baseUs) FROM batches WHERE life = lives.id), 0)) " +
        "AS lastUs FROM lives ORDER BY id",
    );
    const offsetUs = this.#wallUs() - time.nowUs();
    const isEstimated = time.wallUs() === undefined;
    return bootOffsets(lives as unknown as readonly Life[], { boot: time.bootId, offsetUs, isEstimated });
  }
}

function timeOf(
  row: Record<string, unknown>,
  offsets: ReadonlyMap<string, BootOffset>,
): { baseUs: number; isEstimated: boolean } {
  const wallUs = Number(row.wallUs);
  if (wallUs > 0) return { baseUs: wallUs, isEstimated: false };
  const { offsetUs, isEstimated } = offsets.get(String(row.boot)) ?? { offsetUs: 0, isEstimated: true };
  return { baseUs: Math.max(0, offsetUs + Number(row.baseUs)), isEstimated };
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

function figuresByPod(database: QueueDatabase, upTo: number): Map<string, QueueFigures> {
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

/** One is kept, to be looked at. */
function setAside(path: string): void {
  const aside = `${path}.damaged`;
  for (const companion of ["-wal", "-shm", "-journal"]) rmSync(path + companion, { force: true });
  rmSync(aside, { recursive: true, force: true });
  renameSync(path, aside);
}
