/**
 * Components that wait for more than time: their stack is set aside (JavaScript Promise Integration) while the event
 * loop of the process works. jco's own way to do this goes through its machinery for WASI 0.3 with every call; here its
 * plain synchronous glue runs on such a stack. A host function that would have to wait throws `WouldBlock` and is
 * called again when it need not.
 */
import type { FunctionType } from "../binary/function-types.ts";
import { trap } from "./handles.ts";
import { earliest, millisecondsUntil, type Readiness, type Waiter, WouldBlock } from "./polling.ts";
import type { Attempt, WaitingCall, WaitingCalls } from "./waiting-calls.ts";

type AnyFunction = (...args: never[]) => unknown;
type CoreImports = Readonly<Record<string, Readonly<Record<string, unknown>>>>;
type CoreExports = Record<string, unknown>;

export interface LoopTimers {
  /** Nanoseconds of the monotonic clock. */
  now(): bigint;
  /** @returns a function that cancels it */
  after(milliseconds: number, act: () => void): () => void;
}

/**
 * Host functions that never wait, by the glue's names `interface@version#function`. They are called directly, because a
 * call that may set the stack aside costs more than most of them. All other functions may wait.
 */
const NEVER_WAIT: readonly RegExp[] = [
  /^wasi:(?:cli|clocks|filesystem|http|random|sockets)\//,
  /^wasi:io\/error@/,
  /^wasi:io\/streams@[^#]*#(?!blocking)/,
  /^wasi:io\/poll@[^#]*#ready$/,
];
/** jco's functions that drop resources have no name of an interface, and a number in their own. */
const DROP = /^trampoline\d+$/;
/**
 * The glue's own functions for calls between a component's parts (`transpile/synchronous-patches.ts`). They never call
 * the host.
 */
const PART_CALL = /^_(?:enterCall|exitCall|context[GS]et[01])$/;

/**
 * The prefix of the export that is called when the result of another export has been read (component model, canonical
 * ABI).
 */
const CLEAN_UP = "cabi_post_";

export class LoopWaiter implements Waiter {
  begun: unknown;
  /**
   * True when the running host function may set its caller's stack aside. From a component's entry on not every
   * function may.
   */
  canWait = true;
  readonly #timers: LoopTimers;

  constructor(timers: LoopTimers) {
    this.#timers = timers;
  }

  now(): bigint {
    return this.#timers.now();
  }

  /** @throws a trap where the stack cannot be set aside: `NEVER_WAIT` names a function that does wait. */
  wait(wanted: readonly Readiness[]): never {
    if (!this.canWait) throw trap("picolet's fault: a function of the host waits that is said never to wait");
    throw new WouldBlock(wanted);
  }

  /** A stack of this component begins to run, where several share a process (`dense/turns.ts`). */
  enter?(): void;
  /** It has been set aside, or has ended. */
  leave?(): void;
  /**
   * Called before each call of a host function.
   * @returns a promise that the stack has to wait for first; undefined: none
   * @throws to end the stack
   */
  pause?(): Promise<void> | undefined;
  /** Instantiates a core module, which can call the host, and cannot be set aside. */
  instance?(make: () => WebAssembly.Instance): WebAssembly.Instance;

  /** Resolves when one of them may be ready. */
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
      // One that was ready when it was asked has called no listener.
      if (wanted.some((each) => each.ready())) wake();
    });
  }
}

/**
 * Ends an instance that waits. V8 keeps a stack that is set aside, and the instance's whole memory with it, for as long
 * as the event that it waits for can still come.
 */
export class InstanceEnd {
  #error: Error | undefined;
  #wake: (() => void) | undefined;
  /** One call at a time waits in an instance. */
  readonly #ended: Readiness = {
    ready: () => this.#error !== undefined,
    onReady: (wake) => {
      this.#wake = wake;
      return () => {
        this.#wake = undefined;
      };
    },
  };

  /** From now on the instance's waits and calls of the host fail with `error`. */
  end(error: Error): void {
    this.#error ??= error;
    this.#wake?.();
  }

  /** @throws the error that ended it */
  check(): void {
    if (this.#error !== undefined) throw this.#error;
  }

  /** Adds the end to events that can come. An instance that waits for none of them could not be woken for it. */
  amongst(wanted: readonly Readiness[]): readonly Readiness[] {
    const canCome = wanted.some(({ at, onReady }) => at !== undefined || onReady !== undefined);
    return canCome ? [...wanted, this.#ended] : wanted;
  }
}

/** Facts about a core module that its code does not have. */
export interface CoreModuleFacts {
  /** @returns whether it is an export of the component itself */
  isLifted(coreExport: string): boolean;
  /** Types of the functions that it imports, in their order. */
  readonly functions: readonly (FunctionType | null)[];
  /** The waiting calls of its component. */
  readonly calls: WaitingCalls;
}

/**
 * Stands for `new WebAssembly.Instance` in jco's glue: host functions may set the caller's stack aside, and calls of
 * those exports whose names `isEntry` knows, or that the component exports itself (`isLifted`), begin such a stack.
 * @param entered is given the outcome of each such call: the core function's own result.
 * @param end of this instance, where it may be ended before its component is
 */
export function suspendableInstantiate(
  waiter: LoopWaiter,
  isEntry: (coreExport: string) => boolean,
  entered: (outcome: Promise<unknown>) => void,
  end?: InstanceEnd,
): (module: WebAssembly.Module, imports: CoreImports | undefined, facts: CoreModuleFacts) => { exports: CoreExports } {
  return (module, imports = {}, facts) => {
    const suspendable = suspendableImports(waiter, module, imports, facts, end);
    const make = (): WebAssembly.Instance => new WebAssembly.Instance(module, suspendable);
    const { exports } = waiter.instance === undefined ? make() : waiter.instance(make);
    const shown: CoreExports = { ...exports };
    for (const [name, value] of Object.entries(exports)) {
      if (typeof value !== "function" || !(isEntry(name) || facts.isLifted(name))) continue;
      const begin = WebAssembly.promising(value as AnyFunction);
      const cleanUp = exports[`${CLEAN_UP}${name}`];
      // The glue makes its result and cleans up too early; `entered` has the real result.
      shown[name] = (...args: never[]) => {
        waiter.canWait = false;
        const outcome = begun(waiter, () => begin(...args));
        entered(typeof cleanUp === "function" ? outcome.then((result) => cleanedUp(result, cleanUp)) : outcome);
        return 0;
      };
      if (typeof cleanUp === "function") shown[`${CLEAN_UP}${name}`] = () => undefined;
    }
    return { exports: shown };
  };
}

/** @throws a trap for a function that waits and has a type that no component has */
function suspendableImports(
  waiter: LoopWaiter,
  module: WebAssembly.Module,
  imports: CoreImports,
  { functions, calls }: CoreModuleFacts,
  end: InstanceEnd | undefined,
): CoreImports {
  const own: Record<string, Record<string, unknown>> = {};
  const waiting: (WaitingCall & { readonly from: Record<string, unknown>; readonly name: string })[] = [];
  let at = 0;
  for (const { module: source, name, kind } of WebAssembly.Module.imports(module)) {
    const value = imports[source]?.[name];
    const from = own[source] ?? {};
    own[source] = from;
    from[name] = value;
    if (kind !== "function") continue;
    const type = functions[at] ?? null;
    at += 1;
    if (!mayWait(waiter, value)) continue;
    if (type === null) throw trap(`the function ${name} has a type that no component's has`);
    waiting.push({ attempt: attempt(waiter, value, end), type, from, name });
  }
  for (const [index, call] of calls.wrapped(waiting).entries()) {
    const { from, name } = waiting[index] as (typeof waiting)[number];
    from[name] = call;
  }
  return own;
}

function cleanedUp(result: unknown, cleanUp: CallableFunction): unknown {
  cleanUp(result);
  return result;
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

const attempt =
  (waiter: LoopWaiter, call: AnyFunction, end: InstanceEnd | undefined): Attempt =>
  (args, begun) => {
    end?.check();
    const pause = waiter.pause?.();
    if (pause !== undefined) return pause.then(() => begun);
    waiter.begun = begun;
    waiter.canWait = true;
    try {
      return call(...args);
    } catch (error) {
      if (!(error instanceof WouldBlock)) throw error;
      const { begun: kept } = waiter;
      const wanted = end === undefined ? error.wanted : end.amongst(error.wanted);
      return waiter.whenAny(wanted).then(() => kept);
    } finally {
      waiter.canWait = false;
    }
  };

/** jco's trampolines are functions of JavaScript; imports of one core module from another are not. */
const isHostFunction = (value: unknown): value is AnyFunction =>
  typeof value === "function" && !/^\d+$/.test(value.name);

/** @returns whether this import may set the stack aside. Where components take turns, every import may. */
function mayWait(waiter: LoopWaiter, value: unknown): value is AnyFunction {
  if (!isHostFunction(value) || PART_CALL.test(value.name)) return false;
  if (waiter.pause !== undefined) return true;
  if (DROP.test(value.name)) return false;
  const called = (value as { readonly fnName?: unknown }).fnName;
  return typeof called !== "string" || !NEVER_WAIT.some((each) => each.test(called));
}
