/** Runs, or serves, a component of WASI 0.3: jco's own glue keeps its tasks, and waits on the event loop. */
import { PicoletError } from "../../../../protocol/errors.ts";
import type { ServeOptions } from "../../grants/http-options.ts";
import type { GlueMaker } from "../../load-component.ts";
import type { HandlerInstance } from "../../serving/instance-pool.ts";
import type { OutgoingLaunch } from "../../serving/serve-component.ts";
import type { HostComponents, HostInit } from "../host.ts";
import { type AsyncHost, ExitRequest } from "./async-imports.ts";
import { AsyncInstance } from "./async-instance.ts";
import type { StartTimer } from "./patient-timers.ts";

type Outcome = "ok" | "err";
type RunExport = () => Outcome | undefined | Promise<unknown>;
type Components = HostComponents & { readonly after: StartTimer };

/** Of the launch, and of the process. */
export interface AsyncLaunch {
  /** Whether it imports wasi:http, or is served. */
  readonly http?: boolean;
  /** Undefined: it is run. */
  readonly serve?: ServeOptions | undefined;
  /** Whom it may ask; undefined: nobody. */
  readonly outgoing?: OutgoingLaunch | undefined;
  readonly processLimitBytes?: number | undefined;
}

const RUN_INTERFACE = "wasi:cli/run@";
/** Of one instance, of whose glue each takes some 4 KiB: half of that is free again when the instance is gone. */
const MAX_REQUESTS = 256;
/** What nobody has caught. */
const FAULTS = ["uncaughtException", "unhandledRejection"] as const;

/** @returns what runs it to its end; rejects for a trap, and for the component's own `err`, which has a `payload` */
export async function prepareAsync(
  glue: GlueMaker,
  components: Components,
  init: HostInit,
  launch: AsyncLaunch = {},
): Promise<() => Promise<Outcome>> {
  if (launch.serve !== undefined) return await serving(glue, components, init, { ...launch, serve: launch.serve });
  const instance = new AsyncInstance(glue, components, init);
  const imports = launch.http === true ? await httpOf(instance, components, launch.outgoing) : {};
  const run = runOf(instance.instantiate(imports));
  return () => ended(run, instance.host);
}

async function httpOf(instance: AsyncInstance, components: Components, outgoing: AsyncLaunch["outgoing"]) {
  const { asyncHttp, asyncHttpImports } = await import("./async-http.ts");
  const { outgoingHttp } = await import("../../serving/serve-component.ts");
  return asyncHttpImports(asyncHttp(instance.context), outgoingHttp(outgoing, components));
}

/** Its run never ends by itself. */
async function serving(
  glue: GlueMaker,
  components: Components,
  init: HostInit,
  { serve, outgoing, processLimitBytes }: AsyncLaunch & { readonly serve: ServeOptions },
): Promise<() => Promise<Outcome>> {
  const { asyncHttp, asyncHttpImports } = await import("./async-http.ts");
  const { asyncHandler } = await import("./async-serve.ts");
  const { serveComponent } = await import("../../serving/serve-component.ts");
  const broken = Promise.withResolvers<never>();
  const instances = new Set<AsyncInstance>();
  // Nothing tells whose it is: all requests that are under way are lost.
  const onFault = (error: unknown): void => {
    for (const each of instances) each.fail(error);
  };
  const make = (asked: Parameters<typeof asyncHttpImports>[1]): HandlerInstance => {
    const instance = new AsyncInstance(glue, components, init);
    const http = asyncHttp(instance.context);
    const handler = asyncHandler(instance.instantiate(asyncHttpImports(http, asked)), http, instance.fault);
    instances.add(instance);
    const discard = (): void => {
      instances.delete(instance);
      instance.close();
    };
    let served = 0;
    const isSpent = (): boolean => {
      served += 1;
      return served >= MAX_REQUESTS;
    };
    return { ...handler, discard, isSpent };
  };
  await serveComponent({ make, host: components, outgoing, processLimitBytes, onBroken: broken.reject }, init, serve);
  for (const event of FAULTS) process.on(event, onFault);
  components.beforeWait();
  return () => broken.promise;
}

async function ended(run: RunExport, host: AsyncHost): Promise<Outcome> {
  const fault = Promise.withResolvers<never>();
  // What is thrown in a timer of the glue's, or kept in a promise that it let go of, is the component's trap too.
  const onFault = (error: unknown): void => fault.reject(error);
  for (const event of FAULTS) process.on(event, onFault);
  try {
    await Promise.race([(async () => run())(), fault.promise]);
    return "ok";
  } catch (error) {
    // Who left is ended as soon as its output is in the log.
    if (error instanceof ExitRequest) return await new Promise<never>(() => undefined);
    throw error;
  } finally {
    await host.drained();
    for (const event of FAULTS) process.off(event, onFault);
  }
}

function runOf(instance: Readonly<Record<string, unknown>>): RunExport {
  for (const [name, exported] of Object.entries(instance)) {
    const { run } = name.startsWith(RUN_INTERFACE) ? (exported as Record<string, unknown>) : {};
    if (typeof run === "function") return () => run() as Promise<unknown>;
  }
  throw new PicoletError("invalid", "the component exports no wasi:cli/run");
}
