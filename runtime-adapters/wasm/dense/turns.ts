/**
 * Schedules the components of one process. A stack runs from when it is woken until it waits; one whose slice is over
 * pauses at its next call of a host function. Each turn is a task of the event loop, so that only a component that
 * never calls the host can block the others.
 */

import { ROTATION_CHECK_MS } from "../shared/host/log-writer.ts";
import { type LoopTimers, LoopWaiter } from "../shared/resources/event-loop.ts";
import { trap } from "../shared/resources/handles.ts";
import type { Readiness } from "../shared/resources/polling.ts";
import { WakeListeners } from "../shared/resources/wake-listeners.ts";

/** The length of one turn. Other components wait for at most one turn of each that wants to run. */
const SLICE_MS = 10;
/** Between two answers of `mustPause`. */
const PAUSE_NS = BigInt(ROTATION_CHECK_MS) * 1_000_000n;

export interface TurnsComponents {
  /** Milliseconds, monotonic. */
  readonly now: () => number;
  /** Runs it as a task of the event loop, after tasks that wait already. */
  readonly soon: (task: () => void) => void;
  /** Called when another component's stack begins to run. */
  readonly onTurn: (id: string) => void;
}

export class Turns {
  readonly #components: TurnsComponents;
  #current: DenseWaiter | undefined;
  #last: DenseWaiter | undefined;
  #sinceMs = 0;

  constructor(components: TurnsComponents) {
    this.#components = components;
  }

  /** Announces whose component the process works for from now on. */
  announce(waiter: DenseWaiter): void {
    if (this.#last === waiter) return;
    this.#last = waiter;
    this.#components.onTurn(waiter.id);
  }

  enter(waiter: DenseWaiter): void {
    this.announce(waiter);
    this.#current = waiter;
    this.#sinceMs = this.#components.now();
  }

  /** @returns milliseconds that its stack has run */
  leave(waiter: DenseWaiter): number {
    if (this.#current !== waiter) return 0;
    this.#current = undefined;
    return this.#components.now() - this.#sinceMs;
  }

  /** @param waiter runs now. V8 may have suspended its stack and resumed it without a notice. */
  isOver(waiter: DenseWaiter): boolean {
    if (this.#current !== waiter) this.enter(waiter);
    return this.#components.now() - this.#sinceMs > SLICE_MS;
  }

  /** Resolves at the beginning of its next turn, in which no other component runs. */
  next(waiter: DenseWaiter): Promise<void> {
    return new Promise((resolve) => {
      this.#components.soon(() => {
        this.enter(waiter);
        resolve();
      });
    });
  }
}

/** One of several in the process: it can be ended wherever it waits, and gives way to others. */
export class DenseWaiter extends LoopWaiter {
  /** The id of its container. */
  readonly id: string;
  /** Asked before each call of a host function: its stacks wait while it is so, as for room in its log. */
  mustPause: (() => boolean) | undefined;
  readonly #turns: Turns;
  readonly #ending = new WakeListeners();
  readonly #over: Readiness;
  #end: Error | undefined;
  #isInstantiating = false;
  #ranMs = 0;
  #memories: WeakRef<WasmMemory>[] = [];

  constructor(id: string, timers: LoopTimers, turns: Turns) {
    super(timers);
    this.id = id;
    this.#turns = turns;
    this.#over = { ready: () => this.#end !== undefined, onReady: this.#ending.add };
  }

  /** Milliseconds that its stacks have run. */
  get ranMs(): number {
    return this.#ranMs;
  }

  /** Bytes of its linear memories. */
  get memoryBytes(): number {
    const memories = this.#memories.map((each) => each.deref()).filter((each) => each !== undefined);
    this.#memories = memories.map((each) => new WeakRef(each));
    return [...new Set(memories)].reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
  }

  /** All that waits, or calls the host, fails with `error` from now on. */
  end(error: Error): void {
    this.#end ??= error;
    this.#ending.all();
  }

  override enter(): void {
    this.#turns.enter(this);
  }

  override leave(): void {
    this.#ranMs += this.#turns.leave(this);
  }

  override pause(): Promise<void> | undefined {
    if (this.#end !== undefined) throw this.#end;
    if (this.#isInstantiating) return undefined;
    if (this.mustPause?.()) {
      const at = this.now() + PAUSE_NS;
      return this.whenAny([{ at, ready: () => this.now() >= at }]);
    }
    if (!this.#turns.isOver(this)) return undefined;
    this.leave();
    return this.#turn();
  }

  override async whenAny(wanted: readonly Readiness[]): Promise<void> {
    this.leave();
    // With others in the process the event loop never runs dry.
    if (wanted.every(({ at, onReady }) => at === undefined && onReady === undefined)) {
      throw trap("the component waits for what never comes");
    }
    if (this.#end === undefined) await super.whenAny([...wanted, this.#over]);
    await this.#turn();
  }

  override instance(make: () => WebAssembly.Instance): WebAssembly.Instance {
    this.#turns.announce(this);
    this.#isInstantiating = true;
    try {
      const instance = make();
      for (const each of Object.values(instance.exports)) if (isMemory(each)) this.#memories.push(new WeakRef(each));
      return instance;
    } finally {
      this.#isInstantiating = false;
    }
  }

  async #turn(): Promise<void> {
    await this.#turns.next(this);
    if (this.#end !== undefined) throw this.#end;
  }
}

interface WasmMemory {
  readonly buffer: ArrayBuffer;
}

const isMemory = (value: unknown): value is WasmMemory => Object.prototype.toString.call(value) === MEMORY_TAG;
const MEMORY_TAG = "[object WebAssembly.Memory]";
