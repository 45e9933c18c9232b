/** Bytes written by day (UTC, by the caller's clock). Pure. */
import type { MonotonicMs } from "@picolet/protocol/ports.ts";

/** Bounds the record: a month is shown. The oldest day is dropped. */
export const MAX_DAYS = 30;
/** The writers kept of a past day, those that wrote most; the sum of the disks has what the others wrote. */
const KEPT_WRITERS = 10;
/**
 * Bounds memory against a churn of pods; a board runs far fewer in a day. Further writers of the day are not counted.
 */
const MAX_WRITERS = 1000;
/** Characters of a writer's name on disk: a record of KEPT_WRITERS of them stays below 4 KiB. */
const MAX_NAME_LENGTH = 300;
/** A clock that is behind the last day known for so long is right, and was wrong before. */
const BELIEVED_AFTER_MS = 24 * 3_600_000;

export interface Writes {
  /** To the disks, by all processes. */
  readonly disks: number;
  readonly agent: number;
  /** By `namespace/name`. */
  readonly pods: ReadonlyMap<string, number>;
}

export interface DayRecord extends Writes {
  /** `2026-11-20`. */
  readonly day: string;
}

/** As a record is kept on disk. */
export type KeptDay = readonly [disks: number, agent: number, pods: readonly (readonly [string, number])[]];

interface Today {
  disks: number;
  agent: number;
  readonly pods: Map<string, number>;
}

/**
 * A clock that jumps forward begins a new day. One that goes back, as at the start of a board without a clock of its
 * own, counts on under the last day known; only when it stays there for a day of uptime it is believed, and the days
 * that are still to come are forgotten.
 */
export class FlashDays {
  readonly #past = new Map<string, DayRecord>();
  #day = "";
  #today: Today = begun(undefined);
  #behindSince: MonotonicMs | undefined;

  get today(): DayRecord {
    return { day: this.#day, ...this.#today };
  }

  /** The past days, oldest first. */
  get past(): readonly DayRecord[] {
    return [...this.#past.values()].toSorted((a, b) => (a.day < b.day ? -1 : 1));
  }

  /** The average of past days; undefined while there are none. */
  get average(): { readonly disks: number; readonly agent: number; readonly days: number } | undefined {
    const days = this.#past.size;
    if (days === 0) return undefined;
    let [disks, agent] = [0, 0];
    for (const each of this.#past.values()) [disks, agent] = [disks + each.disks, agent + each.agent];
    return { disks: disks / days, agent: agent / days, days };
  }

  /** Loads the stored records; the newest continues if it is today's. Invalid records are skipped. */
  load(kept: ReadonlyMap<string, unknown>): void {
    for (const [day, value] of kept) {
      const record = dayRecord(day, value);
      if (record !== undefined) this.#past.set(day, record);
    }
    const last = this.past.at(-1);
    if (last === undefined) return;
    this.#past.delete(last.day);
    this.#day = last.day;
    this.#today = begun(last);
    this.#drop();
  }

  /** Must be called at each sample, before its figures are added. @returns whether another day has begun */
  turn(wall: Date, now: MonotonicMs): boolean {
    const day = wall.toISOString().slice(0, 10);
    if (day === this.#day) this.#behindSince = undefined;
    if (day === this.#day) return false;
    let known: DayRecord | undefined;
    if (day < this.#day) {
      this.#behindSince ??= now;
      if (now - this.#behindSince < BELIEVED_AFTER_MS) return false;
      known = this.#past.get(day);
      for (const each of this.#past.keys()) if (each >= day) this.#past.delete(each);
    } else if (this.#day !== "") {
      this.#past.set(this.#day, { day: this.#day, ...this.#today, pods: largest(this.#today.pods) });
    }
    this.#behindSince = undefined;
    this.#day = day;
    this.#today = begun(known);
    this.#drop();
    return true;
  }

  add({ disks, agent, pods }: Writes): void {
    this.#today.disks += disks;
    this.#today.agent += agent;
    for (const [name, bytes] of pods) {
      const known = this.#today.pods.get(name);
      if (bytes > 0 && (known !== undefined || this.#today.pods.size < MAX_WRITERS))
        this.#today.pods.set(name, (known ?? 0) + bytes);
    }
  }

  #drop(): void {
    for (const { day } of this.past.slice(0, -(MAX_DAYS - 1))) this.#past.delete(day);
  }
}

/** The largest writers, largest first. */
export const largest = (pods: ReadonlyMap<string, number>, count = KEPT_WRITERS): ReadonlyMap<string, number> =>
  new Map([...pods].toSorted(([, a], [, b]) => b - a).slice(0, count));

export const keptDay = ({ disks, agent, pods }: DayRecord): KeptDay => [
  disks,
  agent,
  [...largest(pods)].map(([name, bytes]) => [name.slice(0, MAX_NAME_LENGTH), bytes]),
];

/** The share of the day that is over. */
export const dayShare = (wall: Date): number => (wall.getTime() % DAY_MS) / DAY_MS;

const DAY_MS = 24 * 3_600_000;

const begun = (known: DayRecord | undefined): Today => ({
  disks: known?.disks ?? 0,
  agent: known?.agent ?? 0,
  pods: new Map(known?.pods),
});

const isCount = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value) && value >= 0;

function dayRecord(day: string, value: unknown): DayRecord | undefined {
  if (!/^\d{4}-\d\d-\d\d$/.test(day) || !Array.isArray(value)) return undefined;
  const [disks, agent, pods] = value as unknown[];
  if (!isCount(disks) || !isCount(agent) || !Array.isArray(pods)) return undefined;
  const writers = pods.filter(
    (each): each is [string, number] => Array.isArray(each) && typeof each[0] === "string" && isCount(each[1]),
  );
  return { day, disks, agent, pods: new Map(writers) };
}
