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
const MAX_AT_ONCE = 4;

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
}

type Kind = "large" | "shy" | "small";

interface TestFile extends TestCost {
  readonly path: string;
  readonly kind: Kind;
  readonly turn: string | undefined;
  readonly needsBuild: boolean;
}

const ORDER: readonly Kind[] = ["large", "shy", "small"];

/**
 * Decides when each test file begins: always the longest one for which the processors have room, so that files that
 * wait run beside files that compute, and no long file is left for the end. Small files run while the others wait for
 * the build, and then wait until no large one does, because the shy ones run beside small ones only.
 */
export class TestSchedule {
  readonly #waiting: TestFile[];
  readonly #running = new Map<string, TestFile>();
  readonly #cores: number;
  #isBuilt = false;

  constructor(
    paths: readonly string[],
    { costs, cores, isShy, isSmall, turnOf, needsBuild = () => false }: ScheduleOptions,
  ) {
    this.#cores = cores + SURPLUS_CORES;
    this.#waiting = paths
      .map((path): TestFile => {
        const kind = isShy(path) ? "shy" : isSmall(path) ? "small" : "large";
        const { seconds, cores: busy } = costs.get(path) ?? UNKNOWN;
        const share = Math.min(busy, MAX_SHARE);
        return { path, kind, seconds, cores: share, turn: turnOf(path), needsBuild: needsBuild(path) };
      })
      .sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind) || b.seconds - a.seconds);
    if (!this.#waiting.some((each) => each.needsBuild)) this.#isBuilt = true;
  }

  /** All that the files need is there. */
  built(): void {
    this.#isBuilt = true;
  }

  /** @returns the file that begins now; `undefined`: none, until another one has ended */
  next(): string | undefined {
    if (this.#running.size >= MAX_AT_ONCE) return undefined;
    const index = this.#waiting.findIndex((file) => this.#hasRoomFor(file) && this.#getsOnWith(file));
    const [file] = index < 0 ? [] : this.#waiting.splice(index, 1);
    if (file !== undefined) this.#running.set(file.path, file);
    return file?.path;
  }

  ended(path: string): void {
    this.#running.delete(path);
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
