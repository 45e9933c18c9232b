import { type CancelSignal, type Clock, type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";

/** The time of an authenticated hub, and when it was received. */
interface Reference {
  readonly timeMs: number;
  readonly at: MonotonicMs;
  readonly errorMs: number;
}

/** Two clocks that are both right differ by less: NTP by milliseconds, a good RTC by seconds a week. */
const TOLERANCE_MS = 120_000;
/** An answer that took longer says little of the time now. */
const MAX_ROUND_TRIP_MS = 30_000;

/**
 * The machine's clock, made right where it cannot be: never before the floor, the latest time that is known to be over;
 * and as the hub says, once it has said it in this life of the agent, where the two disagree. Only what is
 * authenticated moves the floor: a machine's clock that a false NTP server, or a dying RTC, put into the future must
 * not.
 */
export class CorrectedClock implements Clock {
  readonly #machine: Clock;
  #floorMs: number;
  #reference: Reference | undefined;

  /** @param init.floorMs when this program was made, at the least */
  constructor(machine: Clock, init: { readonly floorMs: number }) {
    this.#machine = machine;
    this.#floorMs = init.floorMs;
  }

  monotonic(): MonotonicMs {
    return this.#machine.monotonic();
  }

  sleep(duration: Millis, signal: CancelSignal): Promise<void> {
    return this.#machine.sleep(duration, signal);
  }

  wall(): Date {
    const machine = this.#machine.wall();
    const now = this.#isRight(machine) ? machine.getTime() : (this.#estimate() ?? machine.getTime());
    return now < this.#floorMs ? new Date(this.#floorMs) : new Date(now);
  }

  get floorMs(): number {
    return this.#floorMs;
  }

  /**
   * True once a hub has confirmed the time since the start. Before that `wall` may be behind: it is a lower bound, or
   * wrong.
   */
  get isConfirmed(): boolean {
    return this.#reference !== undefined;
  }

  /** True when the machine's clock, which OpenSSL uses, is right too. */
  get isMachineRight(): boolean {
    return this.#reference !== undefined && this.#isRight(this.#machine.wall());
  }

  /** @param timeMs a past time, from a trusted source */
  raiseFloor(timeMs: number): void {
    if (timeMs > this.#floorMs) this.#floorMs = timeMs;
  }

  /** @param timeMs what an authenticated hub says, some time within the last `roundTripMs` */
  observe(timeMs: number, roundTripMs: number): void {
    if (roundTripMs < 0 || roundTripMs > MAX_ROUND_TRIP_MS || !Number.isFinite(timeMs)) return;
    this.raiseFloor(timeMs);
    this.#reference = { timeMs: timeMs + roundTripMs / 2, at: this.monotonic(), errorMs: roundTripMs / 2 };
  }

  #estimate(): number | undefined {
    const reference = this.#reference;
    return reference === undefined ? undefined : reference.timeMs + (this.monotonic() - reference.at);
  }

  #isRight(machine: Date): boolean {
    const estimate = this.#estimate();
    if (estimate === undefined) return true;
    return Math.abs(machine.getTime() - estimate) <= TOLERANCE_MS + (this.#reference?.errorMs ?? 0);
  }
}

/**
 * Bounds how far the floor on disk may be behind, and with it the certificates that have expired and that a board whose
 * clock says 1970 may still accept.
 */
export const FLOOR_LAG: Millis = millis(6 * 3_600_000);
