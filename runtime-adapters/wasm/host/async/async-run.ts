/** Runs a component of WASI 0.3: jco's own glue keeps its tasks, and waits on the event loop. */
import { PicoletError } from "../../../../protocol/errors.ts";
import type { InstantiateComponent } from "../../load-component.ts";
import { type HostComponents, type HostInit, hostContext, hostImports } from "../host.ts";
import { AsyncContext } from "./async-context.ts";
import { fileImports } from "./async-files.ts";
import { AsyncHost, ExitRequest } from "./async-imports.ts";
import { PatientTimers, type StartTimer } from "./patient-timers.ts";

export { PatientTimers };

type Outcome = "ok" | "err";
type RunExport = () => Outcome | undefined | Promise<unknown>;

const RUN_INTERFACE = "wasi:cli/run@";

/** @returns what runs it to its end; rejects for a trap, and for the component's own `err`, which has a `payload` */
export async function prepareAsync(
  instantiate: InstantiateComponent,
  components: HostComponents & { readonly after: StartTimer; readonly timers: PatientTimers },
  init: HostInit,
): Promise<() => Promise<Outcome>> {
  const { waiter, wallNow, wallIsSet = () => true, log, after, timers, exit, beforeWait } = components;
  const onActivity = (): void => timers.wake();
  const host = new AsyncHost({
    ...{ log, wallNow, wallIsSet, after, exit, beforeWait, onActivity },
    now: () => waiter.now(),
  });
  const context = new AsyncContext(hostContext(components), onActivity);
  const own = fileImports(context, init.preopens);
  const imports = host.extended(hostImports(components, init, context), own);
  const hooks = { happened: onActivity, isWaiting: () => context.isWaiting };
  const instance = await instantiate({ ...imports, "picolet:async": hooks });
  const run = runOf(instance);
  return () => ended(run, host);
}

async function ended(run: RunExport, host: AsyncHost): Promise<Outcome> {
  const fault = Promise.withResolvers<never>();
  // What is thrown in a timer of the glue's, or kept in a promise that it let go of, is the component's trap too.
  const events = ["uncaughtException", "unhandledRejection"] as const;
  const onFault = (error: unknown): void => fault.reject(error);
  for (const event of events) process.on(event, onFault);
  try {
    await Promise.race([(async () => run())(), fault.promise]);
    return "ok";
  } catch (error) {
    // Who left is ended as soon as its output is in the log.
    if (error instanceof ExitRequest) return await new Promise<never>(() => undefined);
    throw error;
  } finally {
    await host.drained();
    for (const event of events) process.off(event, onFault);
  }
}

function runOf(instance: Readonly<Record<string, unknown>>): RunExport {
  for (const [name, exported] of Object.entries(instance)) {
    const { run } = name.startsWith(RUN_INTERFACE) ? (exported as Record<string, unknown>) : {};
    if (typeof run === "function") return () => run() as Promise<unknown>;
  }
  throw new PicoletError("invalid", "the component exports no wasi:cli/run");
}
