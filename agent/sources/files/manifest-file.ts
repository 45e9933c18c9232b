import { hash } from "node:crypto";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { podsOf } from "../manifests/manifest-pods.ts";
import type { ManifestProblem } from "../manifests/manifest-reader.ts";
import type { StaticPodInit } from "../manifests/static-pod.ts";
import { type FileStamp, type ManifestEntry, readManifestFile } from "./manifest-files.ts";
import {
  elapsedQuietMs,
  type FileChange,
  HALF_WRITTEN_QUIET_MS,
  MAX_UNSETTLED_MS,
  requiredQuietMs,
} from "./settling.ts";

/** The result of the scan of one file. */
export type FileScan =
  /** The file is unchanged. `problems` are those of its contents. */
  | {
      readonly kind: "same";
      readonly problems: readonly ManifestProblem[];
      readonly warnings: readonly ManifestProblem[];
    }
  /** The file is being written, and must be scanned again in `waitMs`. */
  | {
      readonly kind: "unsettled";
      readonly waitMs: number;
      readonly problems: readonly ManifestProblem[];
      readonly warnings: readonly ManifestProblem[];
    }
  /** A new version that cannot be used. */
  | { readonly kind: "broken"; readonly problems: readonly ManifestProblem[] }
  | { readonly kind: "new"; readonly pods: readonly DesiredPod[]; readonly warnings: readonly ManifestProblem[] };

/** What is known of one file once it has been read. */
interface Read {
  readonly stamp: FileStamp;
  readonly digest: string;
  readonly problems: readonly ManifestProblem[];
  readonly warnings: readonly ManifestProblem[];
}

/** A file that is not as it was read. Times are monotonic. */
interface Changing {
  readonly key: string;
  readonly firstAtMs: number;
  readonly lastAtMs: number;
  readonly isWritten: boolean;
  readonly isChanging: boolean;
}

export interface FileScanInit extends Omit<StaticPodInit, "origin" | "source"> {
  readonly nowMs: number;
  /** Undefined: not loaded, because no file had changed; one that has since waits for the next scan. */
  readonly podsOf: typeof podsOf | undefined;
}

/**
 * One path below staticPodPath, over time: reads it when it has changed and is complete. A look costs one `stat`, made
 * by the caller, as long as nothing has changed.
 */
export class ManifestFile {
  readonly #path: string;
  #read: Read | undefined;
  #changing: Changing | undefined;
  /** Read, not yet part of what is wanted. */
  #next: Read | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** An event named the file: it must be read again, even with an unchanged stamp. */
  touch(nowMs: number, isWritten: boolean): void {
    this.#changing = {
      key: this.#changing?.key ?? "",
      firstAtMs: this.#changing?.firstAtMs ?? nowMs,
      lastAtMs: nowMs,
      isWritten: isWritten || this.#changing?.isWritten === true,
      isChanging: this.#changing?.isChanging ?? false,
    };
  }

  /** @returns whether a scan may read it */
  isNews(entry: ManifestEntry): boolean {
    return entry.kind === "file" && (this.#changing !== undefined || this.#read?.stamp.key !== entry.stamp.key);
  }

  scan(entry: ManifestEntry, init: FileScanInit): FileScan {
    this.#next = undefined;
    if (entry.kind === "unusable") {
      this.#changing = undefined;
      return { kind: "broken", problems: [{ position: undefined, message: entry.message }] };
    }
    const { stamp } = entry;
    if (!this.isNews(entry) && this.#read !== undefined) return this.#same(this.#read);
    const changing = this.#changed(stamp, init.nowMs);
    this.#changing = changing;
    const change = changeOf(this.#read?.stamp, stamp, changing, init);
    const left = requiredQuietMs(change) - elapsedQuietMs(change);
    if (left > 0) return this.#unsettled(left, changing, init.nowMs);
    return this.#readIt(stamp, change, changing, init);
  }

  /** The last result of `scan` is desired now, or has problems of its own. */
  commit(problems: readonly ManifestProblem[] = []): void {
    if (this.#next === undefined) return;
    this.#read = { ...this.#next, problems };
    this.#changing = undefined;
    this.#next = undefined;
  }

  /** The next scan reads the file again, as if it had changed. */
  reread(): void {
    this.#read = undefined;
  }

  #changed(stamp: FileStamp, nowMs: number): Changing {
    const before = this.#changing;
    if (before === undefined) {
      return { key: stamp.key, firstAtMs: nowMs, lastAtMs: nowMs, isWritten: true, isChanging: false };
    }
    if (before.key === stamp.key) return before;
    // This is the first scan after an event.
    if (before.key === "") return { ...before, key: stamp.key };
    return { ...before, key: stamp.key, lastAtMs: nowMs, isWritten: true, isChanging: true };
  }

  #same(read: Read): FileScan {
    return { kind: "same", problems: read.problems, warnings: read.warnings };
  }

  #unsettled(left: number, { firstAtMs }: Changing, nowMs: number): FileScan {
    const isEndless = nowMs - firstAtMs > MAX_UNSETTLED_MS;
    const message = "is being written to all the time; write it elsewhere and rename it into the folder";
    const problems = isEndless ? [{ position: undefined, message }] : (this.#read?.problems ?? []);
    return { kind: "unsettled", waitMs: left, problems, warnings: this.#read?.warnings ?? [] };
  }

  #readIt(stamp: FileStamp, change: FileChange, changing: Changing, init: FileScanInit): FileScan {
    const { podsOf } = init;
    const content = readManifestFile(this.#path, stamp);
    if (content.kind === "changed" || podsOf === undefined) return this.#unsettled(0, changing, init.nowMs);
    if (content.kind === "unusable") {
      return this.#broken({
        stamp,
        digest: "",
        problems: [{ position: undefined, message: content.message }],
        warnings: [],
      });
    }
    const digest = hash("sha256", content.text, "base64");
    if (this.#read?.digest === digest) {
      this.#read = { ...this.#read, stamp };
      this.#changing = undefined;
      return this.#same(this.#read);
    }
    const made = podsOf(content.text, { ...init, source: "file", origin: this.#path });
    if (made.problems.length > 0) {
      const left = HALF_WRITTEN_QUIET_MS - elapsedQuietMs(change);
      if (left > 0) return this.#unsettled(left, changing, init.nowMs);
      return this.#broken({ stamp, digest, problems: made.problems, warnings: [] });
    }
    this.#next = { stamp, digest, problems: [], warnings: made.warnings };
    return { kind: "new", pods: made.pods, warnings: made.warnings };
  }

  #broken(read: Read): FileScan {
    this.#read = read;
    this.#changing = undefined;
    return { kind: "broken", problems: read.problems };
  }
}

function changeOf(
  before: FileStamp | undefined,
  now: FileStamp,
  { lastAtMs, isWritten, isChanging }: Changing,
  init: FileScanInit,
): FileChange {
  const ageMs = init.now.getTime() - now.modifiedAtMs;
  return { before, now, quietMs: init.nowMs - lastAtMs, ageMs, isWritten, isChanging };
}
