/** The HTTP server of the page, loaded with the first connection and dropped when it has been idle. */
import { timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type JoinedSignal, joinSignals, wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { PAGE_DATA_PATH, PAGE_PATH } from "@picolet/protocol/page/board-data.ts";
import { isOwnHost, isOwnSite, PAGE_HEADERS } from "@picolet/protocol/page/page-headers.ts";
import { hasBody, type PodAction, pageStatus, podActionOf, READS_ONLY } from "@picolet/protocol/page/pod-actions.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { HTTP_STATUS } from "../api/api-answers.ts";
import type { PageAccess } from "./page-access.ts";
import type { PageAnswer } from "./page-answers.ts";
import type { PageUsers } from "./page-users.ts";

export interface PageServerComponents {
  readonly answer: (url: string, signal: AbortSignal) => Promise<PageAnswer>;
  /** Its caller has judged the user's rights. */
  readonly change: (action: PodAction, user: string, signal: AbortSignal) => Promise<PageAnswer>;
  readonly users: Pick<PageUsers, "check">;
  readonly log: Log;
}

export interface PageServerInit {
  /** Names of this machine, besides its addresses. */
  readonly names: readonly string[];
  /** Undefined: anyone who reaches the port may read, without TLS. What changes a pod needs a user's token either way. */
  readonly access: PageAccess | undefined;
  /** Default: 30 s. */
  readonly unreadTimeoutMs?: number;
}

/** Logs and events that are followed, so that other requests always find a connection. A further one gets 429. */
export const MAX_STREAMS = 12;
/** Request line and headers of a browser have 1 KiB; a token has 64 bytes. A longer head gets 431. */
const MAX_HEADER_BYTES = 8 * KIBIBYTE;
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_TIMEOUT_MS = 15_000;
const TIMEOUT_CHECK_MS = 5_000;
/** A client that takes nothing for so long is disconnected, of a stream too. */
const UNREAD_TIMEOUT_MS = 30_000;

/** Both ends of a connection with TLS have the same far end. */
const keyOf = ({ remoteAddress = "", remotePort = 0 }: Socket): string => `${remoteAddress} ${remotePort}`;

/** It has no port of its own: it is given connections. */
export class PageServer {
  readonly #components: PageServerComponents;
  readonly #init: PageServerInit;
  readonly #server: Server;
  readonly #stop: JoinedSignal = joinSignals();
  /** Connections on which a request is being answered. */
  readonly #busy = new Set<string>();
  #streams = 0;

  private constructor(
    components: PageServerComponents,
    init: PageServerInit,
    make: (serve: RequestListener) => Server,
  ) {
    this.#components = components;
    this.#init = init;
    this.#server = make((request, response) => void this.#serve(request, response));
    this.#server.on("clientError", (_, socket) => socket.destroy());
    this.#server.on("tlsClientError", (_, socket: Socket) => socket.destroy());
  }

  static async open(components: PageServerComponents, init: PageServerInit): Promise<PageServer> {
    const options = {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      connectionsCheckingInterval: TIMEOUT_CHECK_MS,
    };
    if (init.access === undefined) return new PageServer(components, init, (serve) => createServer(options, serve));
    const { createServer: createTlsServer } = await import("node:https");
    const { keyAndCertificate: pem } = init.access;
    const tls = { ...options, key: pem, cert: pem, handshakeTimeout: HEADERS_TIMEOUT_MS };
    return new PageServer(components, init, (serve) => createTlsServer(tls, serve));
  }

  accept(socket: Socket): void {
    this.#server.emit("connection", socket);
  }

  isBusy(socket: Socket): boolean {
    return this.#busy.has(keyOf(socket));
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
    this.#server.closeAllConnections();
    // Its own timer checks for slow requests.
    this.#server.close();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const key = keyOf(request.socket);
    using life = joinSignals(this.#stop.signal);
    this.#busy.add(key);
    response.once("close", () => {
      this.#busy.delete(key);
      life.abort();
    });
    response.on("error", () => life.abort());
    try {
      for (const [name, value] of Object.entries(PAGE_HEADERS)) response.setHeader(name, value);
      const refusal = this.#refusalOf(request);
      if (refusal !== undefined) return refuse(response, ...refusal);
      const url = request.url ?? "/";
      if (url === "/" || url === "/page") return redirect(response);
      const user = await this.#userOf(request, life.signal);
      if (typeof user !== "string") return refuse(response, ...user);
      const action = actionOf(request);
      const { answer, change } = this.#components;
      const answered = action === undefined ? answer(url, life.signal) : change(action, user, life.signal);
      await this.#send(await answered, request, response, life.signal);
    } catch (error) {
      if (!isCancelled(error) && !life.signal.aborted)
        this.#components.log.warn("cannot answer the page", { url: request.url, error });
      response.destroy();
    }
  }

  #refusalOf(request: IncomingMessage): Refusal | undefined {
    const { method, headers, url = "/" } = request;
    const action = actionOf(request);
    if (method !== "GET" && method !== "HEAD" && action === undefined) return [405, READS_ONLY];
    if (!isOwnHost(headers.host, this.#init.names))
      return [421, "this host name is not the board's: use its address, localhost or the node's name"];
    const isData = url.startsWith(PAGE_DATA_PATH);
    if (!isData && url !== "/" && !url.startsWith(PAGE_PATH) && url !== "/page") return [404, "there is no such page"];
    if (!isData) return undefined;
    const site = headers["sec-fetch-site"];
    if (!isOwnSite(typeof site === "string" ? site : undefined)) return [403, "another site may not read this page"];
    return action !== undefined && hasBody(headers) ? [400, "a restart or deletion of a pod has no body"] : undefined;
  }

  /** @returns the user's name, "" where none is needed; or why the request is refused */
  async #userOf(request: IncomingMessage, signal: AbortSignal): Promise<string | Refusal> {
    const { access } = this.#init;
    const { authorization } = request.headers;
    const action = actionOf(request);
    const isBoards = access !== undefined && isToken(authorization, access.token);
    const isData = request.url?.startsWith(PAGE_DATA_PATH) === true;
    if (action === undefined && (!isData || access === undefined || isBoards)) return "";
    if (action === undefined && authorization === undefined) return [401, NEEDS_TOKEN];
    if (isBoards) return [403, `the board's token only reads: this needs ${tokenFor(action)}`];
    if (authorization === undefined)
      return [401, `without a token the page only reads: this needs ${tokenFor(action)}`];
    try {
      return await this.#components.users.check(request, action?.namespace, signal);
    } catch (error) {
      if (!(error instanceof PicoletError) || signal.aborted) throw error;
      const isUnknown = error.reason === "Unauthorized" || (action === undefined && error.code === "unavailable");
      if (action === undefined && isUnknown) return [401, NEEDS_TOKEN];
      // The sentence is for the user of the page; the hub's refusal behind it is not.
      if (error.code === "unimplemented") return [501, error.message];
      return [isUnknown ? 401 : HTTP_STATUS[error.code], describeError(error)];
    }
  }

  async #send(
    { status, contentType, body, isStream }: PageAnswer,
    { method }: IncomingMessage,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    // A log may have nothing to say for long: what counts is that a piece stays unread.
    response.setTimeout(this.#init.unreadTimeoutMs ?? UNREAD_TIMEOUT_MS, () => {
      if (response.writableNeedDrain || response.writableEnded) response.destroy();
    });
    if (isStream && this.#streams >= MAX_STREAMS)
      return refuse(response, 429, `${MAX_STREAMS} logs or watches are being followed already`);
    this.#streams += isStream ? 1 : 0;
    try {
      response.writeHead(status, { "content-type": contentType });
      if (method === "HEAD") return void response.end();
      if (isStream) response.flushHeaders();
      for await (const piece of body) {
        if (signal.aborted) return;
        if (!response.write(piece)) await drained(response, signal);
      }
      if (!signal.aborted) response.end();
    } finally {
      this.#streams -= isStream ? 1 : 0;
    }
  }
}

type Refusal = readonly [status: number, message: string];

const NEEDS_TOKEN =
  "the page needs the board's token, which the file page/token of the agent's state folder has, or that of a user " +
  "whom the board's hub lets read nodes/page";

const tokenFor = (action: PodAction | undefined): string =>
  `the token of a user who may delete pods in namespace ${action?.namespace}`;

const actionOf = ({ method, url = "" }: IncomingMessage): PodAction | undefined =>
  url.startsWith(PAGE_DATA_PATH) ? podActionOf(method, url.slice(PAGE_DATA_PATH.length)) : undefined;

function refuse(response: ServerResponse, status: number, message: string): void {
  // The page asks for a token itself: a browser's own dialog would keep it.
  response.writeHead(status, { "content-type": "application/json", connection: "close" });
  response.end(`${JSON.stringify({ ...pageStatus(status, message), error: { message } })}\n`);
}

function redirect(response: ServerResponse): void {
  response.writeHead(302, { location: PAGE_PATH });
  response.end();
}

function isToken(authorization: string | undefined, token: string): boolean {
  const given = Buffer.from(/^Bearer +(\S+)$/i.exec(authorization ?? "")?.[1] ?? "");
  const own = Buffer.from(token);
  return given.length === own.length && timingSafeEqual(given, own);
}

const drained = (response: ServerResponse, signal: AbortSignal): Promise<void> =>
  wokenOrAborted(signal, (wake) => {
    response.once("drain", wake);
    return () => response.removeListener("drain", wake);
  });
