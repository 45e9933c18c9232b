import { join } from "node:path";
import { type Clock, millis, type PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ManifestProblem } from "../manifests/manifest-reader.ts";
import { type FileScan, type FileScanInit, ManifestFile } from "./manifest-file.ts";
import type { ManifestEntry } from "./manifest-files.ts";
import { DELETION_QUIET_MS } from "./settling.ts";

/** The result of one file in a scan. */
export interface ScannedFile {
  readonly path: string;
  /** The pods of its new version; `undefined` without a new one, or when it cannot be used. */
  readonly next: readonly DesiredPod[] | undefined;
  /** True when the file is missing, but not for long enough to be sure. */
  readonly isMissing: boolean;
  /** True when its pods are unknown: it is broken, half-written, or missing at the moment. */
  readonly isUnreadable: boolean;
  readonly problems: readonly ManifestProblem[];
  /** The warnings of the current version. */
  readonly warnings: readonly ManifestProblem[];
}

export interface Scan {
  readonly files: readonly ScannedFile[];
  /** True when a file has a new version, or is removed for good. */
  readonly isChange: boolean;
  /** When to scan again for what is not settled yet; `undefined`: no need. */
  readonly waitMs: number | undefined;
}

export interface ScanInit {
  readonly nodeName: string;
  /** Files of which pods are wanted. */
  readonly origins: ReadonlySet<string>;
  readonly seenBefore: (uid: PodUid) => string | undefined;
}

/** Files read before other work gets its turn: some 10 ms of the agent's one thread on a small board. */
const READS_PER_TURN = 16;
/** The time until a file that changed while it was read is read again. */
const MIN_WAIT_MS = 1;

/** The files of a folder over time. */
export class ManifestFolder {
  readonly #clock: Clock;
  readonly #files = new Map<string, ManifestFile>();
  /** Monotonic milliseconds of the first scan that missed a file, by path. */
  readonly #missing = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** An event named this file. */
  touch(folder: string, name: string, isWritten: boolean): void {
    this.#file(join(folder, name)).touch(this.#clock.monotonic(), isWritten);
  }

  async scan(entries: readonly ManifestEntry[], init: ScanInit, signal: AbortSignal): Promise<Scan> {
    const files: ScannedFile[] = [];
    let waitMs = Number.POSITIVE_INFINITY;
    let reads = 0;
    const isNews = entries.some((entry) => this.#file(entry.path).isNews(entry));
    const podsOf = isNews ? (await import("../manifests/manifest-pods.ts")).podsOf : undefined;
    for (const entry of entries) {
      const found = this.#scanFile(entry, init, podsOf);
      files.push(scanned(entry.path, found));
      if (found.kind === "unsettled") waitMs = Math.min(waitMs, Math.max(MIN_WAIT_MS, found.waitMs));
      if (found.kind === "same") continue;
      reads += 1;
      if (reads % READS_PER_TURN === 0) await this.#clock.sleep(millis(0), signal);
    }
    const gone = this.#missingOf(entries, init.origins);
    files.push(...gone.missing.map(missing));
    waitMs = Math.min(waitMs, gone.waitMs);
    const isChange = gone.isChange || files.some(({ next }) => next !== undefined);
    return { files, isChange, waitMs: Number.isFinite(waitMs) ? waitMs : undefined };
  }

  /** The new versions of the scan are desired now, except those of refused files. */
  commit(scan: Scan, refused: ReadonlyMap<string, string>): void {
    for (const { path, next } of scan.files) {
      const reason = refused.get(path);
      const problems = reason === undefined ? [] : [{ position: undefined, message: reason }];
      if (next !== undefined) this.#file(path).commit(problems);
    }
  }

  /** The next scan reads these files again, as if they had changed. */
  reread(paths: Iterable<string>): void {
    for (const path of paths) this.#file(path).reread();
  }

  #file(path: string): ManifestFile {
    const known = this.#files.get(path);
    if (known !== undefined) return known;
    const made = new ManifestFile(path);
    this.#files.set(path, made);
    return made;
  }

  #scanFile(entry: ManifestEntry, { nodeName, seenBefore }: ScanInit, podsOf: FileScanInit["podsOf"]): FileScan {
    const nowMs = this.#clock.monotonic();
    return this.#file(entry.path).scan(entry, { nodeName, seenBefore, podsOf, nowMs, now: this.#clock.wall() });
  }

  /** Finds files that are missing: some for a moment only, others for good, with their pods. */
  #missingOf(
    entries: readonly ManifestEntry[],
    origins: ReadonlySet<string>,
  ): { readonly missing: readonly string[]; readonly isChange: boolean; readonly waitMs: number } {
    const present = new Set(entries.map(({ path }) => path));
    const absent = [...new Set([...origins, ...this.#files.keys()])].filter((path) => !present.has(path));
    const before = new Map(this.#missing);
    this.#missing.clear();
    const nowMs = this.#clock.monotonic();
    const missing: string[] = [];
    let isChange = false;
    let waitMs = Number.POSITIVE_INFINITY;
    for (const path of absent) {
      const since = before.get(path) ?? nowMs;
      const left = since + DELETION_QUIET_MS - nowMs;
      if (left > 0) {
        this.#missing.set(path, since);
        missing.push(path);
        waitMs = Math.min(waitMs, left);
        continue;
      }
      this.#files.delete(path);
      // The entry stays until the store has dropped the pods. If it refuses, the next scan removes them at once.
      if (origins.has(path)) {
        this.#missing.set(path, since);
        isChange = true;
      }
    }
    return { missing, isChange, waitMs };
  }
}

function scanned(path: string, found: FileScan): ScannedFile {
  const warnings = found.kind === "broken" ? [] : found.warnings;
  if (found.kind === "new")
    return { path, next: found.pods, isMissing: false, isUnreadable: false, problems: [], warnings };
  const isUnreadable = found.kind !== "same" || found.problems.length > 0;
  return { path, next: undefined, isMissing: false, isUnreadable, problems: found.problems, warnings };
}

const missing = (path: string): ScannedFile => {
  return { path, next: undefined, isMissing: true, isUnreadable: true, problems: [], warnings: [] };
};
