/** State that all sockets of a component share. */
import type { LoopTimers } from "../resources/event-loop.ts";
import type { StreamContext } from "../resources/streams.ts";
import type { NetworkAccess } from "./network-access.ts";

/** Parts of Node that are loaded when a component first needs them: 0.3 to 0.7 MiB each. */
export interface SocketModules {
  net(): typeof import("node:net");
  dgram(): typeof import("node:dgram");
  dns(): Pick<typeof import("node:dns"), "lookup">;
  url(): Pick<typeof import("node:url"), "domainToASCII">;
}

export interface SocketContext extends StreamContext {
  readonly access: NetworkAccess;
  readonly modules: SocketModules;
  readonly timers: Pick<LoopTimers, "after">;
}
