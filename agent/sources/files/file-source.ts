import { type FSWatcher, watch } from "node:fs";
import { basename, dirname, join, relative, sep } from "node:path";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { SourceProblem } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { DecisionRecorder } from "../../core/store/decisions.ts";
import type { DesiredStore, EventRecorder } from "../../core/store/store-ports.ts";
import { type PathProblem, type ProblemReason, ProblemReport, WARNING_REASON } from "../manifests/problem-report.ts";
import { configSeen, MAX_PODS } from "../manifests/static-pod.ts";
import { settleClaims } from "./claims.ts";
import { folderIdentity, listManifests, MAX_FILES, type ManifestListing, nearestFolder } from "./manifest-files.ts";
import { ManifestFolder, type Scan, type ScanInit } from "./manifest-folder.ts";
import { RENAMED_QUIET_MS, WRITTEN_QUIET_MS } from "./settling.ts";

/** The time until a failed write is tried again. No event reports that the disk has room. */
const STORE_RETRY = seconds(5);
/** Bounds the CPU time of events without a new manifest, such as of a log in the folder: then two scans a second. */
const MAX_FUTILE_SCANS = 20;
const FUTILE_SCAN_GAP = millis(500);

export interface FileSourceComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly store: DesiredStore;
  readonly events: EventRecorder;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
}

export interface FileSourceInit {
  /** `staticPodPath`, absolute: a folder or one file. */
  readonly path: string;
  readonly nodeName: string;
  /** `fileCheckFrequency`: the interval of scans without an event. */
  readonly checkFrequency: Millis;
}

/**
 * The pods of the manifests in a folder. A scan of the folder gives one set of pods, which replaces the previous one as
 * a whole. A file that cannot be used keeps its previous pods, over restarts of the agent too, because the store has
 * each pod's origin. A missing folder keeps all of them.
 */
export class FileSource implements Component {
  readonly name = "file-source";
  readonly #log: Log;
  readonly #store: DesiredStore;
  readonly #init: FileSourceInit;
  readonly #alarm: Alarm;
  readonly #watcher: FolderWatcher;
  readonly #folder: ManifestFolder;
  readonly #report: ProblemReport;
  /** Files whose new version was refused because of another file. */
  readonly #refused = new Set<string>();
  /** Files that the store has as unreadable. */
  #unreadable: ReadonlySet<string> = new Set();
  #hasBeenFile = false;
  #hasEvent = false;
  /** Consecutive scans after an event that found nothing new. */
  #futileScans = 0;

  constructor(components: FileSourceComponents, init: FileSourceInit) {
    const { clock, log, store, events } = components;
    this.#log = log;
    this.#store = store;
    this.#init = init;
    this.#alarm = new Alarm(clock);
    this.#folder = new ManifestFolder(clock);
    this.#watcher = new FolderWatcher(log, (folder, name, isWritten) => this.#onEvent(folder, name, isWritten));
    this.#report = new ProblemReport(
      { log, events, decisions: components.decisions },
      { nodeName: init.nodeName, source: "file" },
    );
  }

  /** The current problems of files. */
  get problems(): Watch<readonly SourceProblem[]> {
    return this.#report.problems;
  }

  /** Parts of files that have no effect. */
  get warnings(): Watch<readonly SourceProblem[]> {
    return this.#report.warnings;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        this.#alarm.set(this.#init.checkFrequency);
        await this.#check(signal);
        await this.#alarm.ring(signal);
      }
    } finally {
      this.#watcher[Symbol.dispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#watcher[Symbol.dispose]();
  }

  async #check(signal: AbortSignal): Promise<void> {
    const before = this.#store.desired.current;
    const hadEvent = this.#hasEvent;
    this.#hasEvent = false;
    this.#watch();
    const listing = this.#list();
    // The path was replaced in between, and no event will come for changes that were missed.
    if (this.#watch()) this.#alarm.set(millis(0));
    const isNew = this.#report.update(await this.#take(listing, signal));
    this.#futileScans = hadEvent && !isNew && this.#store.desired.current === before ? this.#futileScans + 1 : 0;
  }

  /** @returns all that is wrong */
  async #take(listing: ManifestListing, signal: AbortSignal): Promise<PathProblem[]> {
    if (listing.kind === "missing") {
      return [this.#problem("ManifestsUnavailable", "is not there: make it, or name another staticPodPath")];
    }
    if (listing.kind === "unavailable") return [this.#problem("ManifestsUnavailable", listing.message)];
    const scan = await this.#folder.scan(listing.entries, this.#scanInit(), signal);
    if (scan.waitMs !== undefined) this.#alarm.set(millis(scan.waitMs));
    const unreadable = this.#unreadableOf(scan);
    const isFirst = !this.#store.desired.current.synced.has("file");
    const isOther =
      unreadable.size !== this.#unreadable.size || [...unreadable].some((path) => !this.#unreadable.has(path));
    const failures = scan.isChange || isFirst || isOther ? this.#apply(scan, unreadable) : [];
    return [...failures, ...this.#omitted(listing.omitted), ...this.#problemsOf(scan)];
  }

  /** @returns unreadable files, without refused ones, whose pods are known */
  #unreadableOf(scan: Scan): ReadonlySet<string> {
    const found = scan.files.filter(({ path, isUnreadable }) => isUnreadable && !this.#refused.has(path));
    return new Set(found.map(({ path }) => path));
  }

  #scanInit(): ScanInit {
    const { current } = this.#store.desired;
    return {
      nodeName: this.#init.nodeName,
      origins: new Set(this.#ownPods().keys()),
      seenBefore: (uid) => {
        const known = current.pods.get(uid) ?? current.removed.get(uid);
        return known === undefined ? undefined : configSeen(known);
      },
    };
  }

  /** @returns the problems that keep the pods from being stored */
  #apply(scan: Scan, unreadable: ReadonlySet<string>): PathProblem[] {
    const before = this.#store.desired.current;
    const own = this.#ownPods();
    const versions = scan.files.map((file) => ({ ...file, current: own.get(file.path) ?? [] }));
    const { pods, refused } = settleClaims(versions, MAX_PODS);
    try {
      this.#replace(pods, unreadable);
    } catch (error) {
      if (!isPicoletError(error)) throw error;
      this.#alarm.set(STORE_RETRY);
      return [this.#problem("FailedToStorePods", `${describeError(error)}; it will be tried again`)];
    }
    this.#unreadable = unreadable;
    this.#folder.commit(scan, refused);
    const unchanged = new Set(scan.files.filter(({ next }) => next === undefined).map(({ path }) => path));
    for (const path of this.#refused) {
      if (!unchanged.has(path)) this.#refused.delete(path);
    }
    for (const path of refused.keys()) this.#refused.add(path);
    if (this.#store.desired.current !== before) this.#applied(pods.length);
    return [...refused].map(([path, message]) => this.#problem("InvalidManifest", message, path));
  }

  #applied(pods: number): void {
    this.#log.info("the pods of the manifests have changed", { pods });
    if (this.#refused.size === 0) return;
    // The pods that they collided with may be gone.
    this.#folder.reread(this.#refused);
    this.#alarm.set(millis(0));
  }

  /** Equal content has the same revision, which writes nothing. */
  #replace(pods: readonly DesiredPod[], unreadable: ReadonlySet<string>): void {
    const revision = this.#store.revision("file");
    if (this.#store.replace("file", revision, pods, unreadable) === "accepted") return;
    this.#store.replace("file", revision + 1, pods, unreadable);
  }

  /** The desired pods of each file, by path. */
  #ownPods(): ReadonlyMap<string, readonly DesiredPod[]> {
    const own = [...this.#store.desired.current.pods.values()].filter(({ source }) => source === "file");
    return Map.groupBy(own, ({ origin }) => origin);
  }

  #list(): ManifestListing {
    const { path } = this.#init;
    const own = this.#ownPods();
    const listing = listManifests(path, (each) => own.has(each));
    if (listing.kind === "file") this.#hasBeenFile = true;
    if (listing.kind === "folder") this.#hasBeenFile = false;
    // A missing file that was there before is deleted. A missing folder says nothing about its files.
    const isDeleted = listing.kind === "missing" && this.#hasBeenFile && folderIdentity(dirname(path)) !== undefined;
    return isDeleted ? { kind: "file", entries: [], omitted: 0 } : listing;
  }

  /**
   * Watches the folder of the manifests, or the innermost existing folder above it.
   * @returns true when that is another folder than before
   */
  #watch(): boolean {
    const { path } = this.#init;
    if (folderIdentity(path) !== undefined) {
      // inotify reports the folder's own removal by its own name.
      return this.#watcher.watch(path, (name) => !name.startsWith(".") || name === basename(path));
    }
    const nearest = nearestFolder(path);
    const [next] = relative(nearest, path).split(sep);
    return this.#watcher.watch(nearest, (name) => name === next || name === basename(nearest));
  }

  #onEvent(folder: string, name: string, isWritten: boolean): void {
    const { path } = this.#init;
    if (folder === path || join(folder, name) === path) this.#folder.touch(folder, name, isWritten);
    this.#hasEvent = true;
    const quiet = millis(isWritten ? WRITTEN_QUIET_MS : RENAMED_QUIET_MS);
    this.#alarm.set(this.#futileScans > MAX_FUTILE_SCANS ? FUTILE_SCAN_GAP : quiet);
  }

  #problemsOf(scan: Scan): PathProblem[] {
    const own = this.#ownPods();
    return scan.files.flatMap(({ path, problems, warnings }): PathProblem[] => {
      const pods = own.get(path) ?? [];
      const found: readonly PathProblem[] = [
        { path, reason: "InvalidManifest", problems, pods },
        { path, reason: WARNING_REASON, problems: warnings, pods },
      ];
      return found.filter((each) => each.problems.length > 0);
    });
  }

  #omitted(count: number): PathProblem[] {
    if (count === 0) return [];
    const message = `Too many: at most ${MAX_FILES} files are read, the first by name; ${count} are left out`;
    return [this.#problem("TooManyManifests", message)];
  }

  #problem(reason: ProblemReason, message: string, path = this.#init.path): PathProblem {
    const pods = this.#ownPods().get(path) ?? [];
    return { path, reason, problems: [{ position: undefined, message }], pods };
  }
}

/** `name` in `folder` may have changed; `isWritten` when it was not only made, moved or removed. */
type OnEvent = (folder: string, name: string, isWritten: boolean) => void;

/** Watches one folder at a time by inotify. Where the kernel refuses, the source depends on its periodic check alone. */
class FolderWatcher implements Disposable {
  readonly #log: Log;
  readonly #onEvent: OnEvent;
  #watched: { readonly folder: string; readonly identity: string; readonly watcher: FSWatcher } | undefined;
  #accepts: (name: string) => boolean = () => false;
  #isRefused = false;

  constructor(log: Log, onEvent: OnEvent) {
    this.#log = log;
    this.#onEvent = onEvent;
  }

  /** @returns true when the folder is watched now, and was not before */
  watch(folder: string, accepts: (name: string) => boolean): boolean {
    this.#accepts = accepts;
    const identity = folderIdentity(folder);
    if (this.#watched?.folder === folder && this.#watched.identity === identity) return false;
    this[Symbol.dispose]();
    if (identity === undefined) return false;
    try {
      const watcher = watch(folder, (kind, name) => {
        if (name !== null && this.#accepts(name)) this.#onEvent(folder, name, kind === "change");
      });
      watcher.on("error", (error) => this.#refused(error));
      this.#watched = { folder, identity, watcher };
      this.#isRefused = false;
      return true;
    } catch (error) {
      this.#refused(error);
      return false;
    }
  }

  [Symbol.dispose](): void {
    this.#watched?.watcher.close();
    this.#watched = undefined;
  }

  #refused(error: unknown): void {
    this[Symbol.dispose]();
    if (!this.#isRefused) this.#log.warn("no inotify: changes are seen by the recheck only", { error: String(error) });
    this.#isRefused = true;
  }
}
