import { cancelled } from "@picolet/protocol/async/abort.ts";
import type { Probe } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Millis, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";
import { type ProbeOutcome, ProbeTimeout } from "./handlers/probe-outcome.ts";
import { extendStreak, type Streak } from "./thresholds.ts";
import { type Timetable, TimetableEntry } from "./timetable.ts";

export type ProbeKind = "Liveness" | "Readiness" | "Startup";

export interface TaskComponents {
  readonly clock: Clock;
  readonly timetable: Timetable;
}

/** Whose probe it is. */
export interface TaskOwner {
  deadlineOf(probe: Probe): Millis;
  /** Never rejects. */
  attempt(probe: Probe, signal: AbortSignal): Promise<ProbeOutcome>;
  /** Called after each run that was not stopped, with the attempts of the run together. */
  ran(task: ProbeTask, outcome: ProbeOutcome, duration: number): void;
  /** Called when a result has come so often in a row that it counts, and with each further one. */
  judged(task: ProbeTask, streak: Streak): void;
}

type TaskState =
  /** Not started, or finished for this run of the container. */
  | { readonly kind: "resting" }
  | ({ readonly kind: "waiting" } & Beat)
  | ({ readonly kind: "running"; readonly abort: AbortController } & Beat);

interface Beat {
  readonly due: MonotonicMs;
  /** When its period begins; undefined: with this run. */
  readonly beat?: MonotonicMs | undefined;
}

/**
 * From the second run on a probe's beat is one of these marks, four in a second, so that the processor wakes for
 * several at once: a third of the CPU with 300 probes a node (`npm run bench`). The first run waits for nothing.
 */
const BEAT_MS = 250;
/** Bounds the attempts of one run. An attempt that cannot be carried out is repeated at once, as in the kubelet. */
const MAX_ATTEMPTS = 3;
const RESTING: TaskState = { kind: "resting" };

/** One probe of one run of a container: a wake in the timetable while it waits, one connection while it runs. */
export class ProbeTask {
  readonly kind: ProbeKind;
  readonly probe: Probe;
  readonly #components: TaskComponents;
  readonly #owner: TaskOwner;
  readonly #wake = new TimetableEntry(() => void this.#run());
  #state: TaskState = RESTING;
  #streak: Streak | undefined;

  constructor(components: TaskComponents, owner: TaskOwner, kind: ProbeKind, probe: Probe) {
    this.#components = components;
    this.#owner = owner;
    this.kind = kind;
    this.probe = probe;
  }

  /**
   * Runs from `at` on once a period. If it has begun already, it goes on unchanged.
   * @param beat when the second run comes; undefined: a period after the first
   */
  begin(at: MonotonicMs, beat?: MonotonicMs): void {
    if (this.#state.kind === "resting") this.#waitUntil({ due: at, beat });
  }

  /** Stops the probe; a running attempt is aborted. */
  stop(): void {
    const state = this.#state;
    this.#state = RESTING;
    this.#components.timetable.cancel(this.#wake);
    if (state.kind === "running") state.abort.abort(cancelled("the probe"));
  }

  #waitUntil(beat: Beat): void {
    this.#state = { kind: "waiting", ...beat };
    this.#components.timetable.set(this.#wake, beat.due);
  }

  async #run(): Promise<void> {
    const { clock } = this.#components;
    if (this.#state.kind !== "waiting") return;
    const startedAt = clock.monotonic();
    const { due, beat } = this.#state;
    let outcome = await this.#attempt({ due, beat });
    for (let attempts = 1; outcome?.kind === "error" && !outcome.final && attempts < MAX_ATTEMPTS; attempts += 1) {
      outcome = await this.#attempt({ due, beat });
    }
    if (outcome === undefined) return;
    const now = clock.monotonic();
    // Set before the owner is called, because the owner may stop the task.
    const period = seconds(this.probe.periodSeconds);
    this.#waitUntil({ due: beat !== undefined && beat > now ? beat : nextDue(due, period, now) });
    this.#owner.ran(this, outcome, now - startedAt);
    if (outcome.kind === "error") return;
    const { streak, counts } = extendStreak(
      this.#streak,
      outcome.kind === "failure" ? "failure" : "success",
      this.probe,
    );
    this.#streak = streak;
    if (counts) this.#owner.judged(this, streak);
  }

  /** @returns `undefined` when it was stopped meanwhile */
  async #attempt(beat: Beat): Promise<ProbeOutcome | undefined> {
    const { clock, timetable } = this.#components;
    const abort = new AbortController();
    const state: TaskState = { kind: "running", ...beat, abort };
    this.#state = state;
    const deadline = new TimetableEntry(() => abort.abort(new ProbeTimeout()));
    timetable.set(deadline, (clock.monotonic() + this.#owner.deadlineOf(this.probe)) as MonotonicMs);
    const outcome = await this.#owner.attempt(this.probe, abort.signal);
    timetable.cancel(deadline);
    return this.#state === state ? outcome : undefined;
  }
}

/**
 * On the grid of its periods: one that was missed is made up for at once, of several only the last. The grid moves to
 * the next mark when it is not on one. Pure.
 */
export function nextDue(due: MonotonicMs, period: Millis, now: MonotonicMs): MonotonicMs {
  const missed = Math.floor((now - due) / period);
  const next = due + Math.max(1, missed) * period;
  return (Math.ceil(next / BEAT_MS) * BEAT_MS) as MonotonicMs;
}
