import { open, rm } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { LabelledCounts, LabelledLatencies } from "@picolet/hub-core/counts.ts";
import type { KubeletConnector } from "@picolet/hub-core/kubelet-connector.ts";
import { endAnswer } from "@picolet/kubelet-api/pipes/unread-body.ts";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { budgetOf } from "../admission/quotas.ts";
import { apiVersionOf, type UserInfo } from "../api/resource-definition.ts";
import { badRequest, internalError, methodNotAllowed, pathNotFound, StatusError } from "../api/status-error.ts";
import { requireAccess } from "../auth/access.ts";
import { ANONYMOUS, MASTERS, resourceAttributes } from "../auth/attributes.ts";
import { impersonate } from "../auth/impersonation.ts";
import type { ApiServerCore } from "../server/server-core.ts";
import { wantsWatch } from "../service/params.ts";
import { type AuthorizedRequest, KubeletEndpoint } from "./kubelet-endpoint.ts";
import { PathEndpoint } from "./path-endpoint.ts";
import { endResponse, jsonReply, type Reply, writeChunks } from "./reply.ts";
import { classify, RequestFairness, type RequestTurn } from "./request-fairness.ts";
import { parsePath, type RequestVerb, type ResourcePath, verbOf } from "./request-info.ts";
import { ResourceEndpoint } from "./resource-endpoint.ts";

export interface ApiHandlerInit {
  /** Version of this build, for /version. */
  readonly version: string;
  readonly isStopping: () => boolean;
  /** The client of this connection has shown who it is. `owner`: what its connections are counted by. */
  readonly authenticated: (socket: Socket, owner: string, isAdministrator: boolean) => void;
}

export interface ApiHandlerComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly core: ApiServerCore;
  readonly kubelets: KubeletConnector | undefined;
}

/** Longer URLs are refused; selectors and field lists stay far below it. */
export const MAX_URL_LENGTH = 16_384;
/** A client gets this long for its answer, and as long again as it takes at the rate below. */
const ANSWER_MS = 60_000;
const ANSWER_BYTES_PER_MS = 16;
/** Smaller answers are not worth the time. As Kubernetes. */
export const MIN_GZIP_BYTES = 128 * KIBIBYTE;

/** Verbs of requests with a body. */
const BODY_VERBS: ReadonlySet<RequestVerb> = new Set(["create", "update", "patch", "delete", "deletecollection"]);

/** Requests by HTTP that were answered. Upgrades are none of them. */
class RequestCounts {
  /** By verb (`other`: no resource) and status. */
  readonly requests = new LabelledCounts();
  /** By verb; a watch is none of them. */
  readonly durations = new LabelledLatencies();
}

interface Exchange {
  readonly message: IncomingMessage;
  readonly response: ServerResponse;
  readonly warnings: string[];
  readonly turn: RequestTurn;
  readonly signal: AbortSignal;
}
/** In a thread of libuv's. */
const compress = promisify(gzip);

export class ApiHandler {
  readonly #components: ApiHandlerComponents;
  readonly #init: ApiHandlerInit;
  readonly #resources: ResourceEndpoint;
  readonly #paths: PathEndpoint;
  readonly #kubelets: KubeletEndpoint;
  readonly #fairness: RequestFairness;
  readonly counts = new RequestCounts();
  /** Streams as well. */
  #open = 0;
  #whenDrained: (() => void) | undefined;

  constructor(components: ApiHandlerComponents, init: ApiHandlerInit) {
    const { core, clock } = components;
    this.#components = components;
    this.#init = init;
    const { lookup } = core.service;
    this.#resources = new ResourceEndpoint({ service: core.service, clock, models: core.models });
    this.#paths = new PathEndpoint(core, init);
    this.#kubelets = new KubeletEndpoint({ clock, lookup, kubelets: components.kubelets });
    this.#fairness = new RequestFairness({ clock, count: (resource) => core.store.count(resource) });
  }

  /** Resolves when nothing is being answered. */
  drained(): Promise<void> {
    if (this.#open === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenDrained = resolve;
    });
  }

  /** Requests that are worked on or wait, bytes in memory, watches and streams. */
  get load(): RequestFairness["load"] {
    return this.#fairness.load;
  }

  async handle(message: IncomingMessage, response: ServerResponse, stop: AbortSignal): Promise<void> {
    const startedAt = this.#components.clock.monotonic();
    using joined = joinSignals(stop);
    // A server that stops still answers what waits for its turn.
    using gone = joinSignals();
    response.on("close", () => {
      joined.abort();
      gone.abort();
    });
    this.#open += 1;
    const warnings: string[] = [];
    using turn = this.#fairness.begin(gone.signal);
    try {
      const reply = await this.#reply({ message, response, warnings, turn, signal: joined.signal });
      await this.#send(message, response, reply, turn, joined.signal);
    } catch (error) {
      turn.leave();
      await this.#fail(message, response, error, turn, joined.signal);
    } finally {
      const verb = turn.verb ?? "other";
      this.counts.requests.add([verb, String(response.statusCode)]);
      if (verb !== "watch") this.counts.durations.observe([verb], this.#components.clock.monotonic() - startedAt);
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
      using turn = this.#fairness.begin(joined.signal);
      await turn.enter(classify(user, addressOf(message), parsed), 1);
      const request = this.#authorize(message, parsed, query, user);
      if (!this.#kubelets.serves(request)) throw badRequest("this request cannot be upgraded");
      this.#fairness.countStream(user, joined.signal);
      turn.leave();
      await this.#kubelets.upgrade(request, socket, head, joined.signal);
    } catch (error) {
      refuseUpgrade(socket, this.#statusOf(error));
    }
  }

  async #userOf(message: IncomingMessage): Promise<UserInfo> {
    const user = await this.#components.core.authenticator.authenticate(message);
    if (user !== ANONYMOUS) {
      this.#init.authenticated(message.socket, budgetOf(user.name), user.groups.includes(MASTERS));
    }
    return impersonate(this.#components.core.authorizer, user, message.headers);
  }

  async #reply({ message, response, warnings, turn, signal }: Exchange): Promise<Reply> {
    const { path, query } = splitUrl(message);
    const user = await this.#userOf(message);
    const parsed = parsePath(path);
    if (parsed === undefined) throw badRequest("the path cannot be decoded");
    const verb = parsed.kind === "other" ? undefined : verbOf(message.method ?? "", parsed, wantsWatch(query));
    const to = classify(user, addressOf(message), parsed);
    // Kubernetes sends UIDs here; the hub sends the names instead.
    response.setHeader("X-Kubernetes-PF-FlowSchema-UID", to.schema);
    response.setHeader("X-Kubernetes-PF-PriorityLevel-UID", to.level);
    turn.verb = verb;
    await turn.enter(to, verb === undefined ? 1 : this.#fairness.widthOf(parsed, verb, query));
    if (parsed.kind === "other") {
      const method = (message.method ?? "GET").toLowerCase();
      requireAccess(this.#components.core.authorizer, { kind: "path", user, verb: method, path });
      return this.#paths.handle(message, path, query);
    }
    const request = this.#authorize(message, parsed, query, user);
    if (this.#kubelets.serves(request)) {
      this.#fairness.countStream(user, signal);
      turn.leave();
      await this.#kubelets.handle(request, response, signal);
      return { kind: "taken" };
    }
    if (request.verb === "watch") this.#fairness.countStream(user, signal);
    const body = BODY_VERBS.has(request.verb) ? await turn.readBody(message) : Buffer.alloc(0);
    return this.#resources.handle({ ...request, body, warnings, memory: turn.memory, signal });
  }

  #authorize(message: IncomingMessage, path: ResourcePath, query: URLSearchParams, user: UserInfo): AuthorizedRequest {
    const verb = verbOf(message.method ?? "", path, wantsWatch(query));
    if (verb === undefined) throw methodNotAllowed();
    const { group, version, plural, subresource, namespace, name } = path;
    // The watch paths of old know no selectors.
    const fieldSelector = path.isWatchPath ? "" : (query.get("fieldSelector") ?? "");
    // A namespace is in itself, as far as rules are concerned.
    const scope = group === "" && plural === "namespaces" && namespace === "" ? name : namespace;
    const { core } = this.#components;
    const authorize = (wanted: string): void => {
      const asked = { user, verb: wanted, group, version, plural, subresource, namespace: scope, name, fieldSelector };
      requireAccess(core.authorizer, resourceAttributes(asked));
    };
    authorize(verb);
    const definition = core.table.find(apiVersionOf(path), plural);
    if (definition === undefined || (!definition.namespaced && namespace !== "")) throw pathNotFound();
    return { message, query, user, path, verb, definition, authorizeCreate: () => authorize("create") };
  }

  async #send(
    message: IncomingMessage,
    response: ServerResponse,
    reply: Reply,
    turn: RequestTurn,
    signal: AbortSignal,
  ): Promise<void> {
    if (reply.kind === "taken" || response.destroyed) return;
    response.setHeader("Cache-Control", "no-cache, private");
    if (reply.kind === "file") {
      turn.leave();
      await sendFile(response, reply.path);
      return;
    }
    if (reply.kind === "stream") {
      turn.leave();
      response.writeHead(200, { "Content-Type": reply.contentType });
      response.flushHeaders();
      const unread = (bytes: number): number => ANSWER_MS + bytes / ANSWER_BYTES_PER_MS;
      await writeChunks(response, reply.chunks, { clock: this.#components.clock, unread }, signal);
      await endResponse(response);
      return;
    }
    for (const [name, value] of Object.entries(reply.headers ?? {})) response.setHeader(name, value);
    const body = typeof reply.body === "string" ? Buffer.from(reply.body) : reply.body;
    const isZipped = body.length >= MIN_GZIP_BYTES && /\bgzip\b/.test(String(message.headers["accept-encoding"] ?? ""));
    const sent = isZipped ? await compress(body, { level: 1 }) : body;
    if (isZipped) response.setHeader("Content-Encoding", "gzip");
    turn.leave();
    turn.holdAnswer(sent.length);
    await this.#within(ANSWER_MS + sent.length / ANSWER_BYTES_PER_MS, response, () =>
      endAnswer(response, reply.status, { "content-type": reply.contentType }, sent),
    );
  }

  /** A client that does not take its answer is cut off: what it does not take stays in memory. */
  async #within(limitMs: number, response: ServerResponse, send: () => Promise<void>): Promise<void> {
    const sending = send();
    if (response.writableFinished || response.writableLength === 0) return sending;
    using sent = joinSignals();
    this.#components.clock
      .sleep(millis(limitMs), sent.signal)
      .then(() => response.destroy(), ignore("it was taken in time"));
    try {
      await sending;
    } finally {
      sent.abort();
    }
  }

  async #fail(
    message: IncomingMessage,
    response: ServerResponse,
    error: unknown,
    turn: RequestTurn,
    signal: AbortSignal,
  ): Promise<void> {
    if (response.destroyed || isCancelled(error)) return;
    const status = this.#statusOf(error);
    if (response.headersSent) {
      response.destroy();
      return;
    }
    const retryAfter = status.details?.retryAfterSeconds ?? (status.statusCode === 429 ? 1 : undefined);
    if (retryAfter !== undefined) response.setHeader("Retry-After", String(retryAfter));
    await this.#send(message, response, jsonReply(status.statusCode, status.toStatus()), turn, signal);
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

const addressOf = ({ socket }: IncomingMessage): string => socket.remoteAddress ?? "";

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
