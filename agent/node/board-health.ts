import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { type Clock, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";
import type { PressureCondition } from "../core/node/node-pressure.ts";
import { type BoardLimits, type BoardHealth as Health, nextBoardHealth } from "../plan/node/board-conditions.ts";
import type { BoardSensors } from "./board-sensors.ts";

export interface BoardHealthComponents {
  readonly sensors: Pick<BoardSensors, "find" | "read">;
  /** False while the clock shows a time before the program was made. */
  readonly isClockSet: () => boolean;
  /** True while a hub confirms the machine's time; then the time service does not matter. */
  readonly isClockConfirmed: () => boolean;
  readonly clock: Clock;
}

/** A reading is some ten small files, and a firmware call on a Raspberry Pi. */
const INTERVAL = seconds(30);
/** Drivers that are loaded late are found by then. */
const FIND_EVERY = seconds(600);
/** How long a time service may take after the start until its silence is reported. */
const SYNCHRONIZATION_GRACE = seconds(600);

/** Reads the board's sensors, and publishes conditions of what is wrong. */
export class BoardHealth implements Component {
  readonly name = "board health";
  readonly #components: BoardHealthComponents;
  readonly #limits: BoardLimits;
  readonly #conditions = new WatchSource<readonly PressureCondition[]>([]);

  constructor(components: BoardHealthComponents, limits: BoardLimits) {
    this.#components = components;
    this.#limits = limits;
  }

  /** Empty before the first reading; changes only when a condition does. */
  get conditions(): Watch<readonly PressureCondition[]> {
    return this.#conditions;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, sensors } = this.#components;
    const startedAt = clock.monotonic();
    let foundAt = startedAt;
    let health: Health | undefined;
    while (!signal.aborted) {
      health = this.#next(health, startedAt);
      const { current } = this.#conditions;
      if (JSON.stringify(health.conditions) !== JSON.stringify(current)) this.#conditions.set(health.conditions);
      await clock.sleep(INTERVAL, signal);
      if (clock.monotonic() - foundAt < FIND_EVERY) continue;
      sensors.find();
      foundAt = clock.monotonic();
    }
  }

  #next(previous: Health | undefined, startedAt: MonotonicMs): Health {
    const { clock, sensors, isClockSet, isClockConfirmed } = this.#components;
    const reading = sensors.read(isClockSet());
    const now = clock.monotonic();
    const isEarly = now - startedAt < SYNCHRONIZATION_GRACE;
    const isExcused = reading.clock === "unsynchronized" && (isEarly || isClockConfirmed());
    return nextBoardHealth(isExcused ? { ...reading, clock: "set" } : reading, previous, now, this.#limits);
  }
}
