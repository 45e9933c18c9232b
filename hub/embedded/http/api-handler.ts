import { open, rm } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import { gzipSync } from "node:zlib";
import { joinSignals } from "../../../protocol/async/abort.ts";
import { isCancelled, isPicoletError } from "../../../protocol/errors.ts";
import type { Clock, Log } from "../../../protocol/ports.ts";
import { requireAccess } from "../auth/access.ts";
import type { Attributes } from "../auth/attributes.ts";
import { impersonate } from "../auth/impersonation.ts";
import type { KubeletConnector } from "../kubelet-connector.ts";
import { apiVersionOf, type ResourceDefinition, type UserInfo } from "../resource-definition.ts";
import type { ApiServerCore } from "../server-core.ts";
import { badRequest, internalError, methodNotAllowed, pathNotFound, StatusError } from "../status-error.ts";
import { KubeletEndpoint } from "./kubelet-endpoint.ts";
import { wantsWatch } from "./params.ts";
import { PathEndpoint } from "./path-endpoint.ts";
import { endResponse, jsonReply, type Reply, writeChunks } from "./reply.ts";
import { parsePath, type RequestVerb, type ResourcePath, verbOf } from "./request-info.ts";
import { ResourceEndpoint } from "./resource-endpoint.ts";

export interface ApiHandlerInit {
  /** Of this build, for /version. */
  readonly version: string;
  readonly isStopping: () => boolean;
}

export interface ApiHandlerComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly core: ApiServerCore;
  readonly kubelets: KubeletConnector | undefined;
}

/** Requests being answered at one time, watches and streams not counted. As Kubernetes' two limits together. */
const MAX_IN_FLIGHT = 600;
/** Watches of one user: a client-go process with informers for everything has some fifty. */
const MAX_WATCHES_PER_USER = 5000;
/** Longer URLs are refused; selectors and field lists stay far below it. */
const MAX_URL_LENGTH = 16_384;
/** Smaller answers are not worth the time. As Kubernetes. */
const MIN_GZIP_BYTES = 128 * 1024;

/** One request on its way: who asks, for what. */
export interface AuthorizedRequest {
  readonly message: IncomingMessage;
  readonly query: URLSearchParams;
  readonly user: UserInfo;
  readonly path: ResourcePath;
  readonly verb: RequestVerb;
  readonly definition: ResourceDefinition;
  readonly authorizeCreate: () => void;
}

export class ApiHandler {
  readonly #components: ApiHandlerComponents;
  readonly #resources: ResourceEndpoint;
  readonly #paths: PathEndpoint;
  readonly #kubelets: KubeletEndpoint;
  readonly #watches = new Map<string, number>();
  #inFlight = 0;
  /** Streams as well. */
  #open = 0;
  #whenDrained: (() => void) | undefined;

  constructor(components: ApiHandlerComponents, init: ApiHandlerInit) {
    const { core, clock } = components;
    this.#components = components;
    const { lookup } = core.service;
    this.#resources = new ResourceEndpoint({ service: core.service, clock, models: core.models });
    this.#paths = new PathEndpoint(core, init);
    this.#kubelets = new KubeletEndpoint({ lookup, kubelets: components.kubelets });
  }

  /** Resolves when nothing is being answered. */
  drained(): Promise<void> {
    if (this.#open === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenDrained = resolve;
    });
  }

  async handle(message: IncomingMessage, response: ServerResponse, stop: AbortSignal): Promise<void> {
    using joined = joinSignals(stop);
    response.on("close", () => joined.abort());
    this.#inFlight += 1;
    this.#open += 1;
    let isCounted = true;
    const uncount = (): void => {
      if (!isCounted) return;
      isCounted = false;
      this.#inFlight -= 1;
    };
    const warnings: string[] = [];
    try {
      if (this.#inFlight > MAX_IN_FLIGHT) throw tooManyRequests();
      const reply = await this.#reply(message, response, warnings, joined.signal, uncount);
      await this.#send(message, response, reply, uncount, joined.signal);
    } catch (error) {
      await this.#fail(message, response, error, joined.signal);
    } finally {
      uncount();
      this.#open -= 1;
      if (this.#open === 0) this.#whenDrained?.();
    }
  }

  /** `Connection: Upgrade`: exec, attach, port-forward, and kubelets behind `nodes/proxy`. */
  async upgrade(message: IncomingMessage, socket: Duplex, head: Buffer, stop: AbortSignal): Promise<void> {
    using joined = joinSignals(stop);
    socket.on("close", () => joined.abort());
    socket.on("error", () => joined.abort());
    try {
      const { path, query } = splitUrl(message);
      const user = await this.#userOf(message);
      const parsed = parsePath(path);
      if (parsed === undefined || parsed.kind === "other") throw pathNotFound();
      const request = this.#authorize(message, parsed, query, user);
      if (!this.#kubelets.serves(request)) throw badRequest("this request cannot be upgraded");
      await this.#kubelets.upgrade(request, socket, head, joined.signal);
    } catch (error) {
      refuseUpgrade(socket, this.#statusOf(error));
    }
  }

  async #userOf(message: IncomingMessage): Promise<UserInfo> {
    const user = await this.#components.core.authenticator.authenticate(message);
    return impersonate(this.#components.core.authorizer, user, message.headers);
  }

  async #reply(
    message: IncomingMessage,
    response: ServerResponse,
    warnings: string[],
    signal: AbortSignal,
    uncount: () => void,
  ): Promise<Reply> {
    const { path, query } = splitUrl(message);
    const user = await this.#userOf(message);
    const parsed = parsePath(path);
    if (parsed === undefined) throw badRequest("the path cannot be decoded");
    if (parsed.kind === "other") {
      const verb = (message.method ?? "GET").toLowerCase();
      requireAccess(this.#components.core.authorizer, { kind: "path", user, verb, path });
      return this.#paths.handle(message, path, query);
    }
    const request = this.#authorize(message, parsed, query, user);
    if (this.#kubelets.serves(request)) {
      uncount();
      await this.#kubelets.handle(request, response, signal);
      return { kind: "taken" };
    }
    if (request.verb !== "watch") return this.#resources.handle({ ...request, warnings, signal });
    this.#countWatch(user.name, signal);
    return this.#resources.handle({ ...request, warnings, signal });
  }

  #authorize(message: IncomingMessage, path: ResourcePath, query: URLSearchParams, user: UserInfo): AuthorizedRequest {
    const verb = verbOf(message.method ?? "", path, wantsWatch(query));
    if (verb === undefined) throw methodNotAllowed();
    const { group, version, plural, subresource, namespace, name } = path;
    const fieldSelector = query.get("fieldSelector") ?? "";
    // A namespace is in itself, as far as rules are concerned.
    const scope = group === "" && plural === "namespaces" && namespace === "" ? name : namespace;
    const attributes = (wanted: string): Attributes => ({
      ...{ kind: "resource", user, verb: wanted, group, version, plural, subresource },
      ...{ namespace: scope, name, fieldSelector },
    });
    const { core } = this.#components;
    requireAccess(core.authorizer, attributes(verb));
    const definition = core.table.find(apiVersionOf(path), plural);
    if (definition === undefined || (!definition.namespaced && namespace !== "")) throw pathNotFound();
    const authorizeCreate = (): void => requireAccess(core.authorizer, attributes("create"));
    return { message, query, user, path, verb, definition, authorizeCreate };
  }

  #countWatch(user: string, signal: AbortSignal): void {
    // One that has aborted already would be counted for ever.
    if (signal.aborted) return;
    const count = this.#watches.get(user) ?? 0;
    if (count >= MAX_WATCHES_PER_USER) throw tooManyRequests();
    this.#watches.set(user, count + 1);
    signal.addEventListener("abort", () => {
      const left = (this.#watches.get(user) ?? 1) - 1;
      if (left > 0) this.#watches.set(user, left);
      else this.#watches.delete(user);
    });
  }

  async #send(
    message: IncomingMessage,
    response: ServerResponse,
    reply: Reply,
    uncount: () => void,
    signal: AbortSignal,
  ): Promise<void> {
    if (reply.kind === "taken" || response.destroyed) return;
    response.setHeader("Cache-Control", "no-cache, private");
    if (reply.kind === "file") {
      uncount();
      await sendFile(response, reply.path);
      return;
    }
    if (reply.kind === "stream") {
      uncount();
      response.writeHead(200, { "Content-Type": reply.contentType });
      response.flushHeaders();
      await writeChunks(response, reply.chunks, signal);
      await endResponse(response);
      return;
    }
    for (const [name, value] of Object.entries(reply.headers ?? {})) response.setHeader(name, value);
    const body = typeof reply.body === "string" ? Buffer.from(reply.body) : reply.body;
    const isZipped = body.length >= MIN_GZIP_BYTES && /\bgzip\b/.test(String(message.headers["accept-encoding"] ?? ""));
    const sent = isZipped ? gzipSync(body, { level: 1 }) : body;
    if (isZipped) response.setHeader("Content-Encoding", "gzip");
    response.writeHead(reply.status, { "Content-Type": reply.contentType, "Content-Length": sent.length });
    uncount();
    await endResponse(response, message.method === "HEAD" ? undefined : sent);
  }

  async #fail(message: IncomingMessage, response: ServerResponse, error: unknown, signal: AbortSignal): Promise<void> {
    if (response.destroyed || isCancelled(error)) return;
    const status = this.#statusOf(error);
    if (response.headersSent) {
      response.destroy();
      return;
    }
    const retryAfter = status.details?.retryAfterSeconds ?? (status.statusCode === 429 ? 1 : undefined);
    if (retryAfter !== undefined) response.setHeader("Retry-After", String(retryAfter));
    // What is left of the body is not read: the connection cannot be used again.
    if (!message.complete) response.setHeader("Connection", "close");
    await this.#send(message, response, jsonReply(status.statusCode, status.toStatus()), () => undefined, signal);
  }

  #statusOf(error: unknown): StatusError {
    if (error instanceof StatusError) return error;
    if (isPicoletError(error) && error.code === "unavailable") {
      return new StatusError("ServiceUnavailable", error.message, { retryAfterSeconds: 1 }, error);
    }
    this.#components.log.error("a request failed", { error });
    return internalError(error);
  }
}

const tooManyRequests = (): StatusError =>
  new StatusError("TooManyRequests", "Too many requests, please try again later.", { retryAfterSeconds: 1 });

function splitUrl(message: IncomingMessage): { readonly path: string; readonly query: URLSearchParams } {
  const url = message.url ?? "/";
  if (url.length > MAX_URL_LENGTH) throw badRequest(`the URL is longer than ${MAX_URL_LENGTH} characters`);
  const at = url.indexOf("?");
  return at < 0
    ? { path: url, query: new URLSearchParams() }
    : { path: url.slice(0, at), query: new URLSearchParams(url.slice(at + 1)) };
}

async function sendFile(response: ServerResponse, path: string): Promise<void> {
  try {
    const file = await open(path);
    const { size } = await file.stat();
    response.writeHead(200, { "Content-Type": "application/vnd.sqlite3", "Content-Length": size });
    await pipeline(file.createReadStream(), response).catch(() => response.destroy());
  } finally {
    await rm(path, { force: true });
  }
}

function refuseUpgrade(socket: Duplex, error: StatusError): void {
  if (socket.destroyed || !socket.writable) return;
  const body = JSON.stringify(error.toStatus());
  const head = [
    `HTTP/1.1 ${error.statusCode} ${error.reason ?? ""}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
  ];
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
}
