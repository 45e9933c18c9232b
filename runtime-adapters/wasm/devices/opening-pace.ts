import { type Clock, type MonotonicMs, millis } from "../../../protocol/ports.ts";

/** A component opens what its pod names when it begins, a dozen lines or so. */
const AT_ONCE = 32;
/**
 * From then on. Each starts a process of the node's, outside of the pod's limits, which takes a board's core for a tenth of a second
 * and more: a component that opens in a loop what is not there takes no more of it than a twentieth.
 */
const INTERVAL_MS = 2000;
/** Containers remembered; those that have all of theirs again are forgotten first. */
const MAX_CONTAINERS = 256;

interface Left {
  readonly openings: number;
  readonly at: MonotonicMs;
}

/** How often a container may have something opened: who asks for more waits. */
export class OpeningPace {
  readonly #clock: Pick<Clock, "monotonic" | "sleep">;
  readonly #left = new Map<string, Left>();

  constructor(clock: Pick<Clock, "monotonic" | "sleep">) {
    this.#clock = clock;
  }

  /** @throws `cancelled` */
  async wait(containerId: string, signal: AbortSignal): Promise<void> {
    const openings = this.#openings(containerId) - 1;
    this.#left.delete(containerId);
    this.#forget();
    this.#left.set(containerId, { openings, at: this.#clock.monotonic() });
    if (openings < 0) await this.#clock.sleep(millis(Math.ceil(-openings * INTERVAL_MS)), signal);
  }

  #openings(containerId: string): number {
    const { openings, at } = this.#left.get(containerId) ?? { openings: AT_ONCE, at: this.#clock.monotonic() };
    return Math.min(AT_ONCE, openings + (this.#clock.monotonic() - at) / INTERVAL_MS);
  }

  #forget(): void {
    if (this.#left.size < MAX_CONTAINERS) return;
    for (const id of this.#left.keys()) if (this.#openings(id) === AT_ONCE) this.#left.delete(id);
    const [oldest] = this.#left.keys();
    if (this.#left.size >= MAX_CONTAINERS && oldest !== undefined) this.#left.delete(oldest);
  }
}
