import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { ChosenRuntime, DesiredPod, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ApiPods, DesiredSnapshot, DesiredStore } from "../core/store/store-ports.ts";
import { grantsOf } from "../plan/allocation.ts";
import { canAdoptPod, copyRandomNames } from "../plan/pod-adoption.ts";
import type { Connection } from "./connection.ts";
import {
  contentOf,
  type DesiredContents,
  deletePod,
  deleteRemovedPod,
  type PodRow,
  rowOf,
  SOURCES,
  writePod,
  writeRevision,
} from "./desired-rows.ts";
import type { Batched } from "./store-file.ts";

export interface DesiredPodsComponents {
  readonly file: { use<R>(message: string, work: (connection: Connection) => R): R };
  /** Called when a record waits for the next batch. */
  readonly keepBack: () => void;
}

type Rows = ReadonlyMap<PodUid, PodRow>;

/**
 * Per source. A manifest rewritten every minute with the runtime away for hours would fill memory; what is dropped
 * here, the oldest, was never started or is found among the running pods and adopted, to be ended, again.
 */
export const MAX_REMOVED_PODS = 500;

/** The desired pods, all in memory; the file is read once, at the start. An unchanged pod keeps its object. */
export class DesiredPods implements DesiredStore, Batched {
  readonly #file: DesiredPodsComponents["file"];
  readonly #keepBack: () => void;
  readonly #rows = new Map<SourceId, Rows>(SOURCES.map((source) => [source, new Map()]));
  readonly #revisions: Map<SourceId, number>;
  readonly #synced = new Set<SourceId>();
  readonly #unreadable = new Map<SourceId, ReadonlySet<string>>();
  readonly #desired: WatchSource<DesiredSnapshot>;
  /** Changes that are not written yet: rows of adopted pods, and forgotten pods. */
  readonly #adopted = new Set<PodUid>();
  readonly #forgotten = new Set<PodUid>();
  /** Pods whose place an adopted running pod has taken. */
  readonly #replaced: DesiredPod[] = [];

  constructor(components: DesiredPodsComponents, contents: DesiredContents) {
    this.#file = components.file;
    this.#keepBack = components.keepBack;
    this.#revisions = new Map(contents.revisions);
    for (const source of SOURCES) {
      const own = contents.rows.filter((row) => row.desired.source === source);
      this.#rows.set(source, new Map(own.map((row) => [row.desired.uid, row])));
    }
    this.#desired = new WatchSource(this.#snapshot());
  }

  get desired(): Watch<DesiredSnapshot> {
    return this.#desired;
  }

  revision(source: SourceId): number {
    return this.#revisions.get(source) ?? 0;
  }

  replace(
    source: SourceId,
    revision: number,
    pods: readonly DesiredPod[],
    unreadable: ReadonlySet<string> = new Set(),
  ): "accepted" | "stale" | "conflict" {
    const known = this.revision(source);
    if (revision < known) return "stale";
    const before = this.#rowsOf(source);
    const { after, dropped } = rowsAfter(before, source, pods);
    const changed = [...after.values()].filter((row) => before.get(row.desired.uid) !== row);
    if (revision === known && changed.length > 0) return "conflict";
    if (revision > known) this.#write(source, revision, changed);
    this.#rows.set(source, after);
    this.#revisions.set(source, revision);
    this.#unreadable.set(source, unreadable);
    for (const uid of dropped) this.#forgotten.add(uid);
    if (dropped.length > 0) this.#keepBack();
    const isFirst = !this.#synced.has(source);
    this.#synced.add(source);
    if (isFirst || changed.length > 0) this.#desired.set(this.#snapshot());
    return "accepted";
  }

  /**
   * All pods of source `api`, which counts as synced then.
   * @param also what has to be written in the same transaction; `undefined`: nothing, and without a change of the pods
   *   nothing is written at all
   */
  replaceApi({ wanted, removed }: ApiPods, also: ((connection: Connection) => void) | undefined): void {
    const before = this.#rowsOf("api");
    const after = new Map<PodUid, PodRow>();
    for (const desired of wanted) after.set(desired.uid, rowAfter(before.get(desired.uid), desired, false));
    for (const desired of removed) after.set(desired.uid, rowAfter(before.get(desired.uid), desired, true));
    const changed = [...after.values()].filter((row) => before.get(row.desired.uid) !== row);
    const dropped = [...before.values()].filter(({ desired }) => !after.has(desired.uid));
    if (also !== undefined || changed.length + dropped.length > 0) {
      this.#durably("api", changed, (connection) => {
        for (const { desired } of dropped) deletePod(connection, desired);
        also?.(connection);
      });
    }
    this.#rows.set("api", after);
    const isFirst = !this.#synced.has("api");
    this.#synced.add("api");
    if (isFirst || changed.length + dropped.length > 0) this.#desired.set(this.#snapshot());
  }

  forget(uid: PodUid): void {
    if (!this.#desired.current.removed.has(uid)) return;
    for (const [source, rows] of this.#rows) {
      if (rows.get(uid)?.removed === true) this.#rows.set(source, without(rows, uid));
    }
    this.#forgotten.add(uid);
    this.#keepBack();
    this.#desired.set(this.#snapshot());
  }

  grant(uid: PodUid): void {
    for (const [source, rows] of this.#rows) {
      const row = rows.get(uid);
      if (row?.granted === undefined) continue;
      const { content, runtime } = row;
      this.#put(source, rowOf(row.desired, row.removed, { content, runtime }));
    }
  }

  choose(uid: PodUid, runtime: ChosenRuntime): void {
    for (const [source, rows] of this.#rows) {
      const row = rows.get(uid);
      if (row === undefined) continue;
      const { content, granted } = row;
      this.#put(source, rowOf(row.desired, row.removed, { content, granted, runtime }));
    }
  }

  #put(source: SourceId, row: PodRow): void {
    this.#durably(source, [row], () => undefined);
    this.#rows.set(source, new Map(this.#rowsOf(source)).set(row.desired.uid, row));
    this.#desired.set(this.#snapshot());
  }

  adopt(pods: readonly DesiredPod[], isFree: (uid: PodUid) => boolean = () => false): void {
    const { pods: wanted, removed } = this.#desired.current;
    const unknown = pods.filter(({ uid }) => !wanted.has(uid) && !removed.has(uid));
    if (unknown.length === 0) return;
    for (const desired of unknown) {
      const rows = new Map(this.#rowsOf(desired.source));
      const successor = [...rows.values()].find((row) => isFree(row.desired.uid) && isSuccessor(row.desired, desired));
      if (successor !== undefined) {
        this.#takeOver(desired, successor, rows);
        continue;
      }
      // Its source has reported a set without it, so it must be ended gracefully.
      const isUnwanted = this.#synced.has(desired.source) && !this.#isUnreadable(desired);
      rows.set(desired.uid, rowOf(desired, isUnwanted));
      this.#rows.set(desired.source, rows);
      this.#adopted.add(desired.uid);
      this.#forgotten.delete(desired.uid);
    }
    this.#keepBack();
    this.#desired.set(this.#snapshot());
  }

  /** The running pod is adopted by the one that has returned under another UID. */
  #takeOver(found: DesiredPod, successor: PodRow, rows: Map<PodUid, PodRow>): void {
    const pod = copyRandomNames(successor.desired.pod, found.pod);
    const desired: DesiredPod = { ...successor.desired, uid: found.uid, pod };
    rows.delete(successor.desired.uid);
    const runtime = found.runtime ?? successor.runtime;
    rows.set(found.uid, rowOf(desired, successor.removed, { runtime }));
    this.#rows.set(desired.source, rows);
    this.#adopted.add(found.uid);
    this.#forgotten.delete(found.uid);
    this.#replaced.push(successor.desired);
  }

  write(connection: Connection): void {
    for (const desired of this.#replaced) deletePod(connection, desired);
    for (const uid of this.#forgotten) deleteRemovedPod(connection, uid);
    for (const uid of this.#adopted) {
      for (const rows of this.#rows.values()) {
        const row = rows.get(uid);
        if (row !== undefined) writePod(connection, row);
      }
    }
  }

  written(): void {
    this.#forgotten.clear();
    this.#adopted.clear();
    this.#replaced.length = 0;
  }

  rewrite(connection: Connection): void {
    for (const [source, revision] of this.#revisions) writeRevision(connection, source, revision);
    for (const rows of this.#rows.values()) {
      for (const row of rows.values()) writePod(connection, row);
    }
  }

  #write(source: SourceId, revision: number, changed: readonly PodRow[]): void {
    this.#durably(source, changed, (connection) => writeRevision(connection, source, revision));
  }

  /** On disk, or nothing has changed. */
  #durably(source: SourceId, changed: readonly PodRow[], also: (connection: Connection) => void): void {
    this.#file.use(`cannot store the pods of source ${source}`, (connection) =>
      connection.durably(() => {
        for (const row of changed) writePod(connection, row);
        also(connection);
      }),
    );
    // What is on disk now must not be taken away by a batch that was to come.
    for (const { desired } of changed) this.#forgotten.delete(desired.uid);
  }

  #isUnreadable({ source, origin }: DesiredPod): boolean {
    return this.#unreadable.get(source)?.has(origin) === true;
  }

  #rowsOf(source: SourceId): Rows {
    return this.#rows.get(source) ?? new Map<PodUid, PodRow>();
  }

  #snapshot(): DesiredSnapshot {
    const pods = new Map<PodUid, DesiredPod>();
    const removed = new Map<PodUid, DesiredPod>();
    const requested = new Map<PodUid, DesiredPod>();
    const rows = SOURCES.flatMap((source) => [...this.#rowsOf(source).values()]);
    for (const row of rows) {
      const { uid } = row.desired;
      if (row.removed || pods.has(uid)) continue;
      pods.set(uid, row.allocated);
      if (row.granted !== undefined) requested.set(uid, { ...row.allocated, pod: row.desired.pod });
    }
    for (const row of rows) {
      const { uid } = row.desired;
      if (row.removed && !pods.has(uid) && !removed.has(uid)) removed.set(uid, row.allocated);
    }
    return { pods, removed, requested, synced: new Set(this.#synced) };
  }
}

interface RowsAfter {
  /** First those wanted, then those removed, the latest first. */
  readonly after: Rows;
  readonly dropped: readonly PodUid[];
}

/** @returns the rows of `source` with the set `pods`; an unchanged row stays the same object */
function rowsAfter(before: Rows, source: SourceId, pods: readonly DesiredPod[]): RowsAfter {
  const after = new Map<PodUid, PodRow>();
  for (const desired of pods) {
    const { uid } = desired;
    if (desired.source !== source) throw invalid(`cannot store pod ${uid}: it is of another source than ${source}`);
    if (after.has(uid)) throw invalid(`cannot store the pods of source ${source}: two have the uid ${uid}`);
    after.set(uid, rowAfter(before.get(uid), desired));
  }
  const dropped: PodUid[] = [];
  for (const [uid, row] of before) {
    if (after.has(uid)) continue;
    if (after.size < pods.length + MAX_REMOVED_PODS) after.set(uid, row.removed ? row : { ...row, removed: true });
    else dropped.push(uid);
  }
  return { after, dropped };
}

/** The pod's object stays where only what is beside it is another; resources that change are not granted by that. */
function rowAfter(before: PodRow | undefined, desired: DesiredPod, removed = false): PodRow {
  if (before?.desired === desired) return before.removed === removed ? before : { ...before, removed };
  const content = contentOf(desired);
  if (before === undefined) return rowOf(desired, removed, { content });
  const { granted = grantsOf(before.desired.pod), runtime } = before;
  if (before.content !== content) return rowOf(desired, removed, { content, granted, runtime });
  if (before.desired.origin !== desired.origin) {
    return rowOf({ ...before.desired, origin: desired.origin }, removed, { content, granted, runtime });
  }
  return before.removed === removed ? before : { ...before, removed };
}

const isSuccessor = ({ source, pod }: DesiredPod, { pod: found }: DesiredPod): boolean =>
  source === "api" &&
  pod.metadata.namespace === found.metadata.namespace &&
  pod.metadata.name === found.metadata.name &&
  canAdoptPod(found, pod);

function without(rows: Rows, uid: PodUid): Rows {
  const left = new Map(rows);
  left.delete(uid);
  return left;
}

const invalid = (message: string): PicoletError => new PicoletError("invalid", message);
