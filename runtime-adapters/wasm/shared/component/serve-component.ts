/** A component that exports wasi:http/incoming-handler, served until its process ends. */
import { readFileSync } from "node:fs";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { ServeOptions } from "../grants/http-options.ts";
import { type HostComponents, type HostInit, hostImports, type Imports } from "../host/host.ts";
import { httpContext, httpImports } from "../http/http.ts";
import type { HttpContext } from "../http/http-context.ts";
import type { IncomingRequest, ResponseOutparam } from "../http/messages.ts";
import { noOutgoing, type OutgoingHttp, type OutgoingInit, OutgoingRequests } from "../http/outgoing.ts";
import { InstanceEnd, type LoopWaiter, suspendableInstantiate } from "../resources/event-loop.ts";
import { LiveResources, trap } from "../resources/handles.ts";
import type { StreamContext } from "../resources/streams.ts";
import { HttpServer } from "../serving/http-server.ts";
import { type HandlerInstance, InstancePool } from "../serving/instance-pool.ts";
import { nodeParts } from "../serving/node-parts.ts";
import { MemoryGuard, serveMemory } from "../serving/serve-memory.ts";
import type { InstantiateComponent } from "./load-component.ts";
import { trapMessage } from "./trap-message.ts";

/** With less, smaller code is worth more than faster code. */
const FAST_LIMIT_BYTES = 64 * MEBIBYTE;
const HANDLER = "wasi:http/incoming-handler@";

/** One of WASI 0.2. */
export interface ServeComponents extends ServeParts {
  readonly instantiate: InstantiateComponent;
  readonly loop: LoopWaiter;
}

/** One of any other. */
interface MadeComponents extends ServeParts {
  readonly make: (outgoing: OutgoingHttp) => HandlerInstance;
}

interface ServeParts {
  readonly host: Omit<HostComponents, "http">;
  /** Undefined: it may make no requests. */
  readonly outgoing: OutgoingLaunch | undefined;
  /** The process's memory limit, when the process is this component's own. */
  readonly processLimitBytes?: number | undefined;
  /** The component cannot be instantiated any more. */
  readonly onBroken: (error: unknown) => void;
}

/** The peers that a component may call, and the CAs that it trusts. */
export type OutgoingLaunch = Pick<OutgoingInit, "policy" | "authorities" | "tls">;

type OutgoingHost = Pick<HostComponents, "log" | "wallIsSet">;

export function outgoingHttp(
  launch: OutgoingLaunch | undefined,
  { log, wallIsSet = () => true }: OutgoingHost,
): OutgoingHttp {
  if (launch === undefined) return noOutgoing;
  return new OutgoingRequests({
    ...{ ...launch, wallIsSet },
    complain: (text) => log.write("stderr", Buffer.from(text)),
  });
}

/** wasi:http of a component that is run, not served. */
export const clientImports =
  (launch: OutgoingLaunch | undefined, host: OutgoingHost) =>
  (streams: StreamContext): Imports =>
    httpImports(httpContext(streams), outgoingHttp(launch, host));

/**
 * Resolves when it serves.
 * @throws errors of the first instance, or of the port
 * @returns a function that ends the serving at once
 */
export async function serveComponent(
  components: ServeComponents | MadeComponents,
  init: HostInit,
  options: ServeOptions,
): Promise<() => void> {
  const { host, onBroken, processLimitBytes } = components;
  // Twice the requests a second for 10 MiB more under load. A component with few requests stays as small.
  if (processLimitBytes === undefined || processLimitBytes >= FAST_LIMIT_BYTES) {
    process.getBuiltinModule("node:v8").setFlagsFromString("--no-optimize-for-size");
  }
  const now = (): number => Number(process.hrtime.bigint()) / 1e6;
  const guard = new MemoryGuard({ now, anonBytes, collect }, processLimitBytes);
  const outgoing = outgoingHttp(components.outgoing, host);
  const makeOne = (made: ServeComponents): HandlerInstance =>
    instance(made, init, (streams) => {
      const context = httpContext(streams);
      return [context, httpImports(context, outgoing)];
    });
  const pool = new InstancePool(
    {
      make: () => ("make" in components ? components.make(outgoing) : makeOne(components)),
      now,
      mayGrow: () => !guard.isTight,
      onFault: (exchange, fault) => {
        const text = `picolet: the request ${exchange.name} failed: ${trapMessage(fault)}\n`;
        host.log.write("stderr", Buffer.from(text));
      },
      onBroken,
    },
    options,
  );
  pool.prepare();
  const parts = await nodeParts();
  const server = new HttpServer(
    {
      ...{ parts, pool, memory: serveMemory(processLimitBytes, parts.weight) },
      ...{ isTight: () => guard.isTight, now, wallNow: host.wallNow },
    },
    options,
  );
  return () => server.close();
}

/** proc_pid_status(5): the memory that counts for the limit of a cgroup, except the kernel's own. */
function anonBytes(): number {
  const [, kib] = /^RssAnon:\s+(\d+) kB/m.exec(readFileSync("/proc/self/status", "utf8")) ?? [];
  return Number(kib ?? 0) * KIBIBYTE;
}

const collect = (): void => void globalThis.gc?.({ type: "major", flavor: "last-resort", execution: "sync" });

function instance(
  { instantiate, loop, host }: ServeComponents,
  init: HostInit,
  http: (streams: StreamContext) => readonly [HttpContext, Imports],
): HandlerInstance {
  let outcome: Promise<unknown> | undefined;
  let context: HttpContext | undefined;
  const live = new LiveResources();
  const end = new InstanceEnd();
  host.live?.addInstance(live);
  const imports = hostImports(
    {
      ...host,
      live,
      http: (streams) => {
        const [made, own] = http(streams);
        context = made;
        return own;
      },
    },
    init,
  );
  const exports = instantiate(
    imports,
    suspendableInstantiate(
      loop,
      (name) => name.startsWith(HANDLER),
      (promise) => {
        outcome = promise;
      },
      end,
    ),
  );
  const name = Object.keys(exports).find((each) => each.startsWith(HANDLER)) ?? "";
  const { handle } = exports[name] as { handle(request: IncomingRequest, out: ResponseOutparam): void };
  if (context === undefined) throw new TypeError("the host has no wasi:http");
  return {
    context,
    handle(request, out) {
      handle(request, out);
      return outcome ?? Promise.resolve();
    },
    discard: () => end.end(trap("its request is over")),
    close: () => {
      live.closeAll();
      host.live?.deleteInstance(live);
    },
  };
}
