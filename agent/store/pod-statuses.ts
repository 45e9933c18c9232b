import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { OutgoingStatus, OutgoingStatuses } from "../core/hub/tunnel-ports.ts";
import type { PodStatusRecord, Sequenced, StatusOutbox } from "../core/store/store-ports.ts";
import type { Connection } from "./connection.ts";
import { encode } from "./encoding.ts";
import {
  outgoingOf,
  recordOf,
  SELECT_STATUSES,
  type StatusContents,
  type StatusRow,
  statusRow,
  writeNumber,
  writeStatus,
} from "./status-rows.ts";
import type { Batched } from "./store-file.ts";

export interface PodStatusesComponents {
  readonly file: { use<R>(message: string, work: (connection: Connection) => R): R };
  /** Called when a record waits for the next batch. */
  readonly keepBack: () => void;
  /** Writes what is kept back. */
  readonly flush: () => void;
  /**
   * @returns `isAwaited`: the API server waits for the report that nothing of the pod is left; `isThere`: it has the
   * pod
   */
  readonly known: (pod: RemotePod) => { readonly isAwaited: boolean; readonly isThere: boolean };
}

export type RemotePod = Pick<PodStatusRecord, "uid" | "apiUid" | "namespace" | "name">;

/** Kept back in memory until the next batch: at most one row for each pod, however long the disk is full. */
export class PodStatuses implements StatusOutbox, OutgoingStatuses, Batched {
  readonly #file: PodStatusesComponents["file"];
  readonly #keepBack: () => void;
  readonly #flush: () => void;
  readonly #known: PodStatusesComponents["known"];
  /** `undefined`: to be deleted. */
  readonly #pending = new Map<PodUid, StatusRow | undefined>();
  /** No more than there are pods in the API server; each until that has drawn the consequence. */
  readonly #gone: Map<PodUid, RemotePod & { readonly sequence: number }>;
  readonly #latest: WatchSource<number>;
  readonly #acknowledgements: WatchSource<number>;
  #sequence: number;

  constructor(components: PodStatusesComponents, contents: StatusContents) {
    this.#file = components.file;
    this.#keepBack = components.keepBack;
    this.#flush = components.flush;
    this.#known = components.known;
    this.#sequence = contents.sequence;
    this.#acknowledgements = new WatchSource(contents.acknowledged);
    this.#latest = new WatchSource(contents.sequence);
    this.#gone = new Map(contents.gone.map((row) => [row.uid, row]));
  }

  get latest(): Watch<number> {
    return this.#latest;
  }

  /** The highest sequence up to which all are acknowledged, or were replaced by newer ones. */
  get acknowledged(): Watch<number> {
    return this.#acknowledgements;
  }

  get #acknowledged(): number {
    return this.#acknowledgements.current;
  }

  get gone(): ReadonlyMap<PodUid, string> {
    return new Map([...this.#gone].map(([uid, { apiUid }]) => [uid, apiUid]));
  }

  put(record: PodStatusRecord): void {
    const body = encode(record.status);
    const { uid, apiUid, namespace, name } = record;
    const known = this.#row(uid);
    const isSame = known?.namespace === namespace && known.name === name && known.apiUid === apiUid && !known.gone;
    if (isSame && known.body.equals(body)) return;
    this.#gone.delete(uid);
    this.#set({ uid, apiUid, namespace, name, gone: false, body });
  }

  flush(): void {
    if (this.#pending.size > 0) this.#flush();
  }

  get(uid: PodUid): PodStatusRecord | undefined {
    const row = this.#row(uid);
    return row === undefined || row.gone ? undefined : recordOf(row);
  }

  has(uid: PodUid): boolean {
    if (this.#pending.has(uid)) return this.#pending.get(uid)?.gone === false;
    const row = this.#file.use("cannot read a status", (connection) =>
      connection.row("SELECT gone FROM statuses WHERE uid = ?", uid),
    );
    return row?.gone === 0;
  }

  resend(uid: PodUid): void {
    const row = this.#row(uid);
    if (row !== undefined && !row.gone && row.sequence <= this.#acknowledged) this.#set(row);
  }

  finish(record: PodStatusRecord): void {
    if (this.#gone.has(record.uid)) return;
    if (!this.#known(record).isAwaited) {
      this.delete(record.uid);
      return;
    }
    const { status, ...identity } = record;
    const row = this.#set({ ...identity, gone: true, body: encode(status) });
    this.#gone.set(record.uid, row);
  }

  pending(limit: number): readonly Sequenced<OutgoingStatus>[] {
    const stored = this.#file.use("cannot read the statuses", (connection) =>
      connection
        .rows(
          `${SELECT_STATUSES} WHERE sequence > ? ORDER BY sequence LIMIT ?`,
          this.#acknowledged,
          limit + this.#pending.size,
        )
        .map(statusRow)
        .filter(({ uid }) => !this.#pending.has(uid)),
    );
    return [...stored, ...this.#keptBack()]
      .toSorted((a, b) => a.sequence - b.sequence)
      .slice(0, limit)
      .map((row) => ({ sequence: row.sequence, value: outgoingOf(row) }));
  }

  pendingCount(): number {
    const stored = this.#file.use("cannot count the statuses", (connection) =>
      connection.rows("SELECT uid FROM statuses WHERE sequence > ?", this.#acknowledged),
    );
    return stored.filter(({ uid }) => !this.#pending.has(uid as PodUid)).length + this.#keptBack().length;
  }

  ack(sequence: number, except: ReadonlySet<string>): void {
    const upTo = Math.min(sequence, this.#sequence);
    if (except.size > 0) {
      const refused = this.#rowsUpTo(upTo).filter(({ apiUid }) => except.has(apiUid));
      for (const row of refused.toSorted((a, b) => a.sequence - b.sequence)) {
        const again = this.#set(row);
        if (row.gone) this.#gone.set(row.uid, again);
      }
    }
    if (upTo <= this.#acknowledged) return;
    this.#acknowledgements.set(upTo);
    this.#keepBack();
    this.sweep();
  }

  repeat(uids: ReadonlySet<string>): void {
    const told = this.#rowsUpTo(this.#acknowledged).filter(({ apiUid, gone }) => !gone && uids.has(apiUid));
    for (const row of told.toSorted((a, b) => a.sequence - b.sequence)) this.#set(row);
  }

  /** An API server that was restored from a backup has them again, with just the objects that this node has of them. */
  repeatGone(): void {
    for (const { uid, sequence } of [...this.#gone.values()]) {
      const row = sequence <= this.#acknowledged ? this.#row(uid) : undefined;
      if (row !== undefined) this.#gone.set(uid, this.#set(row));
    }
  }

  /** Drops records of pods that the API server does not have any more. Called when its objects have changed. */
  sweep(): void {
    for (const [uid, pod] of this.#gone) {
      if (pod.sequence <= this.#acknowledged && !this.#known(pod).isThere) this.delete(uid);
    }
  }

  delete(uid: PodUid): void {
    this.#gone.delete(uid);
    if (this.#row(uid) === undefined) return;
    this.#pending.set(uid, undefined);
    this.#keepBack();
  }

  write(connection: Connection): void {
    if (this.#pending.size === 0 && this.#acknowledged === 0) return;
    let isDeleting = false;
    for (const [uid, row] of this.#pending) {
      if (row !== undefined) writeStatus(connection, row);
      else {
        isDeleting = true;
        connection.run("DELETE FROM statuses WHERE uid = ?", uid);
      }
    }
    // The rows themselves tell the sequence, until the one with the highest is deleted.
    if (isDeleting) writeNumber(connection, "statusSequence", this.#sequence);
    writeNumber(connection, "statusAcknowledged", this.#acknowledged);
  }

  written(): void {
    this.#pending.clear();
  }

  /** Lost statuses come again with the pods' next change; `gone` records come again with their objects. */
  rewrite(connection: Connection): void {
    for (const uid of this.#gone.keys()) if (!this.#pending.has(uid)) this.#gone.delete(uid);
    this.write(connection);
    writeNumber(connection, "statusSequence", this.#sequence);
  }

  #set(row: Omit<StatusRow, "sequence">): StatusRow {
    this.#sequence += 1;
    const made = { ...row, sequence: this.#sequence };
    this.#pending.set(row.uid, made);
    this.#keepBack();
    this.#latest.set(this.#sequence);
    return made;
  }

  /** Unreported statuses that are not on disk yet. */
  #keptBack(): StatusRow[] {
    return [...this.#pending.values()].filter(
      (row) => row !== undefined && row.sequence > this.#acknowledged,
    ) as StatusRow[];
  }

  #rowsUpTo(sequence: number): StatusRow[] {
    const stored = this.#file.use("cannot read the statuses", (connection) =>
      connection.rows(`${SELECT_STATUSES} WHERE sequence <= ?`, sequence).map(statusRow),
    );
    const kept = [...this.#pending.values()].filter((row) => row !== undefined);
    return [...stored.filter(({ uid }) => !this.#pending.has(uid)), ...kept.filter((row) => row.sequence <= sequence)];
  }

  #row(uid: PodUid): StatusRow | undefined {
    if (this.#pending.has(uid)) return this.#pending.get(uid);
    return this.#file.use("cannot read a status", (connection) => {
      const columns = connection.row(`${SELECT_STATUSES} WHERE uid = ?`, uid);
      return columns === undefined ? undefined : statusRow(columns);
    });
  }
}
