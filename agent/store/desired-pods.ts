import { type Watch, WatchSource } from "../../protocol/async/watch.ts";
import { PicoletError } from "../../protocol/errors.ts";
import type { PodUid } from "../../protocol/ports.ts";
import type { DesiredPod, SourceId } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { DesiredSnapshot, DesiredStore } from "../core/store.ts";
import type { Connection } from "./connection.ts";
import {
  contentOf,
  type DesiredContents,
  deleteRemovedPod,
  type PodRow,
  SOURCES,
  writePod,
  writeRevision,
} from "./desired-rows.ts";
import { encode } from "./encoding.ts";
import type { Batched } from "./store-file.ts";

export interface DesiredPodsComponents {
  readonly file: { use<R>(message: string, work: (connection: Connection) => R): R };
  /** Something is kept back for the next batch. */
  readonly keepBack: () => void;
}

type Rows = ReadonlyMap<PodUid, PodRow>;

/**
 * Per source. A manifest rewritten every minute with the runtime away for hours would fill memory; what is dropped
 * here, the oldest, was never started or is found among the running pods and adopted, to be ended, again.
 */
export const MAX_REMOVED_PODS = 500;

/** Everything of it is in memory; the file is read once, at the start. A pod that does not change keeps its object. */
export class DesiredPods implements DesiredStore, Batched {
  readonly #file: DesiredPodsComponents["file"];
  readonly #keepBack: () => void;
  readonly #rows = new Map<SourceId, Rows>(SOURCES.map((source) => [source, new Map()]));
  readonly #revisions: Map<SourceId, number>;
  readonly #synced = new Set<SourceId>();
  readonly #unreadable = new Map<SourceId, ReadonlySet<string>>();
  readonly #desired: WatchSource<DesiredSnapshot>;
  /** Not written yet: rows that were adopted, and pods that were forgotten. */
  readonly #adopted = new Set<PodUid>();
  readonly #forgotten = new Set<PodUid>();

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

  forget(uid: PodUid): void {
    if (!this.#desired.current.removed.has(uid)) return;
    for (const [source, rows] of this.#rows) {
      if (rows.get(uid)?.removed === true) this.#rows.set(source, without(rows, uid));
    }
    this.#forgotten.add(uid);
    this.#keepBack();
    this.#desired.set(this.#snapshot());
  }

  adopt(pods: readonly DesiredPod[]): void {
    const { pods: wanted, removed } = this.#desired.current;
    const unknown = pods.filter(({ uid }) => !wanted.has(uid) && !removed.has(uid));
    if (unknown.length === 0) return;
    for (const desired of unknown) {
      const rows = new Map(this.#rowsOf(desired.source));
      // Its source has spoken and did not name it: it is not wanted any more, and has to be ended properly.
      const isUnwanted = this.#synced.has(desired.source) && !this.#isUnreadable(desired);
      rows.set(desired.uid, { desired, content: contentOf(encode(desired.pod)), removed: isUnwanted });
      this.#rows.set(desired.source, rows);
      this.#adopted.add(desired.uid);
      this.#forgotten.delete(desired.uid);
    }
    this.#keepBack();
    this.#desired.set(this.#snapshot());
  }

  write(connection: Connection): void {
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
  }

  rewrite(connection: Connection): void {
    for (const [source, revision] of this.#revisions) writeRevision(connection, source, revision);
    for (const rows of this.#rows.values()) {
      for (const row of rows.values()) writePod(connection, row);
    }
  }

  /** On disk, or nothing has changed. */
  #write(source: SourceId, revision: number, changed: readonly PodRow[]): void {
    this.#file.use(`cannot store the pods of source ${source}`, (connection) =>
      connection.durably(() => {
        for (const row of changed) writePod(connection, row);
        writeRevision(connection, source, revision);
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
    const rows = SOURCES.flatMap((source) => [...this.#rowsOf(source).values()]);
    for (const row of rows) {
      const { uid } = row.desired;
      if (!row.removed && !pods.has(uid)) pods.set(uid, row.desired);
    }
    for (const row of rows) {
      const { uid } = row.desired;
      if (row.removed && !pods.has(uid) && !removed.has(uid)) removed.set(uid, row.desired);
    }
    return { pods, removed, synced: new Set(this.#synced) };
  }
}

interface RowsAfter {
  /** First those wanted, then those removed, the latest first. */
  readonly after: Rows;
  readonly dropped: readonly PodUid[];
}

/** The rows of `source` once it wants `pods`; a row that stays as it is stays the same object. */
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

function rowAfter(before: PodRow | undefined, desired: DesiredPod): PodRow {
  if (before?.desired === desired) return before.removed ? { ...before, removed: false } : before;
  const content = contentOf(encode(desired.pod));
  if (before === undefined || before.content !== content) return { desired, content, removed: false };
  // The pod's object stays where only the place it comes from is another one.
  if (before.desired.origin !== desired.origin) {
    return { desired: { ...before.desired, origin: desired.origin }, content, removed: false };
  }
  return before.removed ? { ...before, removed: false } : before;
}

function without(rows: Rows, uid: PodUid): Rows {
  const left = new Map(rows);
  left.delete(uid);
  return left;
}

const invalid = (message: string): PicoletError => new PicoletError("invalid", message);
