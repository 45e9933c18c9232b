/** The table `statuses`, row by row. */
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import { type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type { OutgoingStatus } from "../core/hub/tunnel-ports.ts";
import type { PodStatusRecord } from "../core/store/store-ports.ts";
import type { Connection } from "./connection.ts";
import { decode, digestOf } from "./encoding.ts";
import { corrupt } from "./schema.ts";

export interface StatusContents {
  /** The highest sequence ever given. */
  readonly sequence: number;
  readonly acknowledged: number;
  readonly gone: readonly Omit<StatusRow, "body">[];
}

export interface StatusRow {
  readonly uid: PodUid;
  readonly apiUid: string;
  readonly namespace: string;
  readonly name: string;
  readonly sequence: number;
  readonly gone: boolean;
  readonly body: Buffer;
}

export const SELECT_STATUSES = "SELECT uid, apiUid, namespace, name, sequence, gone, body, digest FROM statuses";

/** Reads every row, for the highest sequence and to find damage. @throws `corrupt` */
export function readStatuses(connection: Connection): StatusContents {
  const meta = new Map<unknown, unknown>();
  for (const { name, value } of connection.each("SELECT name, value FROM meta")) meta.set(name, value);
  let sequence = Number(meta.get("statusSequence") ?? 0);
  const acknowledged = Number(meta.get("statusAcknowledged") ?? 0);
  const gone: Omit<StatusRow, "body">[] = [];
  for (const columns of connection.each(SELECT_STATUSES)) {
    const { body: _, ...row } = statusRow(columns);
    sequence = Math.max(sequence, row.sequence);
    if (row.gone) gone.push(row);
  }
  if (acknowledged > sequence) throw corrupt("more statuses are acknowledged than there ever were");
  return { sequence, acknowledged, gone };
}

export function writeStatus(connection: Connection, row: StatusRow): void {
  const { uid, apiUid, namespace, name, sequence, body } = row;
  const gone = Number(row.gone);
  connection.run(
    "INSERT INTO statuses (uid, apiUid, namespace, name, sequence, gone, body, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?) " +
      "ON CONFLICT DO UPDATE SET apiUid = excluded.apiUid, namespace = excluded.namespace, name = excluded.name, " +
      "sequence = excluded.sequence, gone = excluded.gone, body = excluded.body, digest = excluded.digest",
    uid,
    apiUid,
    namespace,
    name,
    sequence,
    gone,
    body,
    statusDigest({ uid, apiUid, namespace, name, sequence, gone }, body),
  );
}

export function writeNumber(connection: Connection, name: string, value: number): void {
  connection.run(
    "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value " +
      "WHERE value <> excluded.value",
    name,
    value,
  );
}

interface StatusColumns {
  readonly uid: string;
  readonly apiUid: string;
  readonly namespace: string;
  readonly name: string;
  readonly sequence: number;
  readonly gone: number;
}

/** The digest of a row of format 1 has the columns of that format only. */
function statusDigest({ uid, apiUid, namespace, name, sequence, gone }: StatusColumns, body: Buffer): Buffer {
  const identity = [uid, namespace, name, sequence];
  return digestOf(apiUid === "" ? identity : [...identity, apiUid, gone], body);
}

/** @throws `corrupt` when it is not as it was written. */
export function statusRow(columns: Record<string, unknown>): StatusRow {
  const { uid, apiUid, namespace, name, sequence, gone, body, digest } = columns;
  const isIntact =
    typeof uid === "string" &&
    typeof apiUid === "string" &&
    typeof namespace === "string" &&
    typeof name === "string" &&
    typeof sequence === "number" &&
    typeof gone === "number" &&
    body instanceof Buffer &&
    digest instanceof Buffer &&
    statusDigest({ uid, apiUid, namespace, name, sequence, gone }, body).equals(digest);
  if (!isIntact) throw corrupt("a row of the statuses is not as it was written");
  return { uid: podUid(uid), apiUid: apiUid || uid, namespace, name, sequence, gone: gone === 1, body };
}

export const recordOf = ({ uid, apiUid, namespace, name, body }: StatusRow): PodStatusRecord => ({
  uid,
  apiUid,
  namespace,
  name,
  status: decode(body) as PodStatus,
});

export const outgoingOf = ({ apiUid, namespace, name, gone, body }: StatusRow): OutgoingStatus => ({
  namespace,
  name,
  uid: apiUid,
  status: decode(body) as Readonly<Record<string, unknown>>,
  gone,
});
