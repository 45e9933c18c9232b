/**
 * wasi:sockets of WASI 0.3, loaded for components that import it. Without a network every attempt to use it is answered
 * with `access-denied`, as with 0.2.
 */

import type { AsyncLaunch } from "../../shared/component/component-run.ts";
import type { Imports } from "../../shared/host/host.ts";
import type { LoopTimers } from "../../shared/resources/event-loop.ts";
import { Failure } from "../../shared/resources/failure.ts";
import { makeConstructor, trapOnNew } from "../../shared/resources/handles.ts";
import type { AsyncContext } from "./async-context.ts";

const denied = (): never => {
  throw new Failure({ tag: "access-denied" });
};

/** A resource that is never made. The glue only compares with it. */
const never = (): unknown => makeConstructor({ prototype: {} }, trapOnNew, { create: denied });

const noNetwork = (): Imports => ({
  "wasi:sockets/types": { TcpSocket: never(), UdpSocket: never() },
  "wasi:sockets/ip-name-lookup": { resolveAddresses: denied },
});

/** @returns makes the sockets of an instance */
export async function socketsOf(
  timers: Pick<LoopTimers, "after">,
  { sockets, outgoing }: Pick<AsyncLaunch, "sockets" | "outgoing">,
): Promise<(context: AsyncContext) => Imports> {
  if (sockets !== true) return () => ({});
  if (outgoing === undefined) return noNetwork;
  const { asyncSocketImports, NetworkAccess } = await import("./async-sockets.ts");
  const access = new NetworkAccess(outgoing.policy);
  return (context) => asyncSocketImports(context, { access, timers });
}
