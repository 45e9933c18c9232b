import { createServer, type Server, type Socket } from "node:net";
import type { Log } from "@picolet/protocol/ports.ts";

export interface NodeListenersInit {
  /** To listen on; undefined: every address of this machine. */
  readonly host: string | undefined;
  /** Inclusive; undefined: any free ones. */
  readonly ports: { readonly first: number; readonly last: number } | undefined;
}

interface Listener {
  readonly server: Server;
  /** Undefined until it listens. */
  port: number | undefined;
}

/**
 * Connections to one node at once: the agent has a few dozen streams at most, and API servers keep some idle. A further
 * one is closed.
 */
export const MAX_CONNECTIONS_PER_NODE = 256;

/** Where no range is given, a port that a Node names is taken again from here on: Linux' own choices begin there. */
const FIRST_DYNAMIC_PORT = 32_768;
const LAST_PORT = 65_535;

/** How soon the kernel probes the connection of a silent API server. */
export const KEEP_ALIVE_MS = 30_000;

/** One listening socket for each node; all connections go to one place, with their node. */
export class NodeListeners implements Disposable {
  readonly #log: Log;
  readonly #init: NodeListenersInit;
  readonly #onConnection: (socket: Socket) => void;
  readonly #byNode = new Map<string, Listener>();
  readonly #byPort = new Map<number, string>();
  #nextPort: number;

  constructor(
    components: { readonly log: Log; readonly onConnection: (socket: Socket) => void },
    init: NodeListenersInit,
  ) {
    this.#log = components.log;
    this.#onConnection = components.onConnection;
    this.#init = init;
    this.#nextPort = init.ports?.first ?? 0;
  }

  get nodes(): ReadonlySet<string> {
    return new Set(this.#byNode.keys());
  }

  /** Undefined while it does not listen. */
  portOf(node: string): number | undefined {
    return this.#byNode.get(node)?.port;
  }

  nodeAt(port: number): string | undefined {
    return this.#byPort.get(port);
  }

  /**
   * Listens for `node`, unless that is so already. Its port is known when this returns, unless that one is taken or a
   * host has to be looked up first.
   * @param wanted the port to try first: clients that know it from before a restart of the hub need not learn another
   */
  open(node: string, wanted?: number): void {
    if (this.#byNode.has(node)) return;
    const server = createServer(
      { noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS },
      this.#onConnection,
    );
    server.maxConnections = MAX_CONNECTIONS_PER_NODE;
    const listener: Listener = { server, port: undefined };
    this.#byNode.set(node, listener);
    const listening = (): void => {
      const address = server.address();
      if (address === null || typeof address === "string") return;
      if (this.#byNode.get(node) !== listener) {
        // Closed while its host was looked up.
        server.close();
        return;
      }
      listener.port = address.port;
      this.#byPort.set(address.port, node);
    };
    server.on("listening", listening);
    const first = wanted !== undefined && this.#isFree(wanted) ? wanted : undefined;
    let tries = this.#portCount + (first === undefined ? 0 : 1);
    server.on("error", (error: NodeJS.ErrnoException) => {
      tries -= 1;
      const another = error.code === "EADDRINUSE" && tries > 0;
      if (another && this.#listen(server)) return;
      this.#log.error("cannot listen as the kubelet of a node", { node, error });
      // Tried again when it is asked for, or when another node comes or goes.
      if (listener.port === undefined) this.close(node);
    });
    if (this.#listen(server, first)) {
      listening();
      return;
    }
    this.#log.error("all ports for kubelet endpoints are taken", { node, ...this.#init.ports });
    this.close(node);
  }

  close(node: string): void {
    const listener = this.#byNode.get(node);
    if (listener === undefined) return;
    this.#byNode.delete(node);
    if (listener.port !== undefined) this.#byPort.delete(listener.port);
    if (listener.server.listening) listener.server.close();
  }

  [Symbol.dispose](): void {
    for (const node of [...this.#byNode.keys()]) this.close(node);
  }

  get #portCount(): number {
    const { ports } = this.#init;
    return ports === undefined ? 1 : ports.last - ports.first + 1;
  }

  /** @returns false when no port is left */
  #listen(server: Server, wanted?: number): boolean {
    const { host } = this.#init;
    const port = wanted ?? this.#takePort();
    if (port === undefined) return false;
    server.listen({ port, ...(host === undefined ? {} : { host }) });
    return true;
  }

  #isFree(port: number): boolean {
    const { first, last } = this.#init.ports ?? { first: FIRST_DYNAMIC_PORT, last: LAST_PORT };
    return port >= first && port <= last && !this.#byPort.has(port);
  }

  /** The next of the range that none of our own nodes has. */
  #takePort(): number | undefined {
    const { ports } = this.#init;
    if (ports === undefined) return 0;
    for (let tries = this.#portCount; tries > 0; tries -= 1) {
      const port = this.#nextPort;
      this.#nextPort = port === ports.last ? ports.first : port + 1;
      if (!this.#byPort.has(port)) return port;
    }
    return undefined;
  }
}
