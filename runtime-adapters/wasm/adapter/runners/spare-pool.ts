/**
 * Runners that are kept ready, so that a container which has ended runs again in the time of its instantiation. Made
 * when there is time, given up when the node is short of memory.
 */
import { mkdirSync, rmSync } from "node:fs";
import { describeError, ignore } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import type { Isolation } from "../isolation/isolation.ts";
import type { SpareRunner } from "./spare-runner.ts";

export interface SparePoolComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly cgroups: CgroupPort | undefined;
  readonly isolation: Isolation;
  readonly disposed: AbortSignal;
}

export interface SparePoolInit {
  /** How many are kept, some 10 MiB each. 0: none. */
  readonly size: number;
  /** The folder for their standard error; made if it is missing. */
  readonly directory: string;
  /** cgroupfs path of those that wait; undefined: the agent's own. */
  readonly cgroupPath: string | undefined;
}

/** A start that has just begun comes first. */
const REFILL_DELAY = millis(500);
/** How long no spare is made after memory was short. */
const SHED_DURATION: Millis = seconds(300);

export class SparePool {
  readonly #components: SparePoolComponents;
  readonly #init: SparePoolInit;
  #spares: { readonly runner: SpareRunner; readonly network: boolean }[] = [];
  #refilling: Promise<void> | undefined;
  #count = 0;
  #shedUntil = 0;

  constructor(components: SparePoolComponents, init: SparePoolInit) {
    this.#components = components;
    this.#init = init;
    components.disposed.addEventListener("abort", () => this.#giveUpAll(), { once: true });
  }

  /** The number of spares that wait now. */
  get waiting(): number {
    return this.#spares.length;
  }

  /** Resolves when there are as many as there should be. */
  get settled(): Promise<void> {
    return this.#refilling ?? Promise.resolve();
  }

  /**
   * One of the wrong kind makes room, so that the next restart of this kind finds its own.
   * @param network whether its runner may reach the node's
   */
  take(network: boolean): SpareRunner | undefined {
    const index = this.#spares.findIndex((each) => each.network === network && !each.runner.isOver);
    if (index >= 0) return this.#spares.splice(index, 1)[0]?.runner;
    this.#spares.shift()?.runner.giveUp();
    return undefined;
  }

  /** A container has ended, and may be started again at once. */
  wakeUp(): void {
    for (const { runner } of this.#spares) runner.wakeUp();
  }

  /** After a start: the next restart is likely one of the same kind. */
  refill(network: boolean): void {
    if (this.#init.size === 0 || this.#refilling !== undefined) return;
    this.#refilling = this.#fill(network)
      .catch((error: unknown) => {
        this.#components.log.warn("a spare runner cannot be started", { error: describeError(error) });
      })
      .finally(() => {
        this.#refilling = undefined;
      });
  }

  /** Memory is short. */
  shed(): void {
    this.#shedUntil = this.#components.clock.monotonic() + SHED_DURATION;
    this.#giveUpAll();
  }

  async #fill(network: boolean): Promise<void> {
    const { clock, isolation, cgroups, disposed } = this.#components;
    await clock.sleep(REFILL_DELAY, disposed).catch(ignore("a disposed pool is not filled"));
    this.#spares = this.#spares.filter(({ runner }) => !runner.isOver);
    const isWanted = (): boolean =>
      !disposed.aborted && clock.monotonic() >= this.#shedUntil && this.#spares.length < this.#init.size;
    while (isWanted()) {
      const command = await isolation.spare(network);
      if (command === undefined) return;
      const { directory, cgroupPath } = this.#init;
      const group = cgroupPath === undefined ? undefined : await cgroups?.create(cgroupPath, {});
      // An agent that was killed has left these.
      if (this.#count === 0) rmSync(directory, { recursive: true, force: true });
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      // With Node's child processes, as all that starts one.
      const { SpareRunner } = await import("./spare-runner.ts");
      if (!isWanted()) return;
      this.#count += 1;
      const fatalPath = `${directory}/${process.pid}-${this.#count}`;
      const runner = new SpareRunner({ command, procsFiles: group?.procsFiles ?? [], fatalPath });
      this.#spares.push({ runner, network });
    }
  }

  #giveUpAll(): void {
    for (const { runner } of this.#spares) runner.giveUp();
    this.#spares = [];
    rmSync(this.#init.directory, { recursive: true, force: true });
  }
}
