/** wasi:sockets for a component whose pod grants it a network. */

import type { Imports } from "../host/host.ts";
import { Network, networkErrorCode } from "../host/no-network.ts";
import type { LoopTimers } from "../resources/event-loop.ts";
import type { StreamContext } from "../resources/streams.ts";
import { IncomingDatagramStream, OutgoingDatagramStream } from "./datagram-streams.ts";
import { ResolveAddressStream, resolveAddresses } from "./name-lookup.ts";
import type { NetworkAccess } from "./network-access.ts";
import type { Family } from "./socket-addresses.ts";
import type { SocketContext, SocketModules } from "./socket-context.ts";
import { TcpSocket } from "./tcp-socket.ts";
import { UdpSocket } from "./udp-socket.ts";

export { NetworkAccess } from "./network-access.ts";

const ofNode: SocketModules = {
  net: () => process.getBuiltinModule("node:net"),
  dgram: () => process.getBuiltinModule("node:dgram"),
  dns: () => process.getBuiltinModule("node:dns"),
  url: () => process.getBuiltinModule("node:url"),
};

export interface NetworkInit {
  /** One for all instances of a container. */
  readonly access: NetworkAccess;
  readonly timers: Pick<LoopTimers, "after">;
  /** Missing: those of this Node. */
  readonly modules?: SocketModules | undefined;
}

export const socketContext = (
  { handles, poller, wallNow }: StreamContext,
  { access, timers, modules = ofNode }: NetworkInit,
): SocketContext => ({ handles, poller, wallNow, access, timers, modules });

export function networkImports(streams: StreamContext, init: NetworkInit): Imports {
  const context = socketContext(streams, init);
  return {
    "wasi:sockets/instance-network": { instanceNetwork: () => new Network(streams.handles.networks) },
    "wasi:sockets/network": { Network, networkErrorCode },
    "wasi:sockets/ip-name-lookup": {
      ResolveAddressStream,
      resolveAddresses: (_: Network, name: string) => resolveAddresses(context, name),
    },
    "wasi:sockets/tcp": { TcpSocket },
    "wasi:sockets/tcp-create-socket": { createTcpSocket: (family: Family) => TcpSocket.create(context, family) },
    "wasi:sockets/udp": { UdpSocket, IncomingDatagramStream, OutgoingDatagramStream },
    "wasi:sockets/udp-create-socket": { createUdpSocket: (family: Family) => UdpSocket.create(context, family) },
  };
}
