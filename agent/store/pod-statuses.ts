import type { PodStatus } from "../../protocol/pod.ts";
import { type PodUid, podUid } from "../../protocol/ports.ts";
import type { PodStatusRecord, Sequenced, StatusOutbox } from "../core/store.ts";
import type { Connection } from "./connection.ts";
import { decode, digestOf, encode } from "./encoding.ts";
import { corrupt } from "./schema.ts";
import type { Batched } from "./store-file.ts";

export interface PodStatusesComponents {
  readonly file: { use<R>(message: string, work: (connection: Connection) => R): R };
  /** Something is kept back for the next batch. */
  readonly keepBack: () => void;
}

export interface StatusContents {
  /** The highest sequence ever given. */
  readonly sequence: number;
  readonly acknowledged: number;
}

interface StatusRow {
  readonly uid: PodUid;
  readonly namespace: string;
  readonly name: string;
  readonly sequence: number;
  readonly body: Buffer;
}

const SELECT_STATUSES = "SELECT uid, namespace, name, sequence, body, digest FROM statuses";

/** Reads every row, for the highest sequence and to find damage. @throws `corrupt` */
export function readStatuses(connection: Connection): StatusContents {
  const meta = new Map<unknown, unknown>();
  for (const { name, value } of connection.each("SELECT name, value FROM meta")) meta.set(name, value);
  let sequence = Number(meta.get("statusSequence") ?? 0);
  const acknowledged = Number(meta.get("statusAcknowledged") ?? 0);
  for (const columns of connection.each(SELECT_STATUSES)) sequence = Math.max(sequence, statusRow(columns).sequence);
  if (acknowledged > sequence) throw corrupt("more statuses are acknowledged than there ever were");
  return { sequence, acknowledged };
}

/** Kept back in memory until the next batch: at most one row for each pod, however long the disk is full. */
export class PodStatuses implements StatusOutbox, Batched {
  readonly #file: PodStatusesComponents["file"];
  readonly #keepBack: () => void;
  /** `undefined`: to be deleted. */
  readonly #pending = new Map<PodUid, StatusRow | undefined>();
  #sequence: number;
  #acknowledged: number;

  constructor(components: PodStatusesComponents, contents: StatusContents) {
    this.#file = components.file;
    this.#keepBack = components.keepBack;
    this.#sequence = contents.sequence;
    this.#acknowledged = contents.acknowledged;
  }

  put({ uid, namespace, name, status }: PodStatusRecord): void {
    const body = encode(status);
    const known = this.#row(uid);
    if (known?.namespace === namespace && known.name === name && known.body.equals(body)) return;
    this.#sequence += 1;
    this.#pending.set(uid, { uid, namespace, name, sequence: this.#sequence, body });
    this.#keepBack();
  }

  get(uid: PodUid): PodStatusRecord | undefined {
    const row = this.#row(uid);
    return row === undefined ? undefined : recordOf(row);
  }

  pending(limit: number): readonly Sequenced<PodStatusRecord>[] {
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
    const kept = [...this.#pending.values()].filter((row) => row !== undefined);
    return [...stored, ...kept.filter(({ sequence }) => sequence > this.#acknowledged)]
      .toSorted((a, b) => a.sequence - b.sequence)
      .slice(0, limit)
      .map((row) => ({ sequence: row.sequence, value: recordOf(row) }));
  }

  ack(sequence: number): void {
    if (sequence <= this.#acknowledged) return;
    this.#acknowledged = Math.min(sequence, this.#sequence);
    this.#keepBack();
  }

  delete(uid: PodUid): void {
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

  /** What was stored already comes again with the pods' next change. */
  rewrite(connection: Connection): void {
    this.write(connection);
    writeNumber(connection, "statusSequence", this.#sequence);
  }

  #row(uid: PodUid): StatusRow | undefined {
    if (this.#pending.has(uid)) return this.#pending.get(uid);
    return this.#file.use("cannot read a status", (connection) => {
      const columns = connection.row(`${SELECT_STATUSES} WHERE uid = ?`, uid);
      return columns === undefined ? undefined : statusRow(columns);
    });
  }
}

function writeStatus(connection: Connection, { uid, namespace, name, sequence, body }: StatusRow): void {
  connection.run(
    "INSERT INTO statuses (uid, namespace, name, sequence, body, digest) VALUES (?, ?, ?, ?, ?, ?) " +
      "ON CONFLICT DO UPDATE SET namespace = excluded.namespace, name = excluded.name, sequence = excluded.sequence, " +
      "body = excluded.body, digest = excluded.digest",
    uid,
    namespace,
    name,
    sequence,
    body,
    digestOf([uid, namespace, name, sequence], body),
  );
}

function writeNumber(connection: Connection, name: string, value: number): void {
  connection.run(
    "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value " +
      "WHERE value <> excluded.value",
    name,
    value,
  );
}

function statusRow({ uid, namespace, name, sequence, body, digest }: Record<string, unknown>): StatusRow {
  const isIntact =
    typeof uid === "string" &&
    typeof namespace === "string" &&
    typeof name === "string" &&
    typeof sequence === "number" &&
    body instanceof Buffer &&
    digest instanceof Buffer &&
    digestOf([uid, namespace, name, sequence], body).equals(digest);
  if (!isIntact) throw corrupt("a row of the statuses is not as it was written");
  return { uid: podUid(uid), namespace, name, sequence, body };
}

const recordOf = ({ uid, namespace, name, body }: StatusRow): PodStatusRecord => ({
  uid,
  namespace,
  name,
  status: decode(body) as PodStatus,
});
