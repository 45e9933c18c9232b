import type { IncomingMessage, ServerResponse } from "node:http";
import type { Server } from "node:https";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { ConnectionGate } from "@picolet/kubelet-api/fairness/connection-gate.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { ListenAddress } from "@picolet/protocol/command-line/flag-values.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { TUNNEL_PATH } from "@picolet/protocol/tunnel/messages.ts";
import { type NodeAuthenticator, peerChain } from "../identity/authenticate-node.ts";
import type { JoinService } from "../identity/join-service.ts";
import type { LiveConnections } from "../identity/live-connections.ts";
import type { Serving } from "../identity/serving.ts";
import { createNodeServer, followCertificates } from "../identity/tls-server.ts";
import type { TunnelServer } from "../tunnel/tunnel-server.ts";

export interface BoardServerComponents {
  readonly serving: Serving;
  readonly clientCa: Watch<string>;
  readonly join: JoinService;
  readonly authenticator: NodeAuthenticator;
  readonly connections: LiveConnections;
  readonly tunnel: TunnelServer;
  /** Why no board can be served now; "" when it can. */
  readonly problem: Watch<string>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Handshakes of a fleet that comes back at once wait here; the kernel cuts it at net.core.somaxconn. */
const BACKLOG = 4096;

/**
 * Boards that have a session, 10,000, and a fleet of 5,000 that comes back at once and has not shown a certificate yet.
 * A connection takes some 60 KiB.
 */
export const BOARD_PORT_LIMITS = { name: "boards' port", maxConnections: 16_000, maxPending: 6000 };

/**
 * The port that boards reach the hub on: joining and renewal as HTTP, the tunnel as a WebSocket, /healthz and /readyz.
 */
export class BoardServer implements Component {
  readonly name = "boards' port";
  readonly #components: BoardServerComponents;
  readonly #server: Server;
  readonly #gate: ConnectionGate;

  constructor(components: BoardServerComponents) {
    this.#components = components;
    this.#server = createNodeServer(components);
    this.#gate = new ConnectionGate(components, BOARD_PORT_LIMITS);
    this.#gate.guard(this.#server);
    this.#server.on("request", (request, response) => this.#request(request, response));
    this.#server.on("upgrade", (request, socket, head) => this.#upgrade(request, socket, head));
    this.#server.on("clientError", (_, socket) => socket.destroy());
  }

  /** For the hub's metrics. */
  get load(): ConnectionGate["load"] {
    return this.#gate.load;
  }

  /** @returns the port */
  async listen({ host, port }: ListenAddress): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", (cause) =>
        reject(new PicoletError("unavailable", `cannot listen on ${host}:${port}`, { cause })),
      );
      this.#server.listen({ host, port, backlog: BACKLOG }, resolve);
    });
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new PicoletError("internal", "the socket has no port");
    return address.port;
  }

  async run(signal: AbortSignal): Promise<void> {
    await followCertificates(this.#server, this.#components, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  #request(request: IncomingMessage, response: ServerResponse): void {
    if (this.#components.join.handle(request, response)) return;
    const [status, text] = this.#answer(request.url ?? "");
    response.writeHead(status, { "content-type": "text/plain; charset=utf-8" });
    response.end(text);
  }

  /** `/healthz`: the process answers. `/readyz`: the hub has read boards' desired sets from the API server. */
  #answer(path: string): readonly [status: number, text: string] {
    const problem = this.#components.problem.current;
    if (path === "/healthz") return [200, "ok"];
    if (path === "/readyz") return problem === "" ? [200, "ok"] : [503, `${problem}\n`];
    return [404, `there is nothing at ${path.slice(0, 200)}\n`];
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { authenticator, tunnel, log } = this.#components;
    socket.on("error", () => socket.destroy());
    if (request.url !== TUNNEL_PATH) {
      refuse(socket, "404 Not Found", `the tunnel is at ${TUNNEL_PATH}`);
      return;
    }
    try {
      if (!(socket instanceof TLSSocket)) throw new PicoletError("internal", "a connection without TLS");
      const node = authenticator.authenticate(peerChain(socket));
      this.#gate.admit(socket, node.name);
      this.#components.connections.add(socket, node);
      tunnel.handleUpgrade(request, socket, head, node.name);
    } catch (error) {
      const message = describeError(error);
      log.warn("a board was refused", { address: request.socket.remoteAddress, error: message });
      refuse(socket, "401 Unauthorized", message);
    }
  }
}

function refuse(socket: Duplex, status: string, message: string): void {
  const text = `${message}\n`;
  const head = [
    `HTTP/1.1 ${status}`,
    "Connection: close",
    "Content-Type: text/plain; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(text)}`,
  ];
  socket.end(`${head.join("\r\n")}\r\n\r\n${text}`);
}
