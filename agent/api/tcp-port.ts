import type { Server } from "node:net";
import { describeError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";

export interface TcpPortComponents<S extends Server> {
  /** A new server, for one attempt to listen. */
  readonly server: () => S;
  readonly clock: Clock;
  readonly log: Log;
}

export interface TcpPortInit {
  /** The component that has the port, for the log. */
  readonly part: string;
  readonly address: string;
  /** 0: any free one. */
  readonly port: number;
  /** The wait before a next attempt doubles up to this; default: it stays the kubelet's. */
  readonly longestWait?: Millis;
}

/** The wait before a port in use, or an address that does not exist yet, is tried again, as by the kubelet. */
const RETRY = seconds(5);

export const portOf = (server: Server | undefined): number | undefined => {
  const address = server?.address();
  return typeof address === "object" ? address?.port : undefined;
};

/** Nothing of the node depends on such a port: one that cannot be had is logged once and tried again. */
export async function listenOnPort<S extends Server>(
  { server, clock, log }: TcpPortComponents<S>,
  { part, address, port, longestWait = RETRY }: TcpPortInit,
  signal: AbortSignal,
): Promise<S> {
  let isFirst = true;
  for (let wait = RETRY; ; wait = millis(Math.min(wait * 2, longestWait))) {
    try {
      const listening = await listen(server(), { address, port });
      listening.on("error", (error) => log.warn("a port failed", { part, error }));
      log.info("listens", { part, address, port: portOf(listening) });
      return listening;
    } catch (error) {
      if (isFirst) log.warn("cannot listen; tries again", { part, address, port, error: describeError(error) });
      isFirst = false;
      await clock.sleep(wait, signal);
    }
  }
}

function listen<S extends Server>(
  server: S,
  { address: host, port }: Pick<TcpPortInit, "address" | "port">,
): Promise<S> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port }, () => {
      server.removeListener("error", reject);
      resolve(server);
    });
  });
}
