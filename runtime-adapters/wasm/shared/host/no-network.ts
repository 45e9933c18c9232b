/**
 * wasi:sockets without a network. Standard libraries and adapters import it without need, so the names exist, and every
 * attempt to use the network is answered with `access-denied`.
 */
import { Failure } from "../resources/failure.ts";
import { type Handles, HostResource } from "../resources/handles.ts";
import type { HostError } from "../resources/streams.ts";

const denied = (): never => {
  throw new Failure("access-denied");
};

/** Made without asking for rights: it is the socket or the look-up made with it that is refused. */
export class Network extends HostResource {}

/** Classes of resources that never come to be; the generated glue only compares with them. */
class TcpSocket {}
class UdpSocket {}
class IncomingDatagramStream {}
class OutgoingDatagramStream {}
class ResolveAddressStream {}

/** Codes that only WASI 0.3 distinguishes are one code here. */
export function networkErrorCode(error: HostError): unknown {
  const code = error.codeIn("network");
  return code === "connection-broken" ? "connection-reset" : code;
}

export const noNetworkImports = (handles: Handles) => ({
  "wasi:sockets/instance-network": { instanceNetwork: () => new Network(handles.networks) },
  "wasi:sockets/network": { Network, networkErrorCode },
  "wasi:sockets/ip-name-lookup": { ResolveAddressStream, resolveAddresses: denied },
  "wasi:sockets/tcp": { TcpSocket },
  "wasi:sockets/tcp-create-socket": { createTcpSocket: denied },
  "wasi:sockets/udp": { UdpSocket, IncomingDatagramStream, OutgoingDatagramStream },
  "wasi:sockets/udp-create-socket": { createUdpSocket: denied },
});
