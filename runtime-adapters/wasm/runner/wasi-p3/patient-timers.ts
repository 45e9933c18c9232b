/**
 * The timers that jco's glue for WASI 0.3 is given. It looks whether there is something to do every 10 ms, and every
 * millisecond while the host waits for bytes: a thousand wake-ups a second of a component that does nothing. Here the
 * looks come the less often the longer nothing happens, and at once when something does: the host was called, what it
 * promised has come, or the glue itself has more to do at once.
 */

/** As `setTimeout`; gives what takes it back, and no handle of Node's, from which more could be reached. */
export type StartTimer = (milliseconds: number, act: () => void) => () => void;

/** Looks of the glue are of no more than that; longer timers of it are none of those. */
const LONGEST_LOOK_MS = 10;
/** While nothing happens; what comes by none of the three ways is seen after that. */
const LONGEST_PAUSE_MS = 100;
/** As many looks go by before they become rarer: a task resumed by one of them takes some. */
const PATIENCE = 16;
/** Bounds the timers of one component. The glue has a few for each stream. */
const MAX_TIMERS = 10_000;

interface Look {
  readonly act: () => void;
  readonly milliseconds: number;
  readonly repeats: boolean;
  cancel: () => void;
  /** True when it is next. */
  isSoon: boolean;
}

export class LongTimers {
  readonly #start: StartTimer;
  readonly #looks = new Map<number, Look>();
  #last = 0;
  #idle = 0;
  #isStopped = false;

  constructor(start: StartTimer) {
    this.#start = start;
  }

  /** Something happened: the next checks run soon. */
  wake(): void {
    this.#idle = 0;
    for (const [id, look] of this.#looks) {
      if (look.isSoon || look.milliseconds > LONGEST_LOOK_MS) continue;
      look.isSoon = true;
      look.cancel();
      look.cancel = this.#start(0, () => this.#fire(id, look));
    }
  }

  /** Stops all checks. */
  stop(): void {
    this.#isStopped = true;
    for (const id of [...this.#looks.keys()]) this.#drop(id);
  }

  /** The functions that the glue finds under these names. */
  get globals(): Readonly<Record<string, unknown>> {
    const drop = (id: unknown): void => this.#drop(id);
    return {
      setTimeout: (act: () => void, milliseconds = 0): number => this.#add(act, milliseconds, false),
      setInterval: (act: () => void, milliseconds = 1): number => this.#add(act, milliseconds, true),
      clearTimeout: drop,
      clearInterval: drop,
      // Only compared with: the host gives it none.
      ReadableStream: class ReadableStream {},
      queueMicrotask: (act: () => void): void => void Promise.resolve().then(act),
    };
  }

  #add(act: () => void, milliseconds: number, repeats: boolean): number {
    if (this.#looks.size >= MAX_TIMERS) throw new WebAssembly.RuntimeError(`wasm trap: more than ${MAX_TIMERS} timers`);
    this.#last += 1;
    const id = this.#last;
    if (this.#isStopped) return id;
    const cancel = (): void => undefined;
    const look: Look = { act, milliseconds: Math.max(0, Number(milliseconds) || 0), repeats, cancel, isSoon: false };
    this.#looks.set(id, look);
    this.#begin(id, look);
    return id;
  }

  #begin(id: number, look: Look): void {
    look.cancel();
    look.isSoon = look.milliseconds === 0;
    look.cancel = this.#start(this.#pauseFor(look), () => this.#fire(id, look));
  }

  #pauseFor({ milliseconds }: Look): number {
    const isLook = milliseconds > 0 && milliseconds <= LONGEST_LOOK_MS;
    if (!isLook || this.#idle <= PATIENCE) return milliseconds;
    return Math.min(milliseconds * (this.#idle - PATIENCE), LONGEST_PAUSE_MS);
  }

  #fire(id: number, look: Look): void {
    if (!look.repeats) this.#looks.delete(id);
    // Only a check that is due at once shows that there is more to do.
    if (look.milliseconds === 0) this.wake();
    else this.#idle += 1;
    look.act();
    if (look.repeats && this.#looks.get(id) === look) this.#begin(id, look);
  }

  #drop(id: unknown): void {
    const look = typeof id === "number" ? this.#looks.get(id) : undefined;
    if (look === undefined) return;
    look.cancel();
    this.#looks.delete(id as number);
  }
}
