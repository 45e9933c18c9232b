/** Runs the parts of `npm run bench` in their phases: what may go on side by side, and what a failure costs. */
import { describeError } from "@picolet/protocol/errors.ts";

/** Processes that a part has started, and leaves alone from now on. Its disposal ends them. */
export interface Resting extends AsyncDisposable {
  /** Waits, beside those of other parts, while nothing else runs. @returns the part's figures so far */
  readonly rest: () => Promise<unknown>;
  /** After the rest of all parts, while what was started is still there. @returns the part's figures */
  readonly finish?: () => Promise<unknown>;
}

export interface PartWork {
  readonly setUp?: () => Promise<Resting>;
  /** @param rested figures of `rest` or `finish`. @returns the part's figures, with those of `rested` */
  readonly measure?: (rested: unknown) => Promise<unknown>;
}

/**
 * In this order. Parts are at work one after the other in `setUp` and `measure`, at the same time in `rest` and `end`,
 * in which they finish and are disposed of. None is in `measure` while anything rests.
 */
export const PHASES = ["setUp", "rest", "end", "measure"] as const;
export type Phase = (typeof PHASES)[number];

export type Seconds = Partial<Record<Phase, number>>;

export interface PartError {
  readonly phase: Phase;
  readonly message: string;
}

export interface RunState<Name extends string> {
  /** Figures of the parts that have any; a failed part has those that came before its failure. */
  readonly figures: Partial<Record<Name, unknown>>;
  readonly errors: Partial<Record<Name, PartError>>;
  /** Parts that are neither done nor failed. */
  readonly unfinished: readonly Name[];
  readonly durations: {
    /** From the beginning of each phase to its end. */
    readonly phases: Seconds;
    readonly parts: Partial<Record<Name, Seconds>>;
  };
}

export interface RunOptions<Name extends string> {
  /** Milliseconds from any point in time on. */
  readonly now: () => number;
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  /** A part that takes longer has failed; the others go on, although it may still be at work. */
  readonly limitMs: (name: Name, phase: Phase) => number;
  /** Figures have come, or a part has failed. */
  readonly onChange: (state: RunState<Name>) => void;
  readonly onError: (name: Name, phase: Phase, error: unknown) => void;
}

/** A part that fails ends itself and no other. The order of parts is that of `works`; they start in the reverse one. */
export async function runParts<Name extends string>(
  works: Readonly<Record<Name, PartWork>>,
  options: RunOptions<Name>,
): Promise<RunState<Name>> {
  return await new BenchRun(works, options).run();
}

class BenchRun<Name extends string> {
  readonly #works: Readonly<Record<Name, PartWork>>;
  readonly #names: readonly Name[];
  readonly #options: RunOptions<Name>;
  readonly #done = new Set<Name>();
  readonly #figures = new Map<Name, unknown>();
  readonly #errors = new Map<Name, PartError>();
  readonly #phases: Seconds = {};
  readonly #parts: ReadonlyMap<Name, Seconds>;
  readonly #resting = new Map<Name, Resting>();

  constructor(works: Readonly<Record<Name, PartWork>>, options: RunOptions<Name>) {
    this.#works = works;
    this.#names = Object.keys(works) as Name[];
    this.#options = options;
    this.#parts = new Map(this.#names.map((name) => [name, {}]));
  }

  async run(): Promise<RunState<Name>> {
    // The last first: a part at the beginning rests from its own start on, and not only from that of the others.
    await this.#inTurn("setUp", this.#names.toReversed(), async (name) => {
      const resting = await this.#works[name].setUp?.();
      if (resting !== undefined) this.#resting.set(name, resting);
    });
    await this.#sideBySide("rest", async (name) => this.#keep(name, await this.#resting.get(name)?.rest()));
    await this.#sideBySide("end", async (name) => {
      await using resting = this.#resting.get(name);
      // The processes of a failed part are ended all the same.
      if (!this.#errors.has(name)) this.#keep(name, await resting?.finish?.());
    });
    await this.#inTurn("measure", this.#names, async (name) => {
      this.#keep(name, await this.#works[name].measure?.(this.#figures.get(name)));
    });
    return this.#state();
  }

  async #inTurn(phase: Phase, names: readonly Name[], work: (name: Name) => Promise<void>): Promise<void> {
    await this.#timed(this.#phases, phase, async () => {
      for (const name of names) await this.#attempt(name, phase, work);
    });
  }

  async #sideBySide(phase: Phase, work: (name: Name) => Promise<void>): Promise<void> {
    await this.#timed(this.#phases, phase, async () => {
      await Promise.all(this.#names.map((name) => this.#attempt(name, phase, work)));
    });
  }

  async #attempt(name: Name, phase: Phase, work: (name: Name) => Promise<void>): Promise<void> {
    if (!this.#has(name, phase) || (this.#errors.has(name) && phase !== "end")) return;
    try {
      await this.#timed(this.#parts.get(name) ?? {}, phase, () => this.#limited(name, phase, work));
    } catch (error) {
      if (!this.#errors.has(name)) this.#errors.set(name, { phase, message: describeError(error) });
      this.#options.onError(name, phase, error);
    }
    if (!PHASES.slice(PHASES.indexOf(phase) + 1).some((later) => this.#hasFigures(name, later))) this.#done.add(name);
    if (this.#figures.has(name) || this.#errors.has(name)) this.#options.onChange(this.#state());
  }

  async #limited(name: Name, phase: Phase, work: (name: Name) => Promise<void>): Promise<void> {
    const over = new AbortController();
    const limitMs = this.#options.limitMs(name, phase);
    const late = this.#options.sleep(limitMs, over.signal).then(() => {
      throw new Error(`it has not come to an end within ${limitMs / 1000} s`);
    });
    try {
      await Promise.race([work(name), late]);
    } finally {
      over.abort();
    }
  }

  #has(name: Name, phase: Phase): boolean {
    const { setUp, measure } = this.#works[name];
    if (phase === "setUp") return setUp !== undefined;
    if (phase === "measure") return measure !== undefined;
    return this.#resting.has(name);
  }

  #hasFigures(name: Name, phase: Phase): boolean {
    return phase === "end" ? this.#resting.get(name)?.finish !== undefined : this.#has(name, phase);
  }

  #keep(name: Name, figures: unknown): void {
    if (figures !== undefined) this.#figures.set(name, figures);
  }

  async #timed(seconds: Seconds, phase: Phase, work: () => Promise<void>): Promise<void> {
    const from = this.#options.now();
    try {
      await work();
    } finally {
      seconds[phase] = Math.round((this.#options.now() - from) / 100) / 10;
    }
  }

  #inOrder<T>(values: ReadonlyMap<Name, T>): Partial<Record<Name, T>> {
    const entries = this.#names.flatMap((name) => (values.has(name) ? [[name, values.get(name)]] : []));
    return Object.fromEntries(entries) as Partial<Record<Name, T>>;
  }

  #state(): RunState<Name> {
    return {
      figures: this.#inOrder(this.#figures),
      errors: this.#inOrder(this.#errors),
      unfinished: this.#names.filter((name) => !this.#done.has(name) && !this.#errors.has(name)),
      durations: { phases: { ...this.#phases }, parts: structuredClone(this.#inOrder(this.#parts)) },
    };
  }
}
