/** Runs one component to its end, in a process of its own or in one of several (`dense/`). */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { BoardInterface } from "@picolet/runtime-contract/board-services.ts";
import type { HostPartContext } from "../board/board.ts";
import type { ServeOptions } from "../grants/http-options.ts";
import { type HostComponents, type HostInit, hostContext, hostImports, type Imports } from "../host/host.ts";
import type { LogWriter } from "../host/log-writer.ts";
import type { Preopen } from "../host/mounts.ts";
import { TlsContexts } from "../http/tls-contexts.ts";
import type { RunnerEnd, RunnerLaunch } from "../messages/launch.ts";
import { NetworkPolicy } from "../network/network-policy.ts";
import { type LoopWaiter, suspendableInstantiate } from "../resources/event-loop.ts";
import type { LiveResources } from "../resources/handles.ts";
import type { Waiter } from "../resources/polling.ts";
import type { StreamContext } from "../resources/streams.ts";
import type { AgentCalls } from "../services/agent-calls.ts";
import type { ServiceClient } from "../services/service-client.ts";
import type { InstantiateComponent } from "./load-component.ts";
import type { OutgoingLaunch, ServeComponents } from "./serve-component.ts";
import { trapMessage, trapReport } from "./trap-message.ts";

/** Runs the component to its end. On the event loop the promise is of its outcome, otherwise it has ended on return. */
export type Run = () => undefined | Promise<"ok" | "err">;

/** The parts of the launch and of the process that a component of WASI 0.3 needs. */
export interface AsyncLaunch {
  /** True when it imports wasi:http, or is served. */
  readonly http?: boolean;
  /** Undefined: it is run. */
  readonly serve?: ServeOptions | undefined;
  /** True when it imports wasi:sockets. */
  readonly sockets?: boolean;
  /** The peers that it may call and connect to; undefined: none. */
  readonly outgoing?: OutgoingLaunch | undefined;
  readonly processLimitBytes?: number | undefined;
}

export interface InstanceComponents extends HostComponents {
  /** Calls `act` once after so many milliseconds. @returns a function that cancels that */
  readonly after: (milliseconds: number, act: () => void) => () => void;
  /** The runner's own, because parts of 0.2 that other modules provide must be of the same classes. */
  readonly host: { readonly imports: typeof hostImports; readonly context: typeof hostContext };
  /** True when it may wait for more than time through interfaces of WASI 0.2: for devices. */
  readonly waitsBy02: boolean;
}

/** Modules that only some components need. */
export interface OptionalModules {
  readonly sockets: typeof import("../sockets/sockets.ts") | undefined;
  readonly board: typeof import("../board/board.ts") | undefined;
  readonly http: typeof import("./serve-component.ts") | undefined;
}

/** Files and connections that were opened for the component, and its ways to the process. */
export interface OpenedComponent {
  readonly preopens: readonly Preopen[];
  readonly connection: ServiceClient | undefined;
  readonly instantiate: InstantiateComponent;
  /** The node's devices, for a component that imports them. */
  readonly devices?:
    | ((context: StreamContext, interfaces: readonly BoardInterface[]) => (agent: AgentCalls) => Imports)
    | undefined;
  /** For a component that has models computed. */
  readonly inference?: HostPartContext["inference"];
  readonly log: LogWriter;
  readonly waiter: Waiter;
  /** The waiter, where it waits on the event loop. */
  readonly loop: LoopWaiter | undefined;
  readonly beforeWait: () => void;
  readonly exit: (code: number) => never;
  /** @returns a function that cancels it */
  readonly after: (milliseconds: number, act: () => void) => () => void;
  readonly live?: LiveResources | undefined;
  /** Where several share a process; undefined: it is alone. */
  readonly tls?: TlsContexts | undefined;
  /** Prepares one of WASI 0.3. */
  readonly asynchronous?:
    | ((components: Omit<InstanceComponents, "after">, init: HostInit, launch: AsyncLaunch) => Promise<Run>)
    | undefined;
  /** The process's memory limit, when the process is this component's own; undefined: none, or it is shared. */
  readonly processLimitBytes?: number | undefined;
  /** Receives a function that ends the serving, for a component that serves. */
  readonly onServing?: ((end: () => void) => void) | undefined;
}

const RUN_INTERFACE = "wasi:cli/run@";
const isRun = (coreExport: string): boolean => coreExport.startsWith(RUN_INTERFACE);

/** One of WASI 0.3 loads its own. */
export const loadOptionalModules = async ({ network, board, http, p3 }: RunnerLaunch): Promise<OptionalModules> => ({
  sockets: !p3 && network ? await import("../sockets/sockets.ts") : undefined,
  board: board && (await import("../board/board.ts")),
  http: http && !p3 ? await import("./serve-component.ts") : undefined,
});

/** Everything up to the component's first instruction that is its own. */
export function prepareRun(launch: RunnerLaunch, opened: OpenedComponent, parts: OptionalModules): Run | Promise<Run> {
  const { preopens, connection, instantiate, log, waiter, loop, beforeWait, exit, after, live, devices, inference } =
    opened;
  const policy = launch.network && new NetworkPolicy(launch.network, ownAddresses(monotonicNow));
  const access = policy && parts.sockets && new parts.sockets.NetworkAccess(policy);
  const sockets = (context: StreamContext): Imports | undefined =>
    access && parts.sockets?.networkImports(context, { access, timers: { after } });
  const board = (context: StreamContext): Imports | undefined =>
    launch.board &&
    parts.board?.boardImports(
      {
        ...context,
        log,
        preopens,
        client: connection,
        inference,
        devices: devices?.(context, launch.board.interfaces),
      },
      launch.board,
    );
  const components: HostComponents = {
    waiter,
    wallNow: Date.now,
    wallIsSet: () => Date.now() >= launch.timeFloorMs,
    log,
    sockets,
    board,
    exit,
    beforeWait,
    live,
  };
  const { args, env, workingDir } = launch;
  const init = { args, env, workingDir, preopens };
  const { authorities } = launch;
  const outgoing = policy && { policy, authorities, tls: opened.tls ?? new TlsContexts() };
  const { processLimitBytes } = opened;
  if (opened.asynchronous !== undefined) {
    const { http, serve } = launch;
    const host = { imports: hostImports, context: hostContext };
    return opened.asynchronous({ ...components, sockets: undefined, host, waitsBy02: devices !== undefined }, init, {
      http,
      sockets: launch.sockets,
      serve,
      outgoing,
      processLimitBytes,
    });
  }
  if (launch.serve !== undefined && loop !== undefined) {
    const served = { instantiate, loop, host: components, outgoing, processLimitBytes };
    return serve(served, init, launch.serve, parts, opened.onServing);
  }
  let outcome: Promise<unknown> | undefined;
  const instance = instantiate(
    hostImports({ ...components, http: parts.http?.clientImports(outgoing, components) }, init),
    loop &&
      suspendableInstantiate(loop, isRun, (promise) => {
        outcome = promise;
      }),
  );
  const run = runFunction(instance);
  return () => {
    run();
    return outcome?.then((result) => (result === 0 ? "ok" : "err"));
  };
}

/** Its run never ends by itself. */
async function serve(
  served: Omit<ServeComponents, "onBroken">,
  init: HostInit,
  options: ServeOptions,
  { http }: OptionalModules,
  onServing: OpenedComponent["onServing"],
): Promise<Run> {
  const { promise, reject } = Promise.withResolvers<never>();
  const end = await http?.serveComponent({ ...served, onBroken: reject }, init, options);
  if (end !== undefined) onServing?.(end);
  served.host.beforeWait();
  return () => promise;
}

function runFunction(instance: unknown): () => void {
  for (const [name, exported] of Object.entries(instance as Record<string, Record<string, unknown>>)) {
    const run = name.startsWith(RUN_INTERFACE) ? exported.run : undefined;
    if (typeof run === "function") return () => void run();
  }
  throw new PicoletError("invalid", "the component exports no wasi:cli/run");
}

/** How a container ended, for its status and for its log. */
export interface Trap {
  readonly end: RunnerEnd;
  readonly report: string;
}

/** How a component ended that did not return. @returns undefined: with its own `err` result */
export function trapOf(error: unknown): Trap | undefined {
  if (error instanceof Error && Object.hasOwn(error, "payload")) return undefined;
  const message = trapMessage(error);
  return { end: { kind: "trap", message }, report: trapReport(error, message) };
}

/** Nanoseconds. */
export const monotonicNow = (): bigint => process.hrtime.bigint();
/** Milliseconds. `performance` would load modules of Node's that take 0.15 MiB of each runner. */
export const monotonicMs = (): number => Number(monotonicNow()) / 1e6;

/** How long the node's addresses are cached. Interfaces change rarely; components may connect or send often. */
const ADDRESSES_CACHED_NS = 1_000_000_000n;

/** @returns the node's own addresses. @param now nanoseconds of the monotonic clock */
function ownAddresses(now: () => bigint): () => readonly string[] {
  let known: readonly string[] = [];
  let knownUntil: bigint | undefined;
  return () => {
    const at = now();
    if (knownUntil === undefined || at >= knownUntil) {
      // Loaded only by components with a network.
      const { networkInterfaces } = process.getBuiltinModule("node:os");
      known = Object.values(networkInterfaces()).flatMap((each) => each?.map(({ address }) => address) ?? []);
      knownUntil = at + ADDRESSES_CACHED_NS;
    }
    return known;
  };
}
