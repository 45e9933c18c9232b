import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server, type ServerOptions } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { ConnectionGate } from "@picolet/kubelet-api/fairness/connection-gate.ts";
import { networkOf } from "@picolet/kubelet-api/fairness/network-of.ts";
import { answerRequest } from "@picolet/kubelet-api/serving/exchanges.ts";
import {
  KubeletAccess,
  type KubeletAccessInit,
  type KubeletReviews,
} from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { KubeletRoutes } from "../api/kubelet-routes.ts";
import { answerPush, PUSH_PATH } from "../api/push-route.ts";
import type { StreamHandlers } from "../core/hub/tunnel-ports.ts";
import type { PushedPods } from "../core/pods/pushed-pods.ts";
import type { ServingTls } from "./serving-tls.ts";

export interface KubeletServerComponents {
  readonly streams: StreamHandlers;
  readonly reviews: KubeletReviews;
  readonly pushed: Pick<PushedPods, "replace">;
  readonly tls: ServingTls;
  readonly clock: Clock;
  readonly log: Log;
}

export interface KubeletServerInit {
  readonly nodeName: string;
  readonly access: KubeletAccessInit;
  /** The kubelet's `enableDebuggingHandlers`. */
  readonly debugging: boolean;
}

/**
 * API servers, scrapers and their users; each costs some 60 KiB with TLS. When all are taken, the oldest of the client
 * that has most gives way.
 */
export const MAX_CONNECTIONS = 48;
/** Those whose client has not shown who it is. */
export const MAX_PENDING = 16;
/** Logs, sessions and answers under way. A further one gets 429. */
export const MAX_SESSIONS = 24;
/** A command of `kubectl exec` is in the query. */
const MAX_HEADER_BYTES = 64 * KIBIBYTE;
const MAX_HEADERS = 100;
const HANDSHAKE_TIMEOUT_MS = 10_000;
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 30_000;
/** Longer than API servers keep theirs (90 s), so that it is them who close. */
const KEEP_ALIVE_TIMEOUT_MS = 120_000;
/** How often a client without an answer in the cache may have the API server asked. A further request gets 429. */
export const REVIEWS = { burst: 20, perSecond: 1 };
const MAX_REVIEWED_NETWORKS = 256;
/** Answers that are kept, 0.5 KiB each. */
const MAX_ANSWERS = 512;
/** How often the files of certificate and CA are checked for a change, when a client comes. */
const TLS_CHECK = seconds(60);

/** As a kubelet without debugging handlers. */
const DEBUGGING_PATHS = /^\/(?:run|exec|attach|portForward|containerLogs|runningpods|debug|logs)(?:[/?]|$)/;

/** The kubelet's API over TLS: authentication, authorization, and then what the hub is answered through the tunnel. */
export class KubeletServer implements Disposable {
  readonly #components: KubeletServerComponents;
  readonly #init: KubeletServerInit;
  readonly #access: KubeletAccess;
  readonly #routes: KubeletRoutes;
  readonly #gate: ConnectionGate;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #stop = joinSignals();
  #tlsCheckedAt: MonotonicMs;

  /** @throws `invalid` for a certificate or CA that cannot be read */
  constructor(components: KubeletServerComponents, init: KubeletServerInit) {
    const { streams, reviews, clock, log, tls } = components;
    this.#components = components;
    this.#init = init;
    const limits = new RateLimits({ clock }, REVIEWS, MAX_REVIEWED_NETWORKS);
    const beforeReview = ({ socket }: IncomingMessage): void => {
      const waitMs = limits.take(networkOf(socket.remoteAddress ?? ""));
      if (waitMs > 0) throw new PicoletError("resource_exhausted", `too many unknown clients; again in ${waitMs} ms`);
    };
    this.#access = new KubeletAccess({ reviews, clock }, { ...init.access, maxAnswers: MAX_ANSWERS, beforeReview });
    this.#routes = new KubeletRoutes({ streams, clock, admit: (request, signal) => this.#admit(request, signal) });
    this.#tlsCheckedAt = clock.monotonic();
    this.#server = createServer({
      ...(tls.options() satisfies ServerOptions),
      requestCert: true,
      // Judged with each request: a token may do instead.
      rejectUnauthorized: false,
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      connectionsCheckingInterval: HEADERS_TIMEOUT_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
    });
    this.#server.maxHeadersCount = MAX_HEADERS;
    this.#server.on("request", (request, response) => void this.#request(request, response));
    this.#server.on("upgrade", (request, socket, head) => void this.#upgrade(request, socket, head));
    for (const event of ["clientError", "tlsClientError"])
      this.#server.on(event, (_error: Error, socket: Duplex) => socket.destroy());
    this.#gate = new ConnectionGate(
      { clock, log },
      { name: "kubelet port", maxConnections: MAX_CONNECTIONS, maxPending: MAX_PENDING },
    );
    this.#gate.guard(this.#server);
  }

  /** A new connection. */
  accept(socket: Socket): void {
    this.#checkTls();
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    this.#server.emit("connection", socket);
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
    for (const socket of this.#sockets) socket.destroy();
    // Its own timer checks for slow requests.
    this.#server.close();
  }

  async #request(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? "";
    if (!PUSH_PATH.test(path)) return await this.#routes.request(request, response, this.#stop.signal);
    await answerRequest(request, response, this.#stop.signal, async (signal) => {
      await this.#admit(request, signal);
      await answerPush(this.#components.pushed, request, response);
    });
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    return this.#routes.upgrade(request, socket, head, this.#stop.signal);
  }

  async #admit(request: IncomingMessage, signal: AbortSignal): Promise<void> {
    const { nodeName, debugging } = this.#init;
    const user = await this.#access.check(request, nodeName, signal);
    this.#gate.admit(request.socket, user.name);
    if (!debugging && DEBUGGING_PATHS.test(request.url ?? "")) {
      throw new PicoletError("unimplemented", "Debug endpoints are disabled.", { reason: "MethodNotAllowed" });
    }
  }

  #checkTls(): void {
    const { clock, tls, log } = this.#components;
    if (clock.monotonic() - this.#tlsCheckedAt < TLS_CHECK) return;
    this.#tlsCheckedAt = clock.monotonic();
    try {
      if (tls.hasChanged()) this.#server.setSecureContext(tls.options());
    } catch (error) {
      // The former ones serve on.
      log.warn("cannot read the certificate of the kubelet's API", { error });
    }
  }
}
