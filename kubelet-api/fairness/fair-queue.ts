/**
 * Fair queueing as in Kubernetes' API Priority and Fairness (KEP-1040).
 * Work belongs to a level, which has seats of its own, and within it to a flow (a user, a node). Levels take turns by
 * their shares, flows of one level in a round. A request that is `width` times as much work as an ordinary one makes
 * its flow sit out as many rounds.
 */

import { cancelled } from "@picolet/protocol/async/abort.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, seconds } from "@picolet/protocol/ports.ts";

export interface LevelInit {
  readonly name: string;
  /** Weight against other levels when all have work. */
  readonly share: number;
  /** Seats at a time. */
  readonly seats: number;
  /** Seats of one flow at a time: fewer than `seats`, so that one flow alone never holds them all. */
  readonly flowSeats: number;
  /** Requests of one flow that wait; a further one is refused. */
  readonly flowQueue: number;
  /** Requests that wait in all. When it is full, one of the flow that has most waiting makes room. */
  readonly queue: number;
}

export interface FairQueueInit {
  readonly levels: readonly LevelInit[];
  /** A request that waits longer is refused. Undefined: it waits until its signal aborts. */
  readonly waitLimit?: Millis;
  /**
   * Width that is started in one turn of the event loop; the rest starts in later turns, between which other work gets
   * in. Undefined: as much as there are seats.
   */
  readonly widthPerTurn?: number;
}

export interface FairQueueComponents {
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
  /** Runs `work` in the next turn of the event loop. */
  readonly later: (work: () => void) => void;
}

/** The queue of the flow is full, or the wait is over. */
export class QueueRefusal extends Error {
  readonly reason: "queue-full" | "time-out";

  constructor(reason: "queue-full" | "time-out") {
    super(reason);
    this.reason = reason;
  }
}

/** Held from the start of the work to its end. */
export interface Seat {
  /** The second call and later ones do nothing. */
  release(): void;
}

interface Waiter {
  readonly width: number;
  readonly sinceMs: number;
  readonly grant: (seat: Seat) => void;
  readonly refuse: (error: Error) => void;
}

interface Flow {
  readonly key: string;
  readonly level: Level;
  readonly waiting: Set<Waiter>;
  seats: number;
  /** Rounds that it still sits out for wide requests of before. */
  debt: number;
  /** True when a request of it may start. */
  isReady: boolean;
}

interface Level {
  readonly init: LevelInit;
  readonly flows: Map<string, Flow>;
  /** Flows that are ready or have a debt to sit out. The first is next. */
  readonly round: Set<Flow>;
  /** Flows of the round that are ready. */
  ready: number;
  seats: number;
  waiting: number;
  /** Width started by share, on a time line that all levels have in common. */
  virtualTime: number;
}

const SWEEP = seconds(1);

export class FairQueue {
  readonly #components: FairQueueComponents;
  readonly #init: FairQueueInit;
  readonly #levels: ReadonlyMap<string, Level>;
  #sweeping: AbortController | undefined;
  #waiting = 0;
  #virtualTime = 0;
  /** Width that may still start in this turn. */
  #turn: number;
  #isTurnOpen = false;

  constructor(components: FairQueueComponents, init: FairQueueInit) {
    this.#components = components;
    this.#init = init;
    this.#turn = init.widthPerTurn ?? Number.POSITIVE_INFINITY;
    const make = (level: LevelInit): Level => ({
      ...{ init: level, flows: new Map(), round: new Set(), ready: 0, seats: 0, waiting: 0, virtualTime: 0 },
    });
    this.#levels = new Map(init.levels.map((level) => [level.name, make(level)]));
  }

  /** Seats that are held, requests that wait, and flows that have either. */
  get load(): { readonly seats: number; readonly waiting: number; readonly flows: number } {
    const levels = [...this.#levels.values()];
    const sum = (value: (level: Level) => number): number => levels.reduce((total, each) => total + value(each), 0);
    return { seats: sum(({ seats }) => seats), waiting: this.#waiting, flows: sum(({ flows }) => flows.size) };
  }

  /** @throws QueueRefusal; `cancelled` when `signal` aborts before the seat is given */
  take(level: string, flow: string, width: number, signal: AbortSignal): Promise<Seat> {
    if (signal.aborted) return Promise.reject(cancelled("the wait for a seat"));
    const found = this.#levels.get(level);
    if (found === undefined) throw new TypeError(`there is no level ${level}`);
    const { promise, resolve, reject } = Promise.withResolvers<Seat>();
    const mine = flowOf(found, flow);
    const giveUp = (): void => {
      this.#remove(mine, waiter);
      reject(cancelled("the wait for a seat"));
    };
    const settle = (then: () => void): void => {
      signal.removeEventListener("abort", giveUp);
      then();
    };
    const waiter: Waiter = {
      width: Math.max(1, Math.ceil(width)),
      sinceMs: this.#components.clock.monotonic(),
      grant: (seat) => settle(() => resolve(seat)),
      refuse: (error) => settle(() => reject(error)),
    };
    signal.addEventListener("abort", giveUp, { once: true });
    this.#add(mine, waiter);
    this.#start();
    this.#sweep();
    return promise;
  }

  #add(flow: Flow, waiter: Waiter): void {
    const { level } = flow;
    if (flow.waiting.size >= level.init.flowQueue || !this.#makeRoom(flow)) {
      forget(flow);
      waiter.refuse(new QueueRefusal("queue-full"));
      return;
    }
    if (level.waiting === 0) this.#catchUp(level);
    flow.waiting.add(waiter);
    this.#count(level, 1);
    update(flow);
  }

  #count(level: Level, change: number): void {
    level.waiting += change;
    this.#waiting += change;
  }

  /** A level that had no work does not get the turns back that it did not need. */
  #catchUp(level: Level): void {
    if (this.#waiting === 0) {
      for (const { virtualTime } of this.#levels.values()) {
        this.#virtualTime = Math.max(this.#virtualTime, virtualTime);
      }
    }
    level.virtualTime = Math.max(level.virtualTime, this.#virtualTime);
  }

  /** @returns false: no other flow has more waiting than this one, which is the one to be refused */
  #makeRoom({ level, waiting }: Flow): boolean {
    if (level.waiting < level.init.queue) return true;
    let longest: Flow | undefined;
    for (const flow of level.flows.values()) {
      if (flow.waiting.size > (longest?.waiting.size ?? waiting.size + 1)) longest = flow;
    }
    const last = [...(longest?.waiting ?? [])].at(-1);
    if (longest === undefined || last === undefined) return false;
    this.#remove(longest, last);
    last.refuse(new QueueRefusal("queue-full"));
    return true;
  }

  #remove(flow: Flow, waiter: Waiter): void {
    if (!flow.waiting.delete(waiter)) return;
    this.#count(flow.level, -1);
    update(flow);
    forget(flow);
    this.#endSweep();
  }

  /** Starts what may start now. */
  #start(): void {
    while (this.#turn > 0 && this.#waiting > 0) {
      const level = this.#nextLevel();
      const flow = level === undefined ? undefined : nextFlow(level);
      const [waiter] = flow?.waiting ?? [];
      if (level === undefined || flow === undefined || waiter === undefined) return;
      this.#grant(level, flow, waiter);
    }
  }

  /** Chooses among levels with a free seat and a ready flow the one that had least by its share. */
  #nextLevel(): Level | undefined {
    let best: Level | undefined;
    for (const level of this.#levels.values()) {
      if (level.ready === 0 || level.seats >= level.init.seats) continue;
      if (best === undefined || level.virtualTime < best.virtualTime) best = level;
    }
    return best;
  }

  #grant(level: Level, flow: Flow, waiter: Waiter): void {
    flow.waiting.delete(waiter);
    this.#count(level, -1);
    level.seats += 1;
    flow.seats += 1;
    flow.debt += waiter.width - 1;
    this.#virtualTime = Math.max(this.#virtualTime, level.virtualTime);
    level.virtualTime += waiter.width / level.init.share;
    // To the end of the round.
    level.round.delete(flow);
    update(flow);
    this.#openTurn(waiter.width);
    this.#endSweep();
    let isHeld = true;
    const release = (): void => {
      if (!isHeld) return;
      isHeld = false;
      level.seats -= 1;
      flow.seats -= 1;
      update(flow);
      forget(flow);
      this.#start();
    };
    waiter.grant({ release });
  }

  #openTurn(width: number): void {
    const { widthPerTurn } = this.#init;
    if (widthPerTurn === undefined) return;
    this.#turn -= width;
    if (this.#isTurnOpen) return;
    this.#isTurnOpen = true;
    this.#components.later(() => {
      this.#isTurnOpen = false;
      this.#turn = widthPerTurn;
      this.#start();
    });
  }

  /** Refuses what has waited too long, for as long as anything waits. */
  #sweep(): void {
    const { waitLimit } = this.#init;
    if (this.#waiting === 0 || this.#sweeping !== undefined || waitLimit === undefined) return;
    const stop = new AbortController();
    this.#sweeping = stop;
    const { clock } = this.#components;
    const again = (): void => {
      clock.sleep(SWEEP, stop.signal).then(() => {
        const oldest = clock.monotonic() - waitLimit;
        for (const { flows } of this.#levels.values()) {
          for (const flow of [...flows.values()]) this.#refuseOld(flow, oldest);
        }
        if (!stop.signal.aborted) again();
      }, ignore("nothing waits any more"));
    };
    again();
  }

  #refuseOld(flow: Flow, oldestMs: number): void {
    for (const waiter of flow.waiting) {
      // They are in the order of their coming.
      if (waiter.sinceMs > oldestMs) return;
      this.#remove(flow, waiter);
      waiter.refuse(new QueueRefusal("time-out"));
    }
  }

  #endSweep(): void {
    if (this.#sweeping === undefined || this.#waiting > 0) return;
    this.#sweeping.abort();
    this.#sweeping = undefined;
  }
}

function flowOf(level: Level, key: string): Flow {
  const known = level.flows.get(key);
  if (known !== undefined) return known;
  const made: Flow = { key, level, waiting: new Set(), seats: 0, debt: 0, isReady: false };
  level.flows.set(key, made);
  return made;
}

/** Keeps the round in step with what the flow has. */
function update(flow: Flow): void {
  const { level, waiting, seats, debt } = flow;
  const isReady = waiting.size > 0 && seats < level.init.flowSeats;
  if (isReady !== flow.isReady) level.ready += isReady ? 1 : -1;
  flow.isReady = isReady;
  if (isReady || debt > 0) level.round.add(flow);
  else level.round.delete(flow);
}

function forget({ level, key, waiting, seats, debt }: Flow): void {
  if (seats === 0 && waiting.size === 0 && debt === 0) level.flows.delete(key);
}

/** The next of the round that is ready. Flows with a debt sit this round out, which pays for it. */
function nextFlow(level: Level): Flow | undefined {
  while (level.ready > 0) {
    const [flow] = level.round;
    if (flow === undefined) return undefined;
    if (flow.debt === 0) return flow;
    flow.debt -= 1;
    level.round.delete(flow);
    update(flow);
    forget(flow);
  }
  return undefined;
}
