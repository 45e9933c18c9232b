/** Two ends of a connection in memory, of which either can be slowed down, cut or looked into. */
import { type Duplex, duplexPair } from "node:stream";
import { type BytePipe, SocketPipe } from "@picolet/kubelet-api/pipes/byte-pipe.ts";

export interface PipePair {
  readonly one: BytePipe;
  readonly other: BytePipe;
  /** The sockets behind them. */
  readonly sockets: readonly [Duplex, Duplex];
}

export function pipePair(): PipePair {
  const sockets = duplexPair();
  const [first, second] = sockets;
  // As on a network, the other end sees a close.
  first.once("close", () => second.destroy());
  second.once("close", () => first.destroy());
  return { one: new SocketPipe(first), other: new SocketPipe(second), sockets };
}
