import { cancelled, rejectOnAbort } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, type Log, millis, NEVER } from "@picolet/protocol/ports.ts";
import { decodeBatch, type TelemetryBatch } from "@picolet/protocol/telemetry/batch.ts";
import type { TelemetryDelivery } from "@picolet/protocol/telemetry/stream-messages.ts";
import { TelemetryDatabase } from "./telemetry-database.ts";

export interface TelemetryStoreInit {
  /** A file, or `:memory:`. */
  readonly path: string;
  readonly maxBytes: number;
  readonly maxAgeMs: number;
  /** Names of the exporters. A batch that one of them has not sent yet is not dropped. */
  readonly exporters: readonly string[];
}

/** One batch as it is stored. */
export interface StoredBatch {
  readonly id: number;
  readonly node: string;
  readonly baseUs: number;
  readonly isEstimated: boolean;
  /** As it was put. */
  readonly body: Uint8Array;
  /** Decoded when it is first read. @throws `invalid` */
  readonly batch: TelemetryBatch;
}

/** All may be left out. Times in microseconds since 1970. */
export interface TelemetryQuery {
  readonly node: string;
  readonly namespace?: string;
  readonly pod?: string;
  readonly sinceUs?: number;
  readonly untilUs?: number;
}

interface Arrival {
  readonly node: string;
  readonly queue: string;
  readonly delivery: TelemetryDelivery;
  readonly batch: TelemetryBatch;
}

interface Waiting {
  readonly arrivals: readonly Arrival[];
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** Bytes that SQLite takes around a batch, with its place in the index. */
const ROW_BYTES = 160;
/** Arrivals of the whole fleet within it are one transaction, with one fsync. */
const GATHER = millis(20);
/** Queues remembered of a board: lives of its agent that ended before they had sent all they had. */
const MAX_QUEUES = 64;
/** Batches that are dropped at once. */
const LOOK = 256;
/** A board that has more than this part of a full store loses its own oldest first, not the others'. */
const NODE_SHARE = 1 / 8;
/**
 * Bounds arrivals that wait for room: those of one read of each of a thousand boards. Beyond it boards must come again.
 */
const MAX_WAITING = 1024;

/**
 * The newest telemetry of the boards, in SQLite. It is bounded by size and age: the oldest goes first, but nothing that
 * an exporter has not sent; then boards wait, and keep what they have. Without a file it lives as long as the hub, and
 * what exporters have not sent yet counts as not received.
 */
export class TelemetryStore implements Disposable {
  readonly #database: TelemetryDatabase;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #init: TelemetryStoreInit;
  readonly #exported = new Map<string, number>();
  #bytes: number;
  readonly #bytesOf = new Map<string, number>();
  #lastId: number;
  #waiting: Waiting[] = [];
  #isWriting = false;
  #isClosed = false;
  #isFull = false;
  #dropped = 0;
  /** Resolvers of callers that wait for new batches, or for the progress of exporters. */
  readonly #changed = new Set<() => void>();

  /** @throws `unavailable` when the file cannot be opened, `corrupt` when it is another's */
  constructor({ clock, log }: { readonly clock: Clock; readonly log: Log }, init: TelemetryStoreInit) {
    this.#clock = clock;
    this.#log = log;
    this.#init = init;
    this.#database = new TelemetryDatabase(init.path);
    const size = this.#database.get("SELECT sum(length(body)) AS bytes, count(*) AS count, max(id) AS id FROM batches");
    this.#bytes = Number(size?.bytes ?? 0) + ROW_BYTES * Number(size?.count ?? 0);
    const sizes = "SELECT node, sum(length(body)) AS bytes, count(*) AS count FROM batches GROUP BY node";
    for (const { node, bytes, count } of this.#database.all(sizes)) {
      this.#bytesOf.set(String(node), Number(bytes) + ROW_BYTES * Number(count));
    }
    this.#lastId = Number(size?.id ?? 0);
    for (const name of init.exporters) {
      const row = this.#database.get("SELECT id FROM exporters WHERE name = ?", name);
      this.#exported.set(name, Number(row?.id ?? 0));
    }
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Batches that went for size or age, since the hub's start. */
  get dropped(): number {
    return this.#dropped;
  }

  /** True when stored batches survive the hub. */
  get isDurable(): boolean {
    return this.#init.path !== ":memory:";
  }

  /** The last sequence of a board's queue that is here. */
  received(node: string, queue: string): number {
    const row = this.#database.get("SELECT sequence FROM cursors WHERE node = ? AND queue = ?", node, queue);
    return Number(row?.sequence ?? 0);
  }

  /**
   * Resolves when these will not be lost: they are on the disk, or, without one, with all exporters. What came before
   * is passed over.
   * @throws `resource_exhausted`, retryable, when too many wait already; `cancelled`
   */
  async put(
    node: string,
    queue: string,
    deliveries: readonly (TelemetryDelivery & { readonly decoded: TelemetryBatch })[],
    signal: AbortSignal,
  ): Promise<void> {
    const arrivals = deliveries.map(({ decoded, ...delivery }) => ({ node, queue, delivery, batch: decoded }));
    if (this.#waiting.length >= MAX_WAITING) {
      throw new PicoletError("resource_exhausted", "the hub has no room for telemetry now", { retryable: true });
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting: Waiting = { arrivals, resolve, reject };
    this.#waiting.push(waiting);
    this.#write();
    try {
      await rejectOnAbort(promise, signal, "the delivery");
    } finally {
      this.#waiting = this.#waiting.filter((each) => each !== waiting);
    }
    if (!this.isDurable) await this.#untilExported(this.#lastId, signal);
  }

  /** The oldest after `id`, at most so many bytes, at least one if there is one. */
  after(id: number, limit: number, maxBytes: number): readonly StoredBatch[] {
    const rows = this.#database.all("SELECT * FROM batches WHERE id > ? ORDER BY id LIMIT ?", id, limit);
    const taken: StoredBatch[] = [];
    let bytes = 0;
    for (const row of rows) {
      bytes += (row.body as Buffer).length;
      if (taken.length > 0 && bytes > maxBytes) break;
      taken.push(storedOf(row));
    }
    return taken;
  }

  /** Batches of one node, in the order in which they came, a few at a time. */
  *query({
    node,
    namespace,
    pod,
    sinceUs = 0,
    untilUs = Number.MAX_SAFE_INTEGER,
  }: TelemetryQuery): Iterable<StoredBatch> {
    let id = 0;
    for (;;) {
      const rows = this.#database.all(
        "SELECT * FROM batches WHERE node = ? AND id > ? AND toUs >= ? AND fromUs <= ? " +
          "AND (? IS NULL OR namespace = ?) AND (? IS NULL OR pod = ?) ORDER BY id LIMIT 8",
        ...[node, id, sinceUs, untilUs, namespace ?? null, namespace ?? null, pod ?? null, pod ?? null],
      );
      for (const row of rows) yield storedOf(row);
      id = Number(rows.at(-1)?.id ?? 0);
      if (rows.length === 0) return;
    }
  }

  exportedBy(name: string): number {
    return this.#exported.get(name) ?? 0;
  }

  /** An exporter has sent everything up to `id` on. */
  exported(name: string, id: number): void {
    this.#exported.set(name, id);
    const sql = "INSERT INTO exporters (name, id) VALUES (?, ?) ON CONFLICT DO UPDATE SET id = excluded.id";
    this.#database.run(sql, name, id);
    this.#notify();
    if (this.#waiting.length > 0) this.#write();
  }

  /** Resolves when there is a batch after `id`. Rejects with `cancelled` when `signal` aborts. */
  async more(id: number, signal: AbortSignal): Promise<void> {
    while (this.#lastId <= id) await this.#change(signal);
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    for (const { reject } of this.#waiting.splice(0)) reject(cancelled("the delivery"));
    this.#database[Symbol.dispose]();
  }

  async #untilExported(id: number, signal: AbortSignal): Promise<void> {
    while (Math.min(id, ...this.#exported.values()) < id) await this.#change(signal);
  }

  async #change(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#changed.add(resolve);
    try {
      await rejectOnAbort(promise, signal, "the wait");
    } finally {
      this.#changed.delete(resolve);
    }
  }

  #notify(): void {
    const waiting = [...this.#changed];
    this.#changed.clear();
    for (const wake of waiting) wake();
  }

  #write(): void {
    if (this.#isWriting) return;
    this.#isWriting = true;
    this.#clock.sleep(GATHER, NEVER).then(() => {
      this.#isWriting = false;
      if (!this.#isClosed) this.#writeAll();
    }, ignore("it is never aborted"));
  }

  #writeAll(): void {
    const waiting = this.#waiting;
    if (waiting.length === 0 || !this.#hasRoom(waiting)) return;
    this.#waiting = [];
    const failure = this.#store(waiting);
    // One board's batch that the database does not take keeps no other's out. A disk that is full refuses all.
    if (failure === undefined || waiting.length === 1 || /^SQLITE_(FULL|IOERR)/.test(errnoOf(failure))) {
      settle(waiting, failure);
    } else for (const each of waiting) settle([each], this.#store([each]));
    this.#notify();
  }

  /** In one transaction. @returns why it failed */
  #store(waiting: readonly Waiting[]): unknown {
    const before = { bytes: this.#bytes, lastId: this.#lastId };
    const added: { readonly node: string; readonly bytes: number }[] = [];
    try {
      this.#database.durably(() => {
        for (const { arrivals } of waiting) {
          for (const arrival of arrivals) added.push({ node: arrival.node, bytes: this.#insert(arrival) });
        }
      });
    } catch (error) {
      this.#bytes = before.bytes;
      this.#lastId = before.lastId;
      return error ?? new PicoletError("internal", "the transaction failed");
    }
    for (const { node, bytes } of added) this.#bytesOf.set(node, (this.#bytesOf.get(node) ?? 0) + bytes);
    return undefined;
  }

  /** Drops what is too old, and the oldest while there is too much. @returns false: exporters have to go on first */
  #hasRoom(waiting: readonly Waiting[]): boolean {
    const bytes = waiting
      .flatMap(({ arrivals }) => arrivals)
      .reduce((sum, { delivery }) => sum + delivery.batch.length + ROW_BYTES, 0);
    const exported = Math.min(this.#lastId, ...this.#exported.values());
    this.#dropOld(exported);
    while (this.#bytes + bytes > this.#init.maxBytes && this.#bytes > 0) {
      const [largest, most] = [...this.#bytesOf].reduce((a, b) => (b[1] > a[1] ? b : a), ["", 0]);
      const isTooLarge = most > this.#init.maxBytes * NODE_SHARE;
      const own = isTooLarge ? this.#oldest("node = ? AND id <= ?", largest, exported) : [];
      const rows = own.length > 0 ? own : this.#oldest("id <= ?", exported);
      if (rows.length === 0) break;
      this.#drop(rows, this.#bytes + bytes - this.#init.maxBytes);
    }
    const hasRoom = this.#bytes + bytes <= this.#init.maxBytes || this.#bytes === 0;
    if (!hasRoom && !this.#isFull) {
      this.#log.warn("no more telemetry is taken from boards until what is here has been sent on", {
        bytes: this.#bytes,
        maxBytes: this.#init.maxBytes,
      });
    }
    this.#isFull = !hasRoom;
    return hasRoom;
  }

  #oldest(condition: string, ...values: readonly unknown[]): readonly Record<string, unknown>[] {
    const columns = "SELECT id, node, receivedMs, length(body) AS bytes FROM batches";
    return this.#database.all(`${columns} WHERE ${condition} ORDER BY id LIMIT ?`, ...values, LOOK);
  }

  #dropOld(exported: number): void {
    const oldest = this.#clock.wall().getTime() - this.#init.maxAgeMs;
    const rows = this.#oldest("id <= ?", exported).filter(({ receivedMs }) => Number(receivedMs) < oldest);
    this.#drop(rows, Number.POSITIVE_INFINITY);
  }

  #drop(rows: readonly Record<string, unknown>[], bytes: number): void {
    let freed = 0;
    const gone: number[] = [];
    for (const row of rows) {
      if (freed >= bytes) break;
      const size = Number(row.bytes) + ROW_BYTES;
      freed += size;
      gone.push(Number(row.id));
      const node = String(row.node);
      const left = (this.#bytesOf.get(node) ?? 0) - size;
      if (left > 0) this.#bytesOf.set(node, left);
      else this.#bytesOf.delete(node);
    }
    if (gone.length === 0) return;
    this.#database.run("DELETE FROM batches WHERE id IN (SELECT value FROM json_each(?))", JSON.stringify(gone));
    this.#dropped += gone.length;
    this.#bytes -= freed;
  }

  /** @returns the bytes that it added */
  #insert({ node, queue, delivery, batch }: Arrival): number {
    const { sequence, baseUs, isEstimated, batch: body } = delivery;
    if (sequence <= this.received(node, queue)) return 0;
    const nowMs = this.#clock.wall().getTime();
    const { namespace, pod } = batch.origin;
    const [fromUs, toUs] = spanOf(batch, baseUs);
    this.#lastId += 1;
    this.#database.run(
      "INSERT INTO batches (id, node, namespace, pod, receivedMs, baseUs, isEstimated, fromUs, toUs, body) " +
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      ...[this.#lastId, node, namespace, pod, nowMs, baseUs, isEstimated ? 1 : 0, fromUs, toUs, body],
    );
    this.#bytes += body.length + ROW_BYTES;
    this.#database.run(
      "INSERT INTO cursors (node, queue, sequence, receivedMs) VALUES (?, ?, ?, ?) " +
        "ON CONFLICT DO UPDATE SET sequence = excluded.sequence, receivedMs = excluded.receivedMs",
      ...[node, queue, sequence, nowMs],
    );
    if (sequence === 1) this.#forgetQueues(node);
    return body.length + ROW_BYTES;
  }

  #forgetQueues(node: string): void {
    this.#database.run(
      "DELETE FROM cursors WHERE node = ? AND queue NOT IN " +
        "(SELECT queue FROM cursors WHERE node = ? ORDER BY receivedMs DESC LIMIT ?)",
      ...[node, node, MAX_QUEUES],
    );
  }
}

function settle(waiting: readonly Waiting[], cause: unknown): void {
  if (cause === undefined) {
    for (const { resolve } of waiting) resolve();
    return;
  }
  const failure = new PicoletError("unavailable", "cannot keep telemetry", { cause, retryable: true });
  for (const { reject } of waiting) reject(failure);
}

function storedOf({ id, node, baseUs, isEstimated, body }: Record<string, unknown>): StoredBatch {
  let batch: TelemetryBatch | undefined;
  return {
    id: Number(id),
    node: String(node),
    baseUs: Number(baseUs),
    isEstimated: isEstimated === 1,
    body: body as Buffer,
    get batch() {
      batch ??= decodeBatch(body as Buffer);
      return batch;
    },
  };
}

/** Microseconds since 1970 of the first and the last record. */
function spanOf({ records }: TelemetryBatch, baseUs: number): readonly [from: number, to: number] {
  const times = records.map(({ record, stampUs }) =>
    record.timeNs === undefined ? baseUs + stampUs : Number(record.timeNs / 1000n),
  );
  if (times.length === 0) return [baseUs, baseUs];
  return [Math.min(...times), Math.max(...times)];
}
