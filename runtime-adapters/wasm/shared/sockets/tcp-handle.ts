/**
 * libuv's TCP handle as Node has it. `node:net` binds only as part of listening or connecting; wasi:sockets, as the
 * system's own calls, binds first, tells the port, and decides then. No public part of Node does that, and none takes
 * connections one at a time. The version of Node is fixed with the product, and `sockets.test.ts` sees when this changes.
 */

interface AddressOut {
  address?: string;
  port?: number;
}

/** Results below 0 are errno. */
export interface TCP {
  bind(address: string, port: number): number;
  bind6(address: string, port: number, flags: number): number;
  listen(backlog: number): number;
  getsockname(out: AddressOut): number;
  getpeername(out: AddressOut): number;
  setKeepAlive(on: boolean, idleSeconds: number): number;
  close(): void;
  onconnection: ((status: number, client: TCP | undefined) => void) | undefined;
}

interface TcpWrap {
  readonly TCP: new (kind: number) => TCP;
  readonly constants: { readonly SOCKET: number; readonly UV_TCP_IPV6ONLY: number };
}

/** Of libuv: a socket of IPv6 takes no IPv4, as the interface has it. */
export const IPV6_ONLY = 1;

export function newTcpHandle(): TCP {
  const binding = Reflect.get(process, "binding") as (name: string) => TcpWrap;
  const { TCP: Handle, constants } = binding.call(process, "tcp_wrap");
  return new Handle(constants.SOCKET);
}
