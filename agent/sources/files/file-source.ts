import { basename, dirname, join, relative, sep } from "node:path";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { SourceProblem } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { DesiredStore, EventRecorder } from "../../core/store/store-ports.ts";
import { type PathProblem, type ProblemReason, ProblemReport, WARNING_REASON } from "../manifests/problem-report.ts";
import { configSeen, MAX_PODS } from "../manifests/static-pod.ts";
import { settleClaims } from "./claims.ts";
import { FolderWatcher } from "./folder-watcher.ts";
import { folderIdentity, listManifests, MAX_FILES, type ManifestListing, nearestFolder } from "./manifest-files.ts";
import { ManifestFolder, type Scan, type ScanInit } from "./manifest-folder.ts";
import { RENAMED_QUIET_MS, WRITTEN_QUIET_MS } from "./settling.ts";

/** After the disk refused the pods. Nothing tells when there is room again. */
const STORE_RETRY = seconds(5);
/**
 * A manifest that comes in pieces takes a handful of looks. Who writes a log into the folder gets two a second after
 * that.
 */
const MAX_VAIN_LOOKS = 20;
const VAIN_LOOK_GAP = millis(500);

export interface FileSourceComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly store: DesiredStore;
  readonly events: EventRecorder;
}

export interface FileSourceInit {
  /** `staticPodPath`, absolute: a folder or one file. */
  readonly path: string;
  readonly nodeName: string;
  /** `fileCheckFrequency`: how often to look without being told to. */
  readonly checkFrequency: Millis;
}

/**
 * The pods of the manifests in a folder. A look at the folder gives one set of pods, which replaces the one before as a
 * whole. A file that cannot be used keeps the pods it had, over restarts of the agent too, because the store knows each
 * pod's origin; a folder that is not there keeps all of them.
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
  /** Files whose new version was not taken for what another one says. */
  readonly #refused = new Set<string>();
  /** Files of which the store knows that they cannot be read now. */
  #unreadable: ReadonlySet<string> = new Set();
  #hasBeenFile = false;
  #wasTold = false;
  /** In a row, at the word of inotify, that found nothing. */
  #vainLooks = 0;

  constructor(components: FileSourceComponents, init: FileSourceInit) {
    const { clock, log, store, events } = components;
    this.#log = log;
    this.#store = store;
    this.#init = init;
    this.#alarm = new Alarm(clock);
    this.#folder = new ManifestFolder(clock);
    this.#watcher = new FolderWatcher({
      log,
      onEvent: (folder, name, isWritten) => this.#onEvent(folder, name, isWritten),
    });
    this.#report = new ProblemReport({ log, events }, { nodeName: init.nodeName, source: "file" });
  }

  /** What is wrong with which file, now. */
  get problems(): Watch<readonly SourceProblem[]> {
    return this.#report.problems;
  }

  /** What has no effect in which file. */
  get warnings(): Watch<readonly SourceProblem[]> {
    return this.#report.warnings;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        this.#alarm.set(this.#init.checkFrequency);
        await this.#look(signal);
        await this.#alarm.ring(signal);
      }
    } finally {
      this.#watcher[Symbol.dispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#watcher[Symbol.dispose]();
  }

  async #look(signal: AbortSignal): Promise<void> {
    const before = this.#store.desired.current;
    const wasTold = this.#wasTold;
    this.#wasTold = false;
    this.#watch();
    const listing = this.#list();
    // The path became something else in between: nobody would tell of what was missed.
    if (this.#watch()) this.#alarm.set(millis(0));
    const isNew = this.#report.update(await this.#take(listing, signal));
    this.#vainLooks = wasTold && !isNew && this.#store.desired.current === before ? this.#vainLooks + 1 : 0;
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

  /** What a file wants that was refused for another one's sake is known: not that. */
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

  /** @returns what keeps the pods from being stored. */
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
    // What stood in their way may be gone.
    this.#folder.reread(this.#refused);
    this.#alarm.set(millis(0));
  }

  /** Equal content goes under the same revision, which writes nothing. */
  #replace(pods: readonly DesiredPod[], unreadable: ReadonlySet<string>): void {
    const revision = this.#store.revision("file");
    if (this.#store.replace("file", revision, pods, unreadable) === "accepted") return;
    this.#store.replace("file", revision + 1, pods, unreadable);
  }

  /** What is wanted of each file, by path. */
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
    // One file that was there and is gone is deleted; a folder that is gone says nothing about its files.
    const isDeleted = listing.kind === "missing" && this.#hasBeenFile && folderIdentity(dirname(path)) !== undefined;
    return isDeleted ? { kind: "file", entries: [], omitted: 0 } : listing;
  }

  /**
   * The folder of the manifests, or the innermost that is there, in which it would appear. @returns whether it is
   * another one
   */
  #watch(): boolean {
    const { path } = this.#init;
    if (folderIdentity(path) !== undefined) {
      // inotify tells of the folder's own end by its own name.
      return this.#watcher.watch(path, (name) => !name.startsWith(".") || name === basename(path));
    }
    const nearest = nearestFolder(path);
    const [next] = relative(nearest, path).split(sep);
    return this.#watcher.watch(nearest, (name) => name === next || name === basename(nearest));
  }

  #onEvent(folder: string, name: string, isWritten: boolean): void {
    const { path } = this.#init;
    if (folder === path || join(folder, name) === path) this.#folder.touch(folder, name, isWritten);
    this.#wasTold = true;
    const quiet = millis(isWritten ? WRITTEN_QUIET_MS : RENAMED_QUIET_MS);
    this.#alarm.set(this.#vainLooks > MAX_VAIN_LOOKS ? VAIN_LOOK_GAP : quiet);
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
