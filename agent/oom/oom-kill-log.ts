import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { KilledContainers } from "@picolet/runtime-contract/killed-containers.ts";
import type { KernelRecord } from "./kernel-log.ts";
import { killedGroupIn, type OomKill, OomKillReader } from "./oom-kills.ts";

/**
 * Read in the middle of something else: as many as a kernel's log of 256 KiB has, some 40 ms once, nearly nothing after
 * that.
 */
const RECORDS_AT_ONCE = 4_096;
/** Bounds memory: kills within cgroups that are kept until they are reported; further ones are only counted. */
const MAX_OF_CGROUPS = 10;
/** The machine's: the kernel itself writes of ten in five seconds. */
const MAX_OF_SYSTEM = 64;
/**
 * The containers that were hit last, 100 bytes each: more than a board has. They are asked for again and again while
 * what is left of them stays, and one that is asked for is not dropped next.
 */
const MAX_CONTAINERS = 256;
/** The id of a container in the name of its cgroup, which has a prefix and a suffix: `cri-containerd-<id>.scope`. */
const CONTAINER = /(?:^|[/-])([0-9a-f]{64})(?=\.scope|\/|$)/g;

export interface FollowedLog extends Disposable {
  /** @throws PicoletError */
  next(): KernelRecord;
  /** Calls `onMore` once when there is something to read. @throws PicoletError */
  whenMore(onMore: () => void): void;
}

/** Kills that have not been reported yet. */
export interface UnreportedKills {
  readonly kills: readonly OomKill[];
  /** Within cgroups, besides those. */
  readonly more: number;
}

type State =
  | { readonly kind: "notYet" }
  | { readonly kind: "open"; readonly log: FollowedLog }
  /** It cannot be read, or is not needed any more. */
  | { readonly kind: "closed" };

/**
 * The processes that the kernel's OOM killer has killed, from the kernel's log: reported once, and remembered for
 * containers. containerd may miss a kill, because it reads the container's cgroup after the event, which may be gone by
 * then (containerd issue 8893). The kernel writes the record before it kills, so the reader of a container's end finds
 * it here. Of more than ten kills in five seconds the kernel omits the cgroup, except for those of a whole container
 * (`memory.oom.group` of cgroup v2).
 */
export class OomKillLog implements KilledContainers, Disposable {
  readonly #openLog: () => FollowedLog;
  readonly #log: Log;
  readonly #reader = new OomKillReader();
  readonly #containers = new Set<string>();
  readonly #more = new WatchSource(0);
  #unreported: OomKill[] = [];
  #ofCgroups = 0;
  #state: State = { kind: "notYet" };
  #hasSaidLost = false;

  /** @param components `openLog`: @throws PicoletError when that cannot be */
  constructor(components: { readonly openLog: () => FollowedLog; readonly log: Log }) {
    this.#openLog = components.openLog;
    this.#log = components.log;
  }

  /** Changes when there is something to read or to take. */
  get more(): Watch<unknown> {
    return this.#more;
  }

  has(containerId: string): boolean {
    this.read(RECORDS_AT_ONCE);
    if (this.#ofCgroups + this.#unreported.length > 0) this.#notify();
    const isKnown = this.#containers.delete(containerId);
    if (isKnown) this.#containers.add(containerId);
    return isKnown;
  }

  /** At most so many. @returns whether there may be more at once; `more` changes then too */
  read(records: number): boolean {
    const log = this.#opened();
    if (log === undefined) return false;
    try {
      for (let count = 0; count < records; count += 1) {
        const record = log.next();
        if (record.kind === "end") {
          log.whenMore(() => this.#notify());
          return false;
        }
        if (record.kind === "lost") this.#sayLost();
        else if (record.kind === "record") this.#take(record.text);
      }
      this.#notify();
      return true;
    } catch (error) {
      this.#refuse(error);
      return false;
    }
  }

  takeUnreported(): UnreportedKills {
    const kills = this.#unreported;
    const more = Math.max(0, this.#ofCgroups - MAX_OF_CGROUPS);
    this.#unreported = [];
    this.#ofCgroups = 0;
    return { kills, more };
  }

  [Symbol.dispose](): void {
    if (this.#state.kind === "open") this.#state.log[Symbol.dispose]();
    this.#state = { kind: "closed" };
  }

  #opened(): FollowedLog | undefined {
    if (this.#state.kind === "notYet") {
      try {
        this.#state = { kind: "open", log: this.#openLog() };
      } catch (error) {
        this.#refuse(error);
      }
    }
    return this.#state.kind === "open" ? this.#state.log : undefined;
  }

  #refuse(error: unknown): void {
    this[Symbol.dispose]();
    this.#log.warn("cannot read the kernel's log: OOM kills are not reported", {
      error: describeError(error),
    });
  }

  #take(text: string): void {
    this.#note(killedGroupIn(text));
    const kill = this.#reader.read(text);
    if (kill === undefined) return;
    this.#note(kill.cgroup);
    if (!kill.isSystem) this.#ofCgroups += 1;
    const isKept = kill.isSystem ? this.#unreported.length < MAX_OF_SYSTEM : this.#ofCgroups <= MAX_OF_CGROUPS;
    if (isKept) this.#unreported.push(kill);
  }

  #note(cgroup: string | undefined): void {
    for (const [, id = ""] of cgroup?.matchAll(CONTAINER) ?? []) {
      this.#containers.delete(id);
      this.#containers.add(id);
    }
    for (const oldest of this.#containers) {
      if (this.#containers.size <= MAX_CONTAINERS) return;
      this.#containers.delete(oldest);
    }
  }

  #notify(): void {
    this.#more.set(this.#more.current + 1);
  }

  #sayLost(): void {
    if (this.#hasSaidLost) return;
    this.#hasSaidLost = true;
    this.#log.info("records of the kernel's log were overwritten before they were read");
  }
}
