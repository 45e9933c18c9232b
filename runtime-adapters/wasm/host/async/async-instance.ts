/** One instance of a component of WASI 0.3, with a glue, timers and a host of its own. */
import type { ComponentExports, GlueMaker } from "../../load-component.ts";
import { type HostComponents, type HostInit, hostContext, hostImports, type Imports } from "../host.ts";
import { AsyncContext } from "./async-context.ts";
import { fileImports } from "./async-files.ts";
import { AsyncHost } from "./async-imports.ts";
import { AsyncTasks } from "./async-tasks.ts";
import { PatientTimers, type StartTimer } from "./patient-timers.ts";

export class AsyncInstance {
  readonly host: AsyncHost;
  readonly context: AsyncContext;
  readonly tasks = new AsyncTasks();
  readonly #glue: GlueMaker;
  readonly #components: HostComponents;
  readonly #init: HostInit;
  readonly #timers: PatientTimers;

  constructor(glue: GlueMaker, components: HostComponents & { readonly after: StartTimer }, init: HostInit) {
    const { waiter, wallNow, wallIsSet = () => true, log, after, exit, beforeWait } = components;
    this.#glue = glue;
    this.#components = components;
    this.#init = init;
    this.#timers = new PatientTimers(after);
    const onActivity = (): void => this.#timers.wake();
    this.context = new AsyncContext(hostContext(components), onActivity);
    const now = (): bigint => waiter.now();
    this.host = new AsyncHost({ log, wallNow, wallIsSet, after, exit, beforeWait, onActivity, now });
  }

  /** @param more of WASI 0.3 that it is given */
  instantiate(more: Imports): ComponentExports {
    const { context, tasks } = this;
    const own = { ...fileImports(context, this.#init.preopens), ...more };
    const imports = this.host.extended(hostImports(this.#components, this.#init, context), own);
    // What the glue is mended with asks for these: `transpile/async-glue.ts`.
    const hooks = {
      happened: context.onActivity,
      isWaiting: () => context.isWaiting,
      began: (exit: Promise<void>) => tasks.began(exit),
      failed: (error: unknown) => tasks.fail(error),
      unlessClosed: (result: unknown) => tasks.unlessClosed(result),
    };
    return this.#glue(this.#timers.globals)({ ...imports, "picolet:async": hooks });
  }

  /** Nobody uses it any more. */
  close(): void {
    this.#timers.stop();
    this.context.close();
    this.tasks.close();
  }
}
