/**
 * Components that wait for more than time: their stack is set aside (JavaScript Promise Integration) while the event loop
 * of the process works. jco's own way to do this goes through its machinery for WASI 0.3 with every call; here its plain
 * synchronous glue runs on such a stack. A host function that would have to wait throws `WouldBlock` and is called again
 * when it need not.
 */
import { earliest, millisecondsUntil, type Readiness, type Waiter, WouldBlock } from "./polling.ts";

type AnyFunction = (...args: never[]) => unknown;
type CoreImports = Readonly<Record<string, Readonly<Record<string, unknown>>>>;
type CoreExports = Record<string, unknown>;

export interface LoopTimers {
  /** Nanoseconds of the monotonic clock. */
  now(): bigint;
  /** @returns what takes it back */
  after(milliseconds: number, act: () => void): () => void;
}

export class LoopWaiter implements Waiter {
  begun: unknown;
  readonly #timers: LoopTimers;

  constructor(timers: LoopTimers) {
    this.#timers = timers;
  }

  now(): bigint {
    return this.#timers.now();
  }

  wait(wanted: readonly Readiness[]): never {
    throw new WouldBlock(wanted);
  }

  /** Of several components in one process (`dense/turns.ts`): a stack of this one begins to run. */
  enter?(): void;
  /** It has been set aside, or has ended. */
  leave?(): void;
  /** Before each call of a host function. @returns what the stack has to wait for first; undefined: nothing. @throws to end it */
  pause?(): Promise<void> | undefined;
  /** Instantiates a core module, which can call the host, and cannot be set aside. */
  instance?(make: () => WebAssembly.Instance): WebAssembly.Instance;

  /** Resolves when one of them may be ready, or `signal` says that nobody waits any more. */
  whenAny(wanted: readonly Readiness[]): Promise<void> {
    return new Promise((resolve) => {
      const undo: (() => void)[] = [];
      let done = false;
      const wake = (): void => {
        if (done) return;
        done = true;
        for (const each of undo) each();
        resolve();
      };
      const first = earliest(wanted);
      if (first !== undefined) undo.push(this.#timers.after(millisecondsUntil(first, this.#timers.now()), wake));
      for (const each of wanted) {
        const takeBack = each.onReady?.(wake);
        if (takeBack !== undefined) undo.push(takeBack);
      }
      // One that was ready by the time it was asked has woken nobody.
      if (wanted.some((each) => each.ready())) wake();
    });
  }
}

/**
 * Stands for `new WebAssembly.Instance` in jco's glue: host functions may set the caller's stack aside, and calls of
 * those exports whose names `isEntry` knows, or that the component exports itself (`isLifted`), begin such a stack.
 * @param entered is given the outcome of each such call: the core function's own result.
 */
export function suspendableInstantiate(
  waiter: LoopWaiter,
  isEntry: (coreExport: string) => boolean,
  entered: (outcome: Promise<unknown>) => void,
): (
  module: WebAssembly.Module,
  imports?: CoreImports,
  isLifted?: (coreExport: string) => boolean,
) => { readonly exports: CoreExports } {
  const suspendable = (call: AnyFunction): unknown => new WebAssembly.Suspending(retried(waiter, call));
  return (module, imports = {}, isLifted = () => false) => {
    const wrapped: Record<string, Record<string, unknown>> = {};
    for (const [from, names] of Object.entries(imports)) {
      const own: Record<string, unknown> = {};
      for (const [name, value] of Object.entries(names)) own[name] = isHostFunction(value) ? suspendable(value) : value;
      wrapped[from] = own;
    }
    const make = (): WebAssembly.Instance => new WebAssembly.Instance(module, wrapped);
    const { exports } = waiter.instance === undefined ? make() : waiter.instance(make);
    const shown: CoreExports = { ...exports };
    for (const [name, value] of Object.entries(exports)) {
      if (typeof value !== "function" || !(isEntry(name) || isLifted(name))) continue;
      const begin = WebAssembly.promising(value as AnyFunction);
      // What the glue makes of the result comes too early; `entered` has the real one.
      shown[name] = (...args: never[]) => {
        entered(begun(waiter, () => begin(...args)));
        return 0;
      };
    }
    return { exports: shown };
  };
}

function begun(waiter: LoopWaiter, begin: () => Promise<unknown>): Promise<unknown> {
  if (waiter.enter === undefined) return begin();
  const leave = (): void => waiter.leave?.();
  waiter.enter();
  try {
    const outcome = begin();
    outcome.then(leave, leave);
    return outcome;
  } finally {
    leave();
  }
}

function retried(waiter: LoopWaiter, call: AnyFunction): AnyFunction {
  return (...args) => {
    const attempt = (begun?: unknown): unknown => {
      const pause = waiter.pause?.();
      if (pause !== undefined) return pause.then(() => attempt(begun));
      waiter.begun = begun;
      try {
        return call(...args);
      } catch (error) {
        if (!(error instanceof WouldBlock)) throw error;
        const { begun: kept } = waiter;
        return waiter.whenAny(error.wanted).then(() => attempt(kept));
      }
    };
    return attempt();
  };
}

/** jco's trampolines are functions of JavaScript; what one core module imports of another is not. */
function isHostFunction(value: unknown): value is AnyFunction {
  return typeof value === "function" && !/^\d+$/.test(value.name);
}
