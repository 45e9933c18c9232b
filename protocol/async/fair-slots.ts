/**
 * Slots for tasks of several groups, such as pulls from several registries: no group keeps the others from theirs. The
 * holder of a slot learns that another group waits for it (`isContended`), and must release it when its task makes no
 * progress any more.
 */
import { cancelled } from "./abort.ts";

export interface FairSlotsInit {
  /** Held at once. */
  readonly total: number;
  /** Held at once by one group. Default: `total`. */
  readonly perGroup?: number;
  /** Names the task in the message of a cancelled wait: "image pull". */
  readonly what: string;
}

export interface FairSlot extends Disposable {
  /** The lowest number from 0 on that no other holder has. */
  readonly index: number;
  /** True while it is held and a task of another group waits because all slots are taken. */
  readonly isContended: boolean;
  /**
   * @param gotOn whether the group's task made progress. If not, other groups come before its next tasks, until one of
   * these does.
   */
  report(gotOn: boolean): void;
}

interface Waiter {
  readonly group: string;
  readonly resolve: (place: FairSlot) => void;
}

/** A node with more registries that fail forgets the oldest. */
const MAX_DEMOTED = 64;

export class FairSlots {
  readonly #total: number;
  readonly #perGroup: number;
  readonly #what: string;
  /** Waiting callers in order of arrival. Not bounded here: callers bound their number. */
  readonly #waiting: Waiter[] = [];
  /** Groups by the numbers that they hold. */
  readonly #held = new Map<number, string>();
  /** The one demoted last is the last. */
  readonly #demoted = new Set<string>();

  constructor({ total, perGroup = total, what }: FairSlotsInit) {
    this.#total = total;
    this.#perGroup = perGroup;
    this.#what = what;
  }

  /** Groups that were not demoted lately go first, then those that hold fewer, then who came first. */
  take(group: string, signal: AbortSignal): Promise<FairSlot> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(cancelled(this.#what));
      const leave = (): void => {
        const index = this.#waiting.indexOf(waiter);
        if (index >= 0) this.#waiting.splice(index, 1);
        reject(cancelled(this.#what));
      };
      const waiter: Waiter = {
        group,
        resolve: (place) => {
          signal.removeEventListener("abort", leave);
          resolve(place);
        },
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#waiting.push(waiter);
      this.#fill();
    });
  }

  #fill(): void {
    while (this.#held.size < this.#total) {
      const next = this.#next();
      if (next === undefined) return;
      this.#waiting.splice(this.#waiting.indexOf(next), 1);
      next.resolve(this.#place(next.group));
    }
  }

  #next(): Waiter | undefined {
    const demoted = [...this.#demoted];
    const rank = ({ group }: Waiter): readonly number[] => [demoted.indexOf(group), this.#heldBy(group)];
    let best: { readonly waiter: Waiter; readonly rank: readonly number[] } | undefined;
    for (const waiter of this.#waiting) {
      if (this.#heldBy(waiter.group) >= this.#perGroup) continue;
      const own = rank(waiter);
      if (best === undefined || isBefore(own, best.rank)) best = { waiter, rank: own };
    }
    return best?.waiter;
  }

  #heldBy(group: string): number {
    let count = 0;
    for (const each of this.#held.values()) if (each === group) count += 1;
    return count;
  }

  #place(group: string): FairSlot {
    let index = 0;
    while (this.#held.has(index)) index += 1;
    this.#held.set(index, group);
    const isContended = (): boolean =>
      this.#held.size >= this.#total &&
      this.#waiting.some((each) => each.group !== group && this.#heldBy(each.group) < this.#perGroup);
    let isHeld = true;
    return {
      index,
      get isContended() {
        return isHeld && isContended();
      },
      report: (gotOn) => {
        this.#demoted.delete(group);
        if (!gotOn) this.#demoted.add(group);
        const [oldest] = this.#demoted;
        if (this.#demoted.size > MAX_DEMOTED && oldest !== undefined) this.#demoted.delete(oldest);
      },
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        this.#held.delete(index);
        // Not at once: when all leave, the next in line is about to leave too and must not be begun for that.
        queueMicrotask(() => this.#fill());
      },
    };
  }
}

function isBefore(one: readonly number[], other: readonly number[]): boolean {
  for (const [index, value] of one.entries()) if (value !== other[index]) return value < (other[index] ?? 0);
  return false;
}
