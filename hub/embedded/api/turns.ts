import { KIBIBYTE } from "@picolet/protocol/units.ts";

/** Texts that are read in one part: 1 to 5 ms. */
export const SLICE_BYTES = 256 * KIBIBYTE;
/** Work that took longer is not carried on in the same round. */
export const SLICE_MS = 10;

/**
 * Divides long work. Each round of the event loop carries on one part of one request, so that all other requests are
 * read, answered and written between two parts, and budgets take turns however many requests each of them has.
 *
 * Holds one entry for each request in flight that does long work; the limit of requests in flight is its limit.
 */
export class Turns {
  readonly #budgetOf: (user: string) => string;
  /** By budget, in the order of turns. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #isScheduled = false;

  /** @param budgetOf what a user's turns are counted by; default: its name */
  constructor(budgetOf: (user: string) => string = (user) => user) {
    this.#budgetOf = budgetOf;
  }

  /** Resolves in a round of its own. */
  next(user: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const budget = this.#budgetOf(user);
    const own = this.#waiting.get(budget);
    if (own === undefined) this.#waiting.set(budget, [resolve]);
    else own.push(resolve);
    this.#schedule();
    return promise;
  }

  /** For a loop over many texts. */
  slices(user: string): Slices {
    return new Slices(this, user);
  }

  #schedule(): void {
    if (this.#isScheduled || this.#waiting.size === 0) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#take()?.();
      this.#schedule();
    });
  }

  #take(): (() => void) | undefined {
    const [budget, own] = this.#waiting.entries().next().value ?? [];
    if (budget === undefined || own === undefined) return undefined;
    const first = own.shift();
    // Behind all others, if this budget has more.
    this.#waiting.delete(budget);
    if (own.length > 0) this.#waiting.set(budget, own);
    return first;
  }
}

/** Pauses a loop when it has worked on SLICE_BYTES. */
class Slices {
  readonly #turns: Turns;
  readonly #user: string;
  #length = 0;

  constructor(turns: Turns, user: string) {
    this.#turns = turns;
    this.#user = user;
  }

  /**
   * @param length of the text that is next
   * @returns what to wait for before it; undefined: nothing
   */
  add(length: number): Promise<void> | undefined {
    this.#length += length;
    if (this.#length < SLICE_BYTES) return undefined;
    this.#length = 0;
    return this.#turns.next(this.#user);
  }
}
