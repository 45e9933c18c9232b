/**
 * An address of its own for each node, on the kubelet's well-known port, for clients that know no other: beside the
 * port that the node has at the hub's own address.
 */
import { hash } from "node:crypto";
import { createServer, isIPv4, type Server, type Socket } from "node:net";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { KEEP_ALIVE_MS, MAX_CONNECTIONS_PER_NODE } from "./node-listeners.ts";

export const KUBELET_PORT = 10_250;
/**
 * 16 million addresses; and the two that are left of the smallest network without its own and its broadcast address.
 */
const SHORTEST_PREFIX = 8;
const LONGEST_PREFIX = 30;

/** The addresses of an IPv4 network, without its own and the broadcast address. */
export interface AddressRange {
  readonly cidr: string;
  readonly first: number;
  readonly count: number;
}

/** @throws `invalid` */
export function addressRangeOf(cidr: string): AddressRange {
  const [address = "", length = "", ...more] = cidr.split("/");
  const prefix = /^\d{1,2}$/.test(length) ? Number(length) : Number.NaN;
  if (!isIPv4(address) || more.length > 0 || !(prefix >= SHORTEST_PREFIX && prefix <= LONGEST_PREFIX)) {
    const lengths = `/${SHORTEST_PREFIX} to /${LONGEST_PREFIX}`;
    throw new PicoletError("invalid", `${cidr} is no IPv4 network of ${lengths} such as 10.200.0.0/16`);
  }
  const size = 2 ** (32 - prefix);
  return { cidr, first: Math.floor(numberOf(address) / size) * size + 1, count: size - 2 };
}

const numberOf = (address: string): number => address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
const textOf = (address: number): string =>
  [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join(".");

export interface NodeAddressesInit {
  readonly range: AddressRange;
  readonly port: number;
}

export class NodeAddresses implements Disposable {
  readonly #log: Log;
  readonly #init: NodeAddressesInit;
  readonly #onConnection: (socket: Socket) => void;
  readonly #byNode = new Map<string, { readonly address: string; readonly server: Server }>();
  readonly #byAddress = new Map<string, string>();
  /** Nodes that got none, which is in the log. They are reached at the hub's address until it is started again. */
  readonly #failed = new Set<string>();
  #isDisposed = false;

  constructor(
    components: { readonly log: Log; readonly onConnection: (socket: Socket) => void },
    init: NodeAddressesInit,
  ) {
    this.#log = components.log;
    this.#onConnection = components.onConnection;
    this.#init = init;
  }

  /** Undefined: the node has none, and is reached at its port of the hub's address. */
  endpointOf(node: string): { readonly address: string; readonly port: number } | undefined {
    const address = this.#byNode.get(node)?.address;
    return address === undefined ? undefined : { address, port: this.#init.port };
  }

  /** @param address of this machine, where a connection has come in */
  nodeAt(address: string, port: number): string | undefined {
    return port === this.#init.port ? this.#byAddress.get(address) : undefined;
  }

  /** True when an address is in the range, a node's or not. */
  includes(address: string): boolean {
    const { first, count } = this.#init.range;
    return isIPv4(address) && numberOf(address) >= first && numberOf(address) < first + count;
  }

  /** Listens for `node`, unless that is so already. Its address follows from its name, so that it outlives the hub. */
  open(node: string): void {
    if (this.#isDisposed || this.#byNode.has(node) || this.#failed.has(node)) return;
    const address = this.#freeAddress(node);
    const { port, range } = this.#init;
    if (address === undefined) {
      this.#failed.add(node);
      this.#log.error("all addresses for kubelet endpoints are taken", { node, range: range.cidr });
      return;
    }
    const server = createServer(
      { noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS },
      this.#onConnection,
    );
    server.maxConnections = MAX_CONNECTIONS_PER_NODE;
    this.#byNode.set(node, { address, server });
    this.#byAddress.set(address, node);
    server.on("listening", () => {
      // A host is looked up first, and a server that does not listen yet cannot be closed.
      if (this.#byNode.get(node)?.server !== server) server.close();
    });
    server.on("error", (error: NodeJS.ErrnoException) => {
      if (this.#byNode.get(node)?.server !== server) return;
      this.#failed.add(node);
      const mend = error.code === "EADDRNOTAVAIL" ? `ip route add local ${range.cidr} dev lo` : undefined;
      this.#log.error("cannot listen at a node's own address; it is reached at the hub's", {
        ...{ node, address, port, error },
        ...(mend === undefined ? {} : { mend }),
      });
      this.close(node);
    });
    server.listen({ host: address, port });
  }

  close(node: string): void {
    const found = this.#byNode.get(node);
    if (found === undefined) return;
    this.#byNode.delete(node);
    this.#byAddress.delete(found.address);
    if (found.server.listening) found.server.close();
  }

  [Symbol.dispose](): void {
    this.#isDisposed = true;
    for (const node of [...this.#byNode.keys()]) this.close(node);
  }

  /** The name's own, or the next that is free. */
  #freeAddress(node: string): string | undefined {
    const { first, count } = this.#init.range;
    const start = hash("sha256", node, "buffer").readUInt32BE(0) % count;
    for (let offset = 0; offset <= this.#byNode.size && offset < count; offset += 1) {
      const address = textOf(first + ((start + offset) % count));
      if (!this.#byAddress.has(address)) return address;
    }
    return undefined;
  }
}
