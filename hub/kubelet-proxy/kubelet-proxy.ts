import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Fleet, KubeletEndpoints } from "@picolet/hub-core/fleet.ts";
import type { TelemetryReader, UsageReader } from "@picolet/hub-core/telemetry-ports.ts";
import { answerRequest, answerUpgrade, NodeEnd } from "@picolet/kubelet-api/serving/exchanges.ts";
import { KubeletAccess, type KubeletReviews } from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { isResourceMetrics, isTelemetry, parseKubeletPath } from "@picolet/kubelet-api/serving/kubelet-path.ts";
import { type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { StreamOpener } from "@picolet/protocol/tunnel/stream.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { OwnEndpoint, OwnKubelets } from "./kubelet-targets.ts";
import { NodeAddresses, type NodeAddressesInit } from "./node-addresses.ts";
import { NodeListeners, type NodeListenersInit } from "./node-listeners.ts";

/** All PEM. */
export interface KubeletTls {
  readonly privateKey: string;
  /** The certificate that API servers verify with --kubelet-certificate-authority, if they do. */
  readonly certificateChain: string;
  /** CAs of accepted client certificates: of API servers' --kubelet-client-certificate. "": none, tokens only. */
  readonly clientCa: string;
}

export interface KubeletProxyComponents {
  readonly fleet: Fleet;
  readonly reviews: KubeletReviews;
  readonly tls: Watch<KubeletTls>;
  /** Answers for telemetry, which is the hub's whether the node is connected or not. */
  readonly telemetry?: TelemetryReader;
  /**
   * Answers for the static files of a board's page, so that no board puts a script into a browser.
   * @returns false for what only the board can answer
   */
  readonly page?: (path: string, response: ServerResponse) => Promise<boolean>;
  /** Answers scrapers of a node's usage; undefined: its board answers each. */
  readonly usage?: UsageReader;
  readonly clock: Clock;
  readonly log: Log;
}

export interface KubeletProxyInit extends NodeListenersInit {
  /** Address at which API servers reach this replica; part of `endpointOf`. */
  readonly address: string;
  /** Addresses of the nodes' own, besides; undefined: none. */
  readonly nodeAddresses?: NodeAddressesInit | undefined;
}

/** Address at which an API server of this process reaches sockets that listen on every address. */
const LOOPBACK = "127.0.0.1";
/** From connection to the end of the handshake. */
const HANDSHAKE_TIMEOUT_MS = 20_000;
/** Longer than API servers keep theirs (90 s), so that it is them who close. */
const KEEP_ALIVE_TIMEOUT_MS = 120_000;
const HEADERS_TIMEOUT_MS = 20_000;
/** A command of `kubectl exec` is in the query. */
export const MAX_HEADER_BYTES = 320 * KIBIBYTE;
/**
 * Bounds nodes that are away and keep their port, so that a request for one is answered with the reason. Of more, the
 * one that left first loses its port; its API server then sees a refused connection.
 */
export const MAX_AWAY_NODES = 5_000;

/**
 * The hub as the kubelet of each of its nodes: a port a node, one TLS server behind all of them. What it is asked it
 * passes on to the node's agent through the tunnel.
 */
export class KubeletProxy implements Component, KubeletEndpoints, OwnKubelets {
  readonly name = "kubelet endpoints";
  readonly #components: KubeletProxyComponents;
  readonly #init: KubeletProxyInit;
  readonly #access: KubeletAccess;
  readonly #listeners: NodeListeners;
  readonly #addresses: NodeAddresses | undefined;
  readonly #server: Server;
  readonly #stop: JoinedSignal = joinSignals();
  /** Since when, in the order in which they left. */
  readonly #away = new Map<string, Date>();
  readonly #sockets = new Set<Socket>();

  constructor(components: KubeletProxyComponents, init: KubeletProxyInit) {
    const { reviews, clock, tls, log } = components;
    this.#components = components;
    this.#init = init;
    this.#access = new KubeletAccess({ reviews, clock });
    const onConnection = (socket: Socket): void => this.#connected(socket);
    this.#listeners = new NodeListeners({ log, onConnection }, init);
    const { nodeAddresses } = init;
    this.#addresses = nodeAddresses && new NodeAddresses({ log, onConnection }, nodeAddresses);
    this.#server = createServer({
      ...secureContext(tls.current),
      requestCert: true,
      // Judged with each request: a token may do instead.
      rejectUnauthorized: false,
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      headersTimeout: HEADERS_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
    });
    this.#server.on("request", (request, response) => void this.#request(request, response));
    this.#server.on("upgrade", (request, socket, head) => void this.#upgrade(request, socket, head));
    this.#server.on("clientError", (_error, socket) => socket.destroy());
  }

  /** @throws `unavailable`, retryable, in the moment before its port is open */
  endpointOf(node: string, before?: number): { readonly address: string; readonly port: number } {
    this.#listeners.open(node, before);
    this.#addresses?.open(node);
    const own = this.#addresses?.endpointOf(node);
    if (own !== undefined) return own;
    const port = this.#listeners.portOf(node);
    if (port !== undefined) return { address: this.#init.address, port };
    throw new PicoletError("unavailable", `cannot tell the kubelet endpoint of node ${node} yet`, { retryable: true });
  }

  get advertisedAddress(): string {
    return this.#init.address;
  }

  ownEndpoint(node: string): OwnEndpoint | undefined {
    const port = this.#listeners.portOf(node);
    if (port === undefined) return undefined;
    const advertised = this.#addresses?.endpointOf(node) ?? { address: this.#init.address, port };
    return { address: this.#init.host ?? LOOPBACK, port, advertised, isConnected: this.#components.fleet.has(node) };
  }

  isOwnPort(port: number): boolean {
    return this.#listeners.nodeAt(port) !== undefined;
  }

  isNodeAddress(address: string): boolean {
    return this.#addresses?.includes(address) ?? false;
  }

  /** Streams under way, over all nodes. */
  get connections(): number {
    return this.#sockets.size;
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal, this.#stop.signal);
    const following = this.#followCertificates(life.signal);
    for await (const nodes of this.#components.fleet.nodes.changes(life.signal)) this.#follow(nodes);
    await following;
    this.#close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#close();
  }

  #close(): void {
    this.#stop.abort();
    this.#listeners[Symbol.dispose]();
    this.#addresses?.[Symbol.dispose]();
    for (const socket of this.#sockets) socket.destroy();
    // Its own timer looks for slow requests.
    this.#server.close();
  }

  async #followCertificates(signal: AbortSignal): Promise<void> {
    for await (const tls of this.#components.tls.changes(signal)) this.#server.setSecureContext(secureContext(tls));
  }

  #follow(nodes: ReadonlySet<string>): void {
    for (const node of nodes) {
      this.#away.delete(node);
      this.#listeners.open(node);
      this.#addresses?.open(node);
    }
    const now = this.#components.clock.wall();
    for (const node of this.#listeners.nodes) if (!nodes.has(node) && !this.#away.has(node)) this.#away.set(node, now);
    for (const node of this.#away.keys()) {
      if (this.#away.size <= MAX_AWAY_NODES) break;
      this.#away.delete(node);
      this.#listeners.close(node);
      this.#addresses?.close(node);
    }
  }

  #connected(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    this.#server.emit("connection", socket);
  }

  #request(request: IncomingMessage, response: ServerResponse): Promise<void> {
    return answerRequest(request, response, this.#stop.signal, async (signal) => {
      const node = await this.#admit(request, signal);
      const path = parseKubeletPath(request.url ?? "");
      const { telemetry, usage } = this.#components;
      if (telemetry !== undefined && request.method === "GET" && isTelemetry(path)) {
        return await telemetry.answer(node, path.path, response, signal);
      }
      const sampled =
        request.method === "GET" && isResourceMetrics(path) ? usage?.read(node, request.headers.accept) : undefined;
      if (sampled !== undefined) {
        response.writeHead(200, { "content-type": sampled.contentType }).end(sampled.text);
        return;
      }
      const { page } = this.#components;
      if (page !== undefined && path.kind === "get" && (await page(path.path, response))) return;
      this.#checkConnected(node);
      await this.#endOf(node).request(request, response, signal);
    });
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    return answerUpgrade(socket, this.#stop.signal, async (signal) => {
      const node = await this.#admit(request, signal);
      this.#checkConnected(node);
      await this.#endOf(node).upgrade(request, socket, head, signal);
    });
  }

  #endOf(node: string): NodeEnd {
    const { fleet, clock } = this.#components;
    const streams: StreamOpener = {
      open: (kind, params, lane, signal) => fleet.open(node, kind, params, lane, signal),
    };
    return new NodeEnd({ streams, clock });
  }

  /** @returns the node that is meant, to a caller with the right */
  async #admit(request: IncomingMessage, signal: AbortSignal): Promise<string> {
    const { localAddress = "", localPort = 0 } = request.socket;
    const node = this.#addresses?.nodeAt(localAddress, localPort) ?? this.#listeners.nodeAt(localPort);
    if (node === undefined) throw new PicoletError("not_found", "no node is reached here any more");
    await this.#access.check(request, node, signal);
    return node;
  }

  #checkConnected(node: string): void {
    if (this.#components.fleet.has(node)) return;
    const since = this.#away.get(node)?.toISOString();
    const message = since === undefined ? "is not connected to this hub" : `is away since ${since}`;
    throw new PicoletError("unavailable", `the agent of node ${node} ${message}`, { retryable: true });
  }
}

const secureContext = ({ privateKey, certificateChain, clientCa }: KubeletTls) => ({
  key: privateKey,
  cert: certificateChain,
  // An empty list is none; leaving it out would believe every public authority.
  ca: clientCa === "" ? [] : clientCa,
});
