/** Runs, or serves, a component of WASI 0.3: jco's own glue keeps its tasks, and waits on the event loop. */

import { PicoletError } from "@picolet/protocol/errors.ts";
import type { AsyncLaunch, InstanceComponents } from "../../shared/component/component-run.ts";
import type { GlueMaker } from "../../shared/component/load-component.ts";
import type { HostInit } from "../../shared/host/host.ts";
import { ExitRequest } from "./async-imports.ts";
import { AsyncInstance } from "./async-instance.ts";
import { socketsOf } from "./async-network.ts";
import { type AsyncTasks, FAULTS } from "./async-tasks.ts";

type Outcome = "ok" | "err";
type RunExport = () => Outcome | undefined | Promise<unknown>;

const RUN_INTERFACE = "wasi:cli/run@";

/** @returns runs it to its end; rejects for a trap, and for the component's own `err`, which has a `payload` */
export async function prepareAsync(
  glue: GlueMaker,
  components: InstanceComponents,
  init: HostInit,
  launch: AsyncLaunch = {},
): Promise<() => Promise<Outcome>> {
  if (launch.serve !== undefined) {
    const { serveAsync } = await import("./async-serve.ts");
    const { broken } = await serveAsync(glue, components, init, { ...launch, serve: launch.serve });
    components.beforeWait();
    return () => broken;
  }
  const instance = new AsyncInstance(glue, components, init);
  const imports = launch.http === true ? await httpOf(instance, components, launch.outgoing) : {};
  const sockets = await socketsOf(components, launch);
  const run = runOf(instance.instantiate({ ...imports, ...sockets(instance.context) }));
  return () => ended(run, instance);
}

async function httpOf(instance: AsyncInstance, components: InstanceComponents, outgoing: AsyncLaunch["outgoing"]) {
  const { asyncHttp, asyncHttpImports } = await import("./async-http.ts");
  const { outgoingHttp } = await import("../../shared/component/serve-component.ts");
  return asyncHttpImports(asyncHttp(instance.context), outgoingHttp(outgoing, components));
}

async function ended(run: RunExport, instance: AsyncInstance): Promise<Outcome> {
  const { tasks } = instance;
  // An error in a timer of the glue, or in a promise that it dropped, is the component's trap too.
  const onFault = (error: unknown): void => tasks.fail(error);
  for (const event of FAULTS) process.on(event, onFault);
  try {
    await tasks.unlessBroken(whole(run, tasks));
    return "ok";
  } catch (error) {
    // A component that exited is ended as soon as its output is in the log.
    if (error instanceof ExitRequest) return await new Promise<never>(() => undefined);
    throw error;
  } finally {
    await instance.end();
    for (const event of FAULTS) process.off(event, onFault);
  }
}

/** The component may continue after its return. */
async function whole(run: RunExport, tasks: AsyncTasks): Promise<void> {
  await run();
  await tasks.atRest();
}

function runOf(instance: Readonly<Record<string, unknown>>): RunExport {
  for (const [name, exported] of Object.entries(instance)) {
    const { run } = name.startsWith(RUN_INTERFACE) ? (exported as Record<string, unknown>) : {};
    if (typeof run === "function") return () => run() as Promise<unknown>;
  }
  throw new PicoletError("invalid", "the component exports no wasi:cli/run");
}
