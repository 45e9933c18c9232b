/** A component on an event loop of its own, whose clock jumps to where the component waits for. */

import type { ComponentExports, InstantiateComponent } from "@picolet/runtime-wasm/shared/component/load-component.ts";
import { hostImports } from "@picolet/runtime-wasm/shared/host/host.ts";
import { LoopWaiter, suspendableInstantiate } from "@picolet/runtime-wasm/shared/resources/event-loop.ts";

export class JumpingLoop {
  nowNs: bigint;
  waits = 0;
  readonly #soon: (act: () => void) => void;

  /** @param soon when what is waited for comes */
  constructor(nowNs = 1n, soon: (act: () => void) => void = queueMicrotask) {
    this.nowNs = nowNs;
    this.#soon = soon;
  }

  now(): bigint {
    return this.nowNs;
  }

  after(milliseconds: number, act: () => void): () => void {
    this.waits += 1;
    this.#soon(() => {
      this.nowNs += BigInt(Math.ceil(milliseconds * 1e6));
      act();
    });
    return () => undefined;
  }
}

export interface LoopedComponent {
  readonly exports: ComponentExports;
  /** The result of the core function's latest call. */
  outcome(): Promise<unknown> | undefined;
}

/** @param waiter on the loop */
export function looped(
  instantiate: InstantiateComponent,
  waiter: LoopWaiter,
  args: readonly string[] = [],
): LoopedComponent {
  let outcome: Promise<unknown> | undefined;
  const suspendable = suspendableInstantiate(
    waiter,
    (name) => name.startsWith("wasi:cli/run"),
    (entered) => {
      outcome = entered;
    },
  );
  return { exports: instantiate(hostOf(waiter, args), suspendable), outcome: () => outcome };
}

/** Where nothing waits: calls are what they are. */
export const unlooped = (instantiate: InstantiateComponent, loop = new JumpingLoop()): ComponentExports =>
  instantiate(hostOf(new LoopWaiter(loop), []));

const hostOf = (waiter: LoopWaiter, args: readonly string[]): ReturnType<typeof hostImports> =>
  hostImports(
    {
      waiter,
      wallNow: () => 0,
      log: { write: () => undefined, flushUnfinished: () => undefined },
      beforeWait: () => undefined,
      exit: (code) => {
        throw new Error(`exit ${code}`);
      },
    },
    { args: ["component", ...args], env: [], workingDir: undefined, preopens: [] },
  );
