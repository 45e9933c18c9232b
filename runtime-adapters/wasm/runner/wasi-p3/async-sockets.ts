/**
 * wasi:sockets of WASI 0.3 for a component whose pod grants it a network: by the same policy and within the same limits
 * as that of 0.2.
 */

import type { Imports } from "../../shared/host/host.ts";
import { Failure } from "../../shared/resources/failure.ts";
import { makeConstructor, trapOnNew } from "../../shared/resources/handles.ts";
import { type LookupOutcome, lookUp } from "../../shared/sockets/name-lookup.ts";
import type { Family, IpAddressValue } from "../../shared/sockets/socket-addresses.ts";
import { type NetworkInit, socketContext } from "../../shared/sockets/sockets.ts";
import type { AsyncContext } from "./async-context.ts";
import type { AsyncNetwork } from "./async-socket.ts";
import { attempt, lookupError } from "./async-socket-errors.ts";
import { AsyncTcpSocket } from "./async-tcp.ts";
import { AsyncUdpSocket } from "./async-udp.ts";

export { NetworkAccess } from "../../shared/sockets/network-access.ts";

/** The first groups of an IPv6 address that maps one of IPv4. */
const MAPPED_PREFIX = [0, 0, 0, 0, 0, 0xffff];
const OCTET_BITS = 8;
const OCTET = 0xff;

export function asyncSocketImports(context: AsyncContext, init: NetworkInit): Imports {
  const network: AsyncNetwork = { context, sockets: socketContext(context, init) };
  context.restsWith(() => network.sockets.access.unused());
  return {
    "wasi:sockets/types": {
      TcpSocket: makeConstructor(AsyncTcpSocket, trapOnNew, {
        create: (family: Family) => AsyncTcpSocket.create(network, family),
      }),
      UdpSocket: makeConstructor(AsyncUdpSocket, trapOnNew, {
        create: (family: Family) => AsyncUdpSocket.create(network, family),
      }),
    },
    "wasi:sockets/ip-name-lookup": { resolveAddresses: (name: string) => resolved(network, name) },
  };
}

/** Never none. */
async function resolved({ sockets }: AsyncNetwork, name: string): Promise<IpAddressValue[]> {
  const begin = attempt(() => lookUp(sockets, name), lookupError);
  const outcome = await new Promise<LookupOutcome>(begin);
  if (typeof outcome === "string") throw new Failure(lookupError(outcome));
  if (outcome.length === 0) throw new Failure(lookupError("name-unresolvable"));
  return outcome.map(unmapped);
}

function unmapped(address: IpAddressValue): IpAddressValue {
  const { tag, val } = address;
  if (tag === "ipv4" || MAPPED_PREFIX.some((group, at) => val[at] !== group)) return address;
  const groups = val.slice(MAPPED_PREFIX.length);
  return { tag: "ipv4", val: groups.flatMap((group) => [group >> OCTET_BITS, group & OCTET]) };
}
