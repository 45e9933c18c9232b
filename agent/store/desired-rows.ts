/**
 * The tables `pods` and `sources`, row by row; every row carries a digest, so that no flipped bit becomes another pod.
 */
import { ignore } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type { ChosenRuntime, DesiredPod, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";
import { applyGrants, type Grants } from "../plan/allocation.ts";
import type { Connection } from "./connection.ts";
import { decode, digestOf, encode } from "./encoding.ts";
import { corrupt } from "./schema.ts";

/** In the order of precedence. */
export const SOURCES: readonly SourceId[] = ["file", "http", "push", "api"];

export interface PodRow {
  /** The pod as its source has it. */
  readonly desired: DesiredPod;
  /** As the node has granted it, with what it is run as: the same object where that is what is wanted. */
  readonly allocated: DesiredPod;
  /** `undefined`: what is wanted. */
  readonly granted: Grants | undefined;
  /** `undefined`: it has no choice, or none has been made. */
  readonly runtime: ChosenRuntime | undefined;
  /** A hash of the pod and its conditions: equal for equal ones. */
  readonly content: string;
  /** The source does not have it any more, and it is not known to be gone. */
  readonly removed: boolean;
}

export interface DesiredContents {
  readonly rows: readonly PodRow[];
  readonly revisions: ReadonlyMap<SourceId, number>;
}

export const contentOf = (desired: DesiredPod): string => contentOfBody(bodyOf(desired));
const contentOfBody = (body: Buffer): string => digestOf([], body).toString("base64");

/** Conditions of other writers are stored as the status of the Pod, which `DesiredPod.pod` does not have. */
const bodyOf = ({ pod, conditions }: DesiredPod): Buffer =>
  encode(conditions === undefined ? pod : { ...pod, status: { conditions } });

type RowDetails = Partial<Pick<PodRow, "content" | "granted" | "runtime">>;

/** @param details `granted` of the pod as it was before; dropped where it is what is wanted now */
export function rowOf(desired: DesiredPod, removed: boolean, details: RowDetails = {}): PodRow {
  const { content = contentOf(desired), granted, runtime = desired.runtime } = details;
  const pod = granted === undefined ? desired.pod : applyGrants(desired.pod, granted);
  const isSame = pod === desired.pod && runtime === desired.runtime;
  const allocated = isSame ? desired : { ...desired, pod, ...(runtime === undefined ? {} : { runtime }) };
  return { desired, allocated, granted: pod === desired.pod ? undefined : granted, runtime, content, removed };
}

export function writePod(connection: Connection, { desired, granted, runtime, removed }: PodRow): void {
  const { uid, source, origin } = desired;
  const body = bodyOf(desired);
  const grants = granted === undefined ? null : encode(granted);
  const chosen = runtime === undefined ? null : encode(runtime);
  connection.run(
    "INSERT INTO pods (uid, source, origin, removed, body, digest, granted, runtime) VALUES (?, ?, ?, ?, ?, ?, ?, ?) " +
      "ON CONFLICT DO UPDATE SET origin = excluded.origin, removed = excluded.removed, body = excluded.body, " +
      "digest = excluded.digest, granted = excluded.granted, runtime = excluded.runtime",
    uid,
    source,
    origin,
    Number(removed),
    body,
    podDigest({ uid, source, origin, removed: Number(removed), granted: grants, runtime: chosen }, body),
    grants,
    chosen,
  );
}

/** Only if it is one that was removed. */
export function deleteRemovedPod(connection: Connection, uid: PodUid): void {
  connection.run("DELETE FROM pods WHERE uid = ? AND removed = 1", uid);
}

/** Deletes the row of a pod in any state. */
export function deletePod(connection: Connection, { uid, source }: DesiredPod): void {
  connection.run("DELETE FROM pods WHERE uid = ? AND source = ?", uid, source);
}

export function writeRevision(connection: Connection, source: SourceId, revision: number): void {
  connection.run(
    "INSERT INTO sources (source, revision, digest) VALUES (?, ?, ?) " +
      "ON CONFLICT DO UPDATE SET revision = excluded.revision, digest = excluded.digest",
    source,
    revision,
    digestOf([source, revision], undefined),
  );
}

/** @throws `corrupt` when a row is not as it was written. */
export function readDesired(connection: Connection): DesiredContents {
  const rows = [...connection.each(SELECT_PODS)].map(podRow);
  const revisions = new Map<SourceId, number>();
  for (const { source, revision, digest } of connection.each("SELECT source, revision, digest FROM sources")) {
    const known = SOURCES.find((each) => each === source);
    const isIntact =
      typeof revision === "number" &&
      digest instanceof Buffer &&
      digestOf([String(source), revision], undefined).equals(digest);
    if (known === undefined || !isIntact) throw corrupt("a row of the sources is not as it was written");
    revisions.set(known, revision);
  }
  return { rows, revisions };
}

/** Selects all columns, because a damaged file may have an older format. */
const SELECT_PODS = "SELECT * FROM pods ORDER BY rowid";

/** Reads a damaged file from both ends up to the damage. Never throws. */
export function salvagePods(connection: Connection): readonly PodRow[] {
  const found = new Map<string, PodRow>();
  for (const direction of ["", " DESC"]) {
    try {
      for (const columns of connection.each(SELECT_PODS + direction)) {
        const row = intactOrNothing(columns);
        if (row !== undefined) found.set(`${row.desired.source} ${row.desired.uid}`, row);
      }
    } catch {
      ignore("the damage begins here; what was read before it stands");
    }
  }
  return [...found.values()];
}

function intactOrNothing(columns: Record<string, unknown>): PodRow | undefined {
  try {
    return podRow(columns);
  } catch {
    return undefined;
  }
}

function podRow(columns: Record<string, unknown>): PodRow {
  const { uid, source, origin, removed, body, digest, granted = null, runtime = null } = columns;
  const known = SOURCES.find((each) => each === source);
  const isIntact =
    typeof uid === "string" &&
    typeof origin === "string" &&
    typeof removed === "number" &&
    body instanceof Buffer &&
    digest instanceof Buffer &&
    (granted === null || granted instanceof Buffer) &&
    (runtime === null || runtime instanceof Buffer) &&
    known !== undefined &&
    podDigest({ uid, source: known, origin, removed, granted, runtime }, body).equals(digest);
  if (!isIntact) throw corrupt("a row of the pods is not as it was written");
  const { status, ...pod } = decode(body) as Pod;
  const conditions = status?.conditions === undefined ? {} : { conditions: status.conditions };
  const desired: DesiredPod = { uid: podUid(uid), source: known, origin, pod, ...conditions };
  const grants = granted === null ? undefined : (decode(granted) as Grants);
  const chosen = runtime === null ? undefined : (decode(runtime) as ChosenRuntime);
  return rowOf(desired, removed === 1, { content: contentOfBody(body), granted: grants, runtime: chosen });
}

interface PodColumns {
  readonly uid: string;
  readonly source: string;
  readonly origin: string;
  readonly removed: number;
  readonly granted: Buffer | null;
  readonly runtime: Buffer | null;
}

function podDigest({ uid, source, origin, removed, granted, runtime }: PodColumns, body: Buffer): Buffer {
  const identity = [uid, source, origin, removed];
  const grants = granted?.toString("base64");
  if (runtime !== null) return digestOf([...identity, grants ?? "", runtime.toString("base64")], body);
  return digestOf(grants === undefined ? identity : [...identity, grants], body);
}
