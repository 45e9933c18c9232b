import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer, type Server as TlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import type { KubeletConnector } from "@picolet/hub-core/kubelet-connector.ts";
import { ConnectionGate } from "@picolet/kubelet-api/fairness/connection-gate.ts";
import { aborted, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { UserInfo } from "./api/resource-definition.ts";
import { ApiHandler, type ApiHandlerInit } from "./http/api-handler.ts";
import { LocalKubeClient } from "./local-kube-client.ts";
import { ApiServerCore, type ApiServerCoreComponents, type ApiServerCoreInit } from "./server/server-core.ts";

export interface EmbeddedApiServerComponents extends ApiServerCoreComponents {
  /** Undefined: logs, exec and the like are answered with 503. */
  readonly kubelets: KubeletConnector | undefined;
}

/** PEM. */
export interface ServerTls {
  readonly certificate: string;
  readonly privateKey: string;
  /** CAs of client certificates. */
  readonly clientCa: string;
}

export interface EmbeddedApiServerInit extends Omit<ApiHandlerInit, "isStopping" | "authenticated">, ApiServerCoreInit {
  /** To listen on. */
  readonly address: string;
  /** 0: any free one. */
  readonly port: number;
  /** Undefined: plain HTTP, for tests on loopback. */
  readonly tls: ServerTls | undefined;
}

/** How often expired objects are removed. */
const EXPIRY_INTERVAL = seconds(30);
/** How often the history is cut. */
const ROUNDS_PER_COMPACTION = 10;
/** Longer than any client's keep-alive: the client ends the connection, so that no request meets its end. */
const KEEP_ALIVE_MS = 90_000;
/** A client that sends its headers slower than this keeps a connection from others. */
export const HEADERS_TIMEOUT_MS = 20_000;
/** Until a request has come in whole; answers may take as long as they like. As Kubernetes' own requests. */
export const REQUEST_TIMEOUT_MS = 60_000;
const HANDSHAKE_TIMEOUT_MS = 10_000;
/**
 * Connections at one time: each watch of a client without HTTP/2 is one. Beyond it the client that has most gives way,
 * and first of all those that have not shown who they are.
 */
export const API_PORT_LIMITS = { name: "API server", maxConnections: 8192, maxPending: 2048 };
/** Refused by the kernel's side of Node: the gate has made room by then. */
const MAX_CONNECTIONS = API_PORT_LIMITS.maxConnections + 1024;
/** How long clients may take the rest of their answers when the server ends. */
const DRAIN_LIMIT = seconds(2);
/** The handshakes and requests of a fleet that comes back at once. */
const BACKLOG = 1024;

/** A Kubernetes API server in one process, with its objects in SQLite. */
export class EmbeddedApiServer implements Component {
  readonly name = "embedded API server";
  readonly core: ApiServerCore;
  readonly #components: EmbeddedApiServerComponents;
  readonly #init: EmbeddedApiServerInit;
  readonly #stop = new AbortController();
  readonly #handler: ApiHandler;
  readonly #gate: ConnectionGate;
  readonly #server: Server | TlsServer;

  /** Opens the store. @throws as `openDatabase` */
  constructor(components: EmbeddedApiServerComponents, init: EmbeddedApiServerInit) {
    this.#components = components;
    this.#init = init;
    this.core = new ApiServerCore(components, init);
    this.#handler = new ApiHandler(
      { ...components, core: this.core },
      {
        ...init,
        isStopping: () => this.#stop.signal.aborted,
        authenticated: (socket, owner, isAdministrator) => this.#gate.admit(socket, owner, isAdministrator),
      },
    );
    this.#gate = new ConnectionGate(components, API_PORT_LIMITS);
    this.#server = this.#createServer();
    this.#gate.guard(this.#server);
  }

  /** Listens; resolves with the port once requests are answered. */
  async listen(): Promise<number> {
    const { address, port } = this.#init;
    await new Promise<void>((resolve, reject) => {
      const fail = (cause: Error): void =>
        reject(new PicoletError("unavailable", `cannot listen on ${address}:${port}`, { cause }));
      this.#server.once("error", fail);
      this.#server.listen({ host: address, port, backlog: BACKLOG }, () => {
        this.#server.off("error", fail);
        resolve();
      });
    });
    this.#server.on("error", (error) => this.#components.log.warn("the API server's socket failed", { error }));
    return this.port;
  }

  get port(): number {
    const bound = this.#server.address();
    if (bound === null || typeof bound === "string")
      throw new PicoletError("internal", "the API server does not listen");
    return (bound satisfies AddressInfo).port;
  }

  /** For the hub's metrics. */
  get requests(): Pick<ApiHandler, "counts" | "load"> {
    return this.#handler;
  }

  /** A client within this process that acts as `user`; authorization is asked as for any other user. */
  client(user: UserInfo): LocalKubeClient {
    return new LocalKubeClient(this.core, user);
  }

  /** New certificates from the next handshake on. */
  setTls(tls: ServerTls): void {
    if ("setSecureContext" in this.#server) this.#server.setSecureContext(secureOptions(tls));
  }

  async run(signal: AbortSignal): Promise<void> {
    if (!this.#server.listening) await this.listen();
    using joined = joinSignals(signal, this.#stop.signal);
    for (let round = 1; !joined.signal.aborted; round += 1) {
      this.#tidy(round % ROUNDS_PER_COMPACTION === 0);
      await this.#components.clock
        .sleep(EXPIRY_INTERVAL, joined.signal)
        .catch(ignore("the loop ends when the wait is cancelled"));
    }
    await aborted(joined.signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Watches and streams end first, so that their clients go elsewhere; requests are answered to their end.
    this.#stop.abort();
    const closed = new Promise<void>((resolve) => {
      if (this.#server.listening) this.#server.close(() => resolve());
      else resolve();
    });
    this.#server.closeIdleConnections();
    const slow = new AbortController();
    const { clock } = this.#components;
    await Promise.race([
      this.#handler.drained(),
      clock.sleep(DRAIN_LIMIT, slow.signal).catch(ignore("the requests have ended first")),
    ]);
    slow.abort();
    this.#server.closeAllConnections();
    await closed;
    this.core[Symbol.dispose]();
  }

  /** Work that fails now, on a full disk, is done in a later round. */
  #tidy(compacts: boolean): void {
    try {
      this.core.removeExpired();
      this.core.store.maintain();
      if (compacts) this.core.store.compact();
    } catch (error) {
      this.#components.log.warn("cannot tidy up the store", { error });
    }
  }

  #createServer(): Server | TlsServer {
    const { tls } = this.#init;
    const options = {
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      noDelay: true,
    };
    const listener = (message: IncomingMessage, response: ServerResponse): void =>
      void this.#handler.handle(message, response, this.#stop.signal);
    const server =
      tls === undefined
        ? createServer(options, listener)
        : createTlsServer({ ...options, ...secureOptions(tls) }, listener);
    server.maxConnections = MAX_CONNECTIONS;
    server.on("upgrade", (message: IncomingMessage, socket: Duplex, head: Buffer) => {
      void this.#handler.upgrade(message, socket, head, this.#stop.signal);
    });
    return server;
  }
}

const secureOptions = ({ certificate, privateKey, clientCa }: ServerTls) => ({
  cert: certificate,
  key: privateKey,
  ca: clientCa,
  minVersion: "TLSv1.2" as const,
  // Tokens are another way in: a client without a certificate reaches the authenticator.
  requestCert: true,
  rejectUnauthorized: false,
});
