/**
 * The timers of jco's glue for WASI 0.3. The glue polls for work every 10 ms, and every millisecond while the host
 * waits for bytes, which would wake an idle component a thousand times a second. Here polls become rarer while nothing
 * happens, and run at once when the host is called, when a promise of the host settles, or when the glue itself has
 * more work at once.
 */

/** Like `setTimeout`, but returns the function that cancels it. A handle of Node's would give access to more. */
export type StartTimer = (milliseconds: number, act: () => void) => () => void;

/** Timers up to this length are the glue's polls. */
const LONGEST_POLL_MS = 10;
/** The longest interval of polls, and the delay of events that no call announces. */
const LONGEST_PAUSE_MS = 100;
/** Polls without an event before they become rarer. A task that one of them resumes takes some. */
const PATIENCE = 16;
/** Bounds the timers of one component. The glue has a few for each stream. */
const MAX_TIMERS = 10_000;

interface Timer {
  readonly act: () => void;
  readonly milliseconds: number;
  readonly repeats: boolean;
  cancel: () => void;
  /** True when it is next. */
  isSoon: boolean;
}

export class LongTimers {
  readonly #start: StartTimer;
  readonly #timers = new Map<number, Timer>();
  #last = 0;
  #idle = 0;
  #isStopped = false;

  constructor(start: StartTimer) {
    this.#start = start;
  }

  /** Something happened: the next checks run soon. */
  wake(): void {
    this.#idle = 0;
    for (const [id, timer] of this.#timers) {
      if (timer.isSoon || timer.milliseconds > LONGEST_POLL_MS) continue;
      timer.isSoon = true;
      timer.cancel();
      timer.cancel = this.#start(0, () => this.#fire(id, timer));
    }
  }

  /** Stops all checks. */
  stop(): void {
    this.#isStopped = true;
    for (const id of [...this.#timers.keys()]) this.#drop(id);
  }

  /** The functions that the glue finds under these names. */
  get globals(): Readonly<Record<string, unknown>> {
    const drop = (id: unknown): void => this.#drop(id);
    return {
      setTimeout: (act: () => void, milliseconds = 0): number => this.#add(act, milliseconds, false),
      setInterval: (act: () => void, milliseconds = 1): number => this.#add(act, milliseconds, true),
      clearTimeout: drop,
      clearInterval: drop,
      // The glue only compares with it: the host passes no such stream.
      ReadableStream: class ReadableStream {},
      queueMicrotask: (act: () => void): void => void Promise.resolve().then(act),
    };
  }

  #add(act: () => void, milliseconds: number, repeats: boolean): number {
    if (this.#timers.size >= MAX_TIMERS)
      throw new WebAssembly.RuntimeError(`wasm trap: more than ${MAX_TIMERS} timers`);
    this.#last += 1;
    const id = this.#last;
    if (this.#isStopped) return id;
    const cancel = (): void => undefined;
    const timer: Timer = { act, milliseconds: Math.max(0, Number(milliseconds) || 0), repeats, cancel, isSoon: false };
    this.#timers.set(id, timer);
    this.#begin(id, timer);
    return id;
  }

  #begin(id: number, timer: Timer): void {
    timer.cancel();
    timer.isSoon = timer.milliseconds === 0;
    timer.cancel = this.#start(this.#pauseFor(timer), () => this.#fire(id, timer));
  }

  #pauseFor({ milliseconds }: Timer): number {
    const isPoll = milliseconds > 0 && milliseconds <= LONGEST_POLL_MS;
    if (!isPoll || this.#idle <= PATIENCE) return milliseconds;
    return Math.min(milliseconds * (this.#idle - PATIENCE), LONGEST_PAUSE_MS);
  }

  #fire(id: number, timer: Timer): void {
    if (!timer.repeats) this.#timers.delete(id);
    // Only a check that is due at once shows that there is more to do.
    if (timer.milliseconds === 0) this.wake();
    else this.#idle += 1;
    timer.act();
    if (timer.repeats && this.#timers.get(id) === timer) this.#begin(id, timer);
  }

  #drop(id: unknown): void {
    const timer = typeof id === "number" ? this.#timers.get(id) : undefined;
    if (timer === undefined) return;
    timer.cancel();
    this.#timers.delete(id as number);
  }
}
