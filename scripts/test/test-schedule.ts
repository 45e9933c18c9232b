/** The cost of a test file that runs alone on a quiet machine. */
export interface TestCost {
  readonly seconds: number;
  /** Processors that it keeps busy on average: 0.2 is a file that waits for most of its time. */
  readonly cores: number;
}

/** The cost of a file that was never measured; most of these are short. */
const UNKNOWN: TestCost = { seconds: 1, cores: 1 };
/** More than the processors have to do, so that they are not idle while a file does less than it does on average. */
const SURPLUS_CORES = 0.5;
/** A file that computes on all processors counts as one, or shorter files would always find room before it. */
const MAX_SHARE = 1;
/**
 * Bounds memory: a test file with a board of its own takes some 300 MiB. Most files compute for a third of their time,
 * so that fewer would leave processors idle.
 */
const MAX_AT_ONCE = 5;
/** How much of a processor tests use on a quiet machine. */
const USUAL_PACE = 0.85;
/** The usual pace counts for as much as one that was observed for so long, as files that end first are no measure. */
const USUAL_SECONDS = 120;

/** When a run has to be over. */
export interface TimeLimit {
  /** Counted as `now` counts. */
  readonly seconds: number;
  /** Seconds since the run began. */
  readonly now: () => number;
}

export interface ScheduleOptions {
  /** The costs of measured files. */
  readonly costs: ReadonlyMap<string, TestCost>;
  /** Processors of this machine. */
  readonly cores: number;
  /** Beside it nothing runs but what is small. */
  readonly isShy: (file: string) => boolean;
  /** Files with the same turn run one at a time; `undefined`: the file waits for none. */
  readonly turnOf: (file: string) => string | undefined;
  /** One process, that takes little of anything but of a processor. */
  readonly isSmall: (file: string) => boolean;
  /** Waits until `built` was called. Default: none does. */
  readonly needsBuild?: (file: string) => boolean;
  /** Files that need a build are left out where they would end later, those that are kept last. Default: none. */
  readonly limit?: TimeLimit | undefined;
  readonly isKept?: (file: string) => boolean;
}

type Kind = "large" | "shy" | "small";

interface TestFile extends TestCost {
  readonly path: string;
  /** Seconds of a processor of the machine where the costs were measured. */
  readonly work: number;
  readonly kind: Kind;
  readonly turn: string | undefined;
  readonly needsBuild: boolean;
  readonly isKept: boolean;
}

const ORDER: readonly Kind[] = ["large", "shy", "small"];

const workOf = (files: Iterable<TestFile>): number => Iterator.from(files).reduce((sum, { work }) => sum + work, 0);

/**
 * Decides when each test file begins: always the longest one for which the processors have room, so that files that
 * wait run beside files that compute, and no long file is left for the end. Small files run while the others wait for
 * the build, and then, if there are shy ones, wait until no large one does, because those run beside small ones only.
 *
 * With a limit, it compares the time that is left with the work that is left, at the pace of this machine so far, and
 * leaves out the costliest files of those that are not kept, which loses the fewest.
 */
export class TestSchedule {
  readonly #waiting: TestFile[];
  readonly #running = new Map<string, TestFile>();
  readonly #cores: number;
  readonly #usualPace: number;
  readonly #limit: TimeLimit | undefined;
  readonly #leftOut: string[] = [];
  #isBuilt = false;
  #builtAt = 0;
  /** The work of files that have ended since all was built. */
  #workDone = 0;

  constructor(
    paths: readonly string[],
    { costs, cores, isShy, isSmall, turnOf, needsBuild = () => false, limit, isKept = () => false }: ScheduleOptions,
  ) {
    this.#cores = cores + SURPLUS_CORES;
    this.#usualPace = cores * USUAL_PACE;
    this.#limit = limit;
    const keepsSmall = paths.some(isShy);
    this.#waiting = paths
      .map((path): TestFile => {
        const kind = isShy(path) ? "shy" : keepsSmall && isSmall(path) ? "small" : "large";
        const { seconds, cores: busy } = costs.get(path) ?? UNKNOWN;
        const share = Math.min(busy, MAX_SHARE);
        const work = seconds * busy;
        const means = { turn: turnOf(path), needsBuild: needsBuild(path), isKept: isKept(path) };
        return { path, kind, seconds, work, cores: share, ...means };
      })
      .sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind) || b.seconds - a.seconds);
    if (!this.#waiting.some((each) => each.needsBuild)) this.#isBuilt = true;
  }

  /** All that the files need is there. */
  built(): void {
    this.#isBuilt = true;
    this.#builtAt = this.#limit?.now() ?? 0;
    this.#workDone = 0;
  }

  /** The files that do not run, because there is no time for them. */
  get leftOut(): readonly string[] {
    return this.#leftOut;
  }

  /** @returns the file that begins now; `undefined`: none, until another one has ended */
  next(): string | undefined {
    if (this.#limit !== undefined && this.#isBuilt) this.#leaveOut(this.#limit);
    if (this.#running.size >= MAX_AT_ONCE) return undefined;
    const index = this.#waiting.findIndex((file) => this.#hasRoomFor(file) && this.#getsOnWith(file));
    const [file] = index < 0 ? [] : this.#waiting.splice(index, 1);
    if (file !== undefined) this.#running.set(file.path, file);
    return file?.path;
  }

  ended(path: string): void {
    this.#workDone += this.#running.get(path)?.work ?? 0;
    this.#running.delete(path);
  }

  #leaveOut({ seconds, now }: TimeLimit): void {
    const begun = workOf(this.#running.values()) / 2;
    const observed = now() - this.#builtAt;
    const pace = (this.#usualPace * USUAL_SECONDS + this.#workDone + begun) / (USUAL_SECONDS + observed);
    const left = seconds - now();
    const slowness = this.#usualPace / pace;
    for (const each of this.#waiting.filter((file) => file.seconds * slowness > left)) this.#dismiss(each);
    const turns = Map.groupBy(this.#waiting, ({ turn }) => turn);
    for (const [turn, files] of turns)
      if (turn !== undefined)
        this.#shorten(files, left, (some) => slowness * some.reduce((sum, each) => sum + each.seconds, 0));
    this.#shorten(this.#waiting, left, (some) => (workOf(some) + begun) / pace);
  }

  /** Leaves out the costliest of `files`, until the others take no longer than `left`. */
  #shorten(files: readonly TestFile[], left: number, secondsOf: (files: readonly TestFile[]) => number): void {
    const kept = files.toSorted((a, b) => Number(b.isKept) - Number(a.isKept) || a.work - b.work);
    while (secondsOf(kept) > left) {
      const index = kept.findLastIndex((each) => each.needsBuild);
      const [costliest] = index < 0 ? [] : kept.splice(index, 1);
      if (costliest === undefined) return;
      this.#dismiss(costliest);
    }
  }

  #dismiss(file: TestFile): void {
    if (!file.needsBuild) return;
    this.#waiting.splice(this.#waiting.indexOf(file), 1);
    this.#leftOut.push(file.path);
  }

  #hasRoomFor({ cores }: TestFile): boolean {
    const busy = this.#running.values().reduce((sum, each) => sum + each.cores, 0);
    return this.#running.size === 0 || busy + cores <= this.#cores;
  }

  #getsOnWith({ kind, turn, needsBuild }: TestFile): boolean {
    if (!this.#isBuilt) return !needsBuild;
    if (turn !== undefined && this.#running.values().some((each) => each.turn === turn)) return false;
    // Kept for the time of the shy ones, which nothing else can fill.
    if (kind === "small") return !this.#waiting.some((each) => each.kind === "large" && each.turn === undefined);
    const areRunning = (...kinds: readonly Kind[]): boolean =>
      this.#running.values().some((each) => kinds.includes(each.kind));
    if (kind === "large") return !areRunning("shy");
    return !areRunning("large", "shy") && !this.#waiting.some((each) => each.kind === "large");
  }
}

/** Runs each file, as the schedule has it. `building` ends when all that the files need is there. */
export async function runScheduled(
  schedule: TestSchedule,
  run: (file: string) => Promise<void>,
  building: Promise<unknown> = Promise.resolve(),
): Promise<void> {
  const running = new Set<Promise<void>>();
  const built = building.then(() => {
    schedule.built();
    running.delete(built);
  });
  running.add(built);
  for (;;) {
    for (let file = schedule.next(); file !== undefined; file = schedule.next()) running.add(track(file));
    if (running.size === 0) return;
    await Promise.race(running);
  }

  function track(file: string): Promise<void> {
    const whole = run(file).finally(() => {
      schedule.ended(file);
      running.delete(whole);
    });
    return whole;
  }
}
