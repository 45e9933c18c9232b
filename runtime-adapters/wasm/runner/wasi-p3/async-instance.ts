/** One instance of a component of WASI 0.3, with a glue, timers and a host of its own. */
import type { InstanceComponents } from "../../shared/component/component-run.ts";
import type { ComponentExports, GlueMaker } from "../../shared/component/load-component.ts";
import type { HostComponents, HostInit, Imports } from "../../shared/host/host.ts";
import { LoopWaiter } from "../../shared/resources/event-loop.ts";
import { Poller, WouldBlock } from "../../shared/resources/polling.ts";
import { AsyncContext } from "./async-context.ts";
import { fileImports } from "./async-files.ts";
import { AsyncHost } from "./async-imports.ts";
import { AsyncTasks } from "./async-tasks.ts";
import { LongTimers } from "./patient-timers.ts";

export class AsyncInstance {
  readonly host: AsyncHost;
  readonly context: AsyncContext;
  readonly tasks = new AsyncTasks();
  readonly #glue: GlueMaker;
  readonly #components: InstanceComponents;
  readonly #init: HostInit;
  readonly #timers: LongTimers;
  /** For the board's interfaces, whose events come through the event loop. */
  readonly #loop: LoopWaiter;

  constructor(glue: GlueMaker, components: InstanceComponents, init: HostInit) {
    const { waiter, wallNow, wallIsSet = () => true, log, after, exit, beforeWait } = components;
    this.#glue = glue;
    this.#components = components;
    this.#init = init;
    this.#timers = new LongTimers(after);
    this.#loop = new LoopWaiter({ now: () => waiter.now(), after });
    const onActivity = (): void => this.#timers.wake();
    const { host, waitsBy02 } = components;
    const ofHost = host.context(waitsBy02 ? { ...components, waiter: this.#loop } : components);
    this.context = new AsyncContext(ofHost, onActivity);
    const now = (): bigint => waiter.now();
    const sending = () => this.context.sending;
    const release = () => this.#release();
    this.host = new AsyncHost({
      ...{ log, wallNow, wallIsSet, after, exit, beforeWait },
      ...{ onActivity, now, sending, release },
    });
  }

  /** @param more of WASI 0.3 that it is given */
  instantiate(more: Imports): ComponentExports {
    const { context, tasks } = this;
    const own = { ...fileImports(context, this.#init.preopens), ...more };
    const components = { ...this.#components, board: this.#board };
    const imports = this.host.extended(components.host.imports(components, this.#init, context), own);
    // The patches of the glue call these: `transpile/asynchronous-patches.ts`.
    const hooks = {
      happened: context.onActivity,
      isWaiting: () => context.isWaiting,
      began: (exit: Promise<void>) => tasks.began(exit),
      failed: (error: unknown) => tasks.fail(error),
      unlessClosed: (result: unknown) => tasks.unlessClosed(result),
      waited: (call: () => unknown) => this.#waited(call),
    };
    return this.#glue(this.#timers.globals)({ ...imports, "picolet:async": hooks });
  }

  #board: HostComponents["board"] = (context) => {
    const { log, beforeWait, board } = this.#components;
    const poller = new Poller(this.#loop, () => {
      log.flushUnfinished();
      beforeWait();
    });
    return board?.({ ...context, poller });
  };

  /** A function of the host, called until it need not wait any more. @returns its result, or a promise of it */
  #waited(call: () => unknown, begun?: unknown): unknown {
    const loop = this.#loop;
    loop.begun = begun;
    try {
      return call();
    } catch (error) {
      if (!(error instanceof WouldBlock)) throw error;
      const { begun: kept } = loop;
      return this.context.watched(loop.whenAny(error.wanted).then(() => this.#waited(call, kept)));
    }
  }

  /** It has ended. Resolves when its output has reached the receivers, as far as possible. */
  async end(): Promise<void> {
    await this.host.drained();
    this.close();
  }

  /** Data that connections send may take its time, see `TcpConnection.release`. */
  async #release(): Promise<void> {
    this.#timers.stop();
    this.context.close();
    await this.context.atRest();
  }

  /** The instance is not used any more. */
  close(): void {
    this.#timers.stop();
    this.context.close();
    this.tasks.close();
  }
}
