import type { IncomingMessage } from "node:http";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import {
  type DeviceList,
  type DeviceReport,
  type FactoryResetAnswer,
  type IsolationAnswer,
  MAX_SHUTDOWN_SECONDS,
  type NodeShutdownAnswer,
  type VersionAnswer,
} from "@picolet/protocol/local-api/status.ts";
import { topicOf } from "@picolet/protocol/local-api/why.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import type { NodeShutdownControl } from "../core/node/node-shutdown-control.ts";
import type { UpdateControl } from "../core/node/update-control.ts";
import type { WhyAnswers } from "../core/node/why-answers.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import { type ContainerLogs, logStreamOf } from "../core/pods/container-logs.ts";
import type { NodeImages } from "../core/pods/image-pulls.ts";
import type { PodEnder, PodMover } from "../core/pods/pod-admission.ts";
import { podObject } from "../core/pods/pod-object.ts";
import type { PushedPods } from "../core/pods/pushed-pods.ts";
import type { KeyvalueBuckets } from "../core/store/keyvalue-buckets.ts";
import type { AgentView } from "./agent-view.ts";
import type { Answer } from "./api-answers.ts";
import { ImageRoutes } from "./image-routes.ts";
import type { KeyvalueVerb } from "./keyvalue-routes.ts";
import type { PodVerb } from "./pod-changes.ts";
import { ANY_NAMESPACE, findPod, statusAnswer } from "./pod-objects.ts";
import { type ApiRequest, MAX_PUSH_BYTES, parseRequest, type Query, readJsonBody, readText } from "./request-input.ts";
import {
  DEFAULT_EVENT_LIMIT,
  type EventFilter,
  eventObject,
  listPieces,
  podsOf,
  watchEvents,
  watchPods,
} from "./watches.ts";

/** Bounds what every report of the node has while it is held. */
const MAX_HOLD_REASON = 128;
/** More than the store keeps; bounds what a client can ask for. */
const MAX_EVENT_LIMIT = 10_000;

type Handler = (
  handler: ApiHandler,
  request: ApiRequest,
  message: IncomingMessage,
  signal: AbortSignal,
) => Promise<Answer> | Answer;

interface Route {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** `*` is any one segment. */
  readonly path: readonly string[];
  readonly handle: Handler;
}

const ROUTES: readonly Route[] = [
  { method: "GET", path: ["status"], handle: (api, { query }) => api.status(query) },
  { method: "GET", path: ["version"], handle: (api, { query }) => api.version(query) },
  { method: "GET", path: ["config"], handle: (api, { query }) => api.config(query) },
  { method: "GET", path: ["pods"], handle: (api, { query }, _, signal) => api.pods(undefined, query, signal) },
  { method: "GET", path: ["events"], handle: (api, { query }, _, signal) => api.events(query, signal) },
  { method: "GET", path: ["images"], handle: (api, { query }, _, signal) => api.images.list(query, signal) },
  { method: "GET", path: ["devices"], handle: (api, { query }) => api.devices(query) },
  ...(["import", "pull", "remove", "pin"] as const).map(
    (verb): Route => ({
      method: "POST",
      path: ["images", verb],
      handle: (api, { query }, message, signal) => api.images[verb](query, message, signal),
    }),
  ),
  { method: "GET", path: ["keyvalue"], handle: (api, request) => api.keyvalue("list", request) },
  { method: "DELETE", path: ["keyvalue", "*", "*"], handle: (api, request) => api.keyvalue("drop", request) },
  { method: "GET", path: ["keyvalue", "*", "*", "keys"], handle: (api, request) => api.keyvalue("keys", request) },
  ...(
    [
      ["GET", "get"],
      ["PUT", "set"],
      ["DELETE", "delete"],
    ] as const
  ).map(
    ([method, verb]): Route => ({
      method,
      path: ["keyvalue", "*", "*", "value"],
      handle: (api, request, message) => api.keyvalue(verb, request, message),
    }),
  ),
  {
    method: "POST",
    path: ["node", "shutdown"],
    handle: (api, { query }, message) => api.shutDown(query, message),
  },
  { method: "POST", path: ["node", "factory-reset"], handle: (api, { query }) => api.resetToFactory(query) },
  ...(
    [
      ["POST", ["restart"], "restart"],
      ["DELETE", [], "delete"],
    ] as const
  ).map(
    ([method, last, verb]): Route => ({
      method,
      path: ["namespaces", "*", "pods", "*", ...last],
      handle: (api, request, _, signal) => api.changePod(verb, request, signal),
    }),
  ),
  { method: "GET", path: ["updates"], handle: (api, { query }) => api.updates(query) },
  { method: "PUT", path: ["updates", "hold"], handle: (api, { query }, message) => api.holdUpdates(query, message) },
  { method: "DELETE", path: ["updates", "hold"], handle: (api, { query }) => api.releaseUpdates(query) },
  {
    method: "POST",
    path: ["updates", "install"],
    handle: (api, { query }, message, signal) => api.installUpdate(query, message, signal),
  },
  { method: "GET", path: ["why", "node"], handle: (api, { query }) => api.why(undefined, query) },
  {
    method: "GET",
    path: ["why", "pods", "*", "*"],
    handle: (api, { query, segments }) => api.why([segments[2] ?? "", segments[3] ?? ""], query),
  },
  {
    method: "PUT",
    path: ["pushed-pods"],
    handle: (api, { query }, message) => api.pushPods(query, message),
  },
  {
    method: "POST",
    path: ["session-pods"],
    handle: (api, { query }, message, signal) => api.openSessionPod(query, message, signal),
  },
  {
    method: "GET",
    path: ["namespaces", "*", "pods"],
    handle: (api, { query, segments }, _, signal) => api.pods(segments[1], query, signal),
  },
  {
    method: "GET",
    path: ["namespaces", "*", "pods", "*"],
    handle: (api, { query, segments }) => api.pod(segments[1] ?? "", segments[3] ?? "", query),
  },
  {
    method: "GET",
    path: ["namespaces", "*", "pods", "*", "isolation"],
    handle: (api, { query, segments }, _, signal) => api.isolation(segments[1] ?? "", segments[3] ?? "", query, signal),
  },
  {
    method: "GET",
    path: ["namespaces", "*", "pods", "*", "log"],
    handle: (api, { query, segments }, _, signal) => api.log(segments[1] ?? "", segments[3] ?? "", query, signal),
  },
];

export interface ApiHandlerComponents {
  readonly view: AgentView;
  readonly logs: ContainerLogs;
  readonly clock: Clock;
  /** `undefined`: pushing pods is disabled. */
  readonly pushed?: PushedPods;
  /** `undefined`: pods can neither be restarted nor deleted. */
  readonly workers?: PodEnder & PodMover;
  /** `undefined`: pulls are neither reported nor possible. */
  readonly images?: NodeImages;
  /** `undefined`: a shutdown of the node cannot be requested. */
  readonly shutdown?: NodeShutdownControl;
  /** Empties the board, and restarts it. `undefined`: this agent does not. */
  readonly factoryReset?: () => Promise<void>;
  /** `undefined`: this agent manages no devices. */
  readonly devices?: () => Promise<readonly DeviceReport[]>;
  /** `undefined`: this agent updates nothing. */
  readonly updates?: UpdateControl;
  /** `undefined`: this agent records no decisions. */
  readonly why?: WhyAnswers;
  /** `undefined`: components keep nothing on this node. */
  readonly keyvalue?: () => Promise<KeyvalueBuckets>;
}

/** Answers one request of the local API. It reads HTTP requests, and leaves writing the response to its caller. */
export class ApiHandler {
  readonly #view: AgentView;
  readonly #logs: ContainerLogs;
  readonly #clock: Clock;
  readonly #pushed: PushedPods | undefined;
  readonly #shutdown: NodeShutdownControl | undefined;
  readonly #devices: ApiHandlerComponents["devices"];
  readonly #factoryReset: ApiHandlerComponents["factoryReset"];
  readonly #updates: UpdateControl | undefined;
  readonly #why: WhyAnswers | undefined;
  readonly #keyvalue: ApiHandlerComponents["keyvalue"];
  readonly #workers: ApiHandlerComponents["workers"];
  readonly images: ImageRoutes;

  constructor(components: ApiHandlerComponents) {
    this.images = new ImageRoutes(components);
    this.#view = components.view;
    this.#pushed = components.pushed;
    this.#shutdown = components.shutdown;
    this.#devices = components.devices;
    this.#factoryReset = components.factoryReset;
    this.#updates = components.updates;
    this.#why = components.why;
    this.#keyvalue = components.keyvalue;
    this.#workers = components.workers;
    this.#logs = components.logs;
    this.#clock = components.clock;
  }

  /** @throws PicoletError; `invalid` and `not_found` for what the client got wrong. */
  async answer(message: IncomingMessage, signal: AbortSignal): Promise<Answer> {
    const request = parseRequest(message.method ?? "", message.url ?? "");
    const candidates = ROUTES.filter(({ path }) => matches(path, request.segments));
    if (candidates.length === 0) throw new PicoletError("not_found", "no such path in /v1");
    const route = candidates.find((each) => each.method === request.method);
    if (route === undefined) throw new PicoletError("unimplemented", `method ${request.method} is not offered here`);
    return await route.handle(this, request, message, signal);
  }

  status(query: Query): Answer {
    query.end();
    return { kind: "json", body: statusAnswer(this.#view, this.images.pulls) };
  }

  version(query: Query): Answer {
    query.end();
    const body: VersionAnswer = { version: this.#view.agent().version, node: this.#view.node().name };
    return { kind: "json", body };
  }

  async config(query: Query): Promise<Answer> {
    query.end();
    return { kind: "json", body: await this.#view.configuration() };
  }

  pods(namespace: string | undefined, query: Query, signal: AbortSignal): Answer {
    const watch = query.flag("watch");
    query.end();
    if (watch) return lines(watchPods(this.#view, namespace, signal));
    return { kind: "pieces", pieces: listPieces("PodList", "", podsOf(this.#view, namespace)) };
  }

  pod(namespace: string, name: string, query: Query): Answer {
    query.end();
    return { kind: "json", body: podObject(findPod(this.#view, namespace, name)) };
  }

  async isolation(namespace: string, name: string, query: Query, signal: AbortSignal): Promise<Answer> {
    query.end();
    const containers = await this.#view.isolation(findPod(this.#view, namespace, name), signal);
    return { kind: "json", body: { containers } satisfies IsolationAnswer };
  }

  events(query: Query, signal: AbortSignal): Answer {
    const watch = query.flag("watch");
    const limit = Math.min(query.count("limit") ?? DEFAULT_EVENT_LIMIT, MAX_EVENT_LIMIT);
    const filter = this.#eventFilter(query.text("namespace"), query.text("pod"));
    query.end();
    if (watch) return lines(watchEvents(this.#view, filter, limit, signal));
    const node = this.#view.node().name;
    const events = limit === 0 ? [] : this.#view.events.list({ ...filter, limit });
    const items = events.map((event) => eventObject(event, node));
    return { kind: "pieces", pieces: listPieces("EventList", String(this.#view.events.latest.current), items) };
  }

  async log(namespace: string, name: string, query: Query, signal: AbortSignal): Promise<Answer> {
    const container = query.text("container");
    const previous = query.flag("previous");
    const sinceSeconds = query.count("sinceSeconds");
    const sinceTime = query.time("sinceTime");
    if (sinceSeconds !== undefined && sinceTime !== undefined) {
      throw new PicoletError("invalid", "only one of sinceSeconds and sinceTime may be given");
    }
    const stream = logStreamOf(query.text("stream"));
    const tailLines = query.count("tailLines");
    if (tailLines !== undefined && stream !== undefined) {
      throw new PicoletError("invalid", "`tailLines` and a specific `stream` are mutually exclusive");
    }
    const request = {
      stream,
      follow: query.flag("follow"),
      timestamps: query.flag("timestamps"),
      tailLines,
      limitBytes: query.count("limitBytes"),
      sinceMs: sinceSeconds === undefined ? sinceTime : this.#clock.wall().getTime() - sinceSeconds * 1000,
    };
    query.end();
    const found = await this.#logs.find(findPod(this.#view, namespace, name), { container, previous });
    const open = async (): Promise<AsyncIterable<Uint8Array>> => {
      const chunks = found.read(request, signal);
      // The head of a followed log must not wait for the first line; any other shows its errors in the head.
      return request.follow ? chunks : await primed(chunks);
    };
    return { kind: "stream", contentType: "text/plain", notice: found.notice, open };
  }

  async pushPods(query: Query, message: IncomingMessage): Promise<Answer> {
    const { pushPods } = await import("./push-route.ts");
    return { kind: "json", ...(await pushPods(this.#pushed, query, message)) };
  }

  async openSessionPod(query: Query, message: IncomingMessage, signal: AbortSignal): Promise<Answer> {
    query.end();
    const pushed = this.#pushed;
    if (pushed === undefined) throw new PicoletError("unimplemented", "this agent takes no pods here");
    const text = await readText(message, MAX_PUSH_BYTES);
    const { openSessionPod } = await import("./session-pods.ts");
    const open = (): Promise<AsyncIterable<string>> => openSessionPod({ view: this.#view, pushed }, text, signal);
    return { kind: "stream", contentType: "application/x-ndjson", notice: "", open };
  }

  /** Loaded with the first question: few nodes are ever asked. */
  async keyvalue(verb: KeyvalueVerb, request: ApiRequest, message?: IncomingMessage): Promise<Answer> {
    if (this.#keyvalue === undefined) throw new PicoletError("unimplemented", "this agent keeps no values here");
    const { answerKeyvalue } = await import("./keyvalue-routes.ts");
    return await answerKeyvalue(this.#keyvalue, verb, request, message);
  }

  /** Loaded with the first request, as `keyvalue` is. */
  async changePod(verb: PodVerb, { segments, query }: ApiRequest, signal: AbortSignal): Promise<Answer> {
    const [workers, pushed] = [this.#workers, this.#pushed];
    if (workers === undefined || pushed === undefined)
      throw new PicoletError("unimplemented", "this agent changes no pods here");
    const { changePod, podChangeInit } = await import("./pod-changes.ts");
    const [, namespace = "", , name = ""] = segments;
    const find = (): AgentPod => findPod(this.#view, namespace, name);
    return { kind: "json", body: await changePod({ workers, pushed, find }, verb, podChangeInit(query), signal) };
  }

  async shutDown(query: Query, message: IncomingMessage): Promise<Answer> {
    query.end();
    const { cancel = false, gracePeriodSeconds: wanted, ...unknown } = await readJsonBody(message);
    const [field] = Object.keys(unknown);
    if (field !== undefined) throw new PicoletError("invalid", `there is no field ${field} here`);
    if (typeof cancel !== "boolean") throw new PicoletError("invalid", "field cancel is true or false");
    const isTime = Number.isSafeInteger(wanted) && Number(wanted) >= 1 && Number(wanted) <= MAX_SHUTDOWN_SECONDS;
    if (wanted !== undefined && !isTime)
      throw new PicoletError("invalid", `field gracePeriodSeconds is a number from 1 to ${MAX_SHUTDOWN_SECONDS}`);
    if (this.#shutdown === undefined) throw new PicoletError("unimplemented", "this agent is not shut down here");
    const period = wanted === undefined ? undefined : seconds(Number(wanted));
    await (cancel ? this.#shutdown.cancel() : this.#shutdown.begin("edgectl", period));
    const body: NodeShutdownAnswer = { node: this.#view.node().name, shutDown: this.#shutdown.isShuttingDown };
    return { kind: "json", body };
  }

  async devices(query: Query): Promise<Answer> {
    query.end();
    if (this.#devices === undefined) throw new PicoletError("unimplemented", "this agent manages no devices");
    return { kind: "json", body: { items: await this.#devices() } satisfies DeviceList };
  }

  async resetToFactory(query: Query): Promise<Answer> {
    query.end();
    if (this.#factoryReset === undefined) throw new PicoletError("unimplemented", "this agent empties no board");
    await this.#factoryReset();
    return { kind: "json", body: { node: this.#view.node().name } satisfies FactoryResetAnswer };
  }

  async updates(query: Query): Promise<Answer> {
    query.end();
    return { kind: "json", body: await this.#updateControl().status() };
  }

  async holdUpdates(query: Query, message: IncomingMessage): Promise<Answer> {
    query.end();
    const { reason = "", forMs = null, ...unknown } = await readJsonBody(message);
    const [field] = Object.keys(unknown);
    if (field !== undefined) throw new PicoletError("invalid", `there is no field ${field} here`);
    if (typeof reason !== "string" || reason.length > MAX_HOLD_REASON)
      throw new PicoletError("invalid", `field reason is a text of at most ${MAX_HOLD_REASON} characters`);
    if (forMs !== null && (typeof forMs !== "number" || !(forMs > 0)))
      throw new PicoletError("invalid", "field forMs is null, or milliseconds above 0");
    return { kind: "json", body: await this.#updateControl().hold({ reason, forMs }) };
  }

  async releaseUpdates(query: Query): Promise<Answer> {
    query.end();
    return { kind: "json", body: await this.#updateControl().release() };
  }

  async installUpdate(query: Query, message: IncomingMessage, signal: AbortSignal): Promise<Answer> {
    query.end();
    const { path, check = false, allowDowngrade = false, ...unknown } = await readJsonBody(message);
    const [field] = Object.keys(unknown);
    if (field !== undefined) throw new PicoletError("invalid", `there is no field ${field} here`);
    if (typeof path !== "string" || !path.startsWith("/"))
      throw new PicoletError("invalid", "field path is an absolute path on this board");
    if (typeof check !== "boolean" || typeof allowDowngrade !== "boolean")
      throw new PicoletError("invalid", "fields check and allowDowngrade are true or false");
    return { kind: "json", body: await this.#updateControl().install({ path, check, allowDowngrade }, signal) };
  }

  /** @param pod namespace and name; `undefined`: the node */
  async why(pod: readonly [string, string] | undefined, query: Query): Promise<Answer> {
    const word = query.text("topic");
    query.end();
    const topic = word === undefined ? undefined : topicOf(word);
    if (this.#why === undefined) throw new PicoletError("unimplemented", "this agent records no decisions");
    const [namespace, name] = pod ?? [];
    const named =
      name === undefined ? undefined : { namespace: namespace === ANY_NAMESPACE ? undefined : namespace, name };
    return { kind: "json", body: await this.#why.ask({ pod: named, topic }) };
  }

  #updateControl(): UpdateControl {
    if (this.#updates === undefined) throw new PicoletError("unimplemented", "this agent updates nothing");
    return this.#updates;
  }

  #eventFilter(namespace: string | undefined, name: string | undefined): EventFilter {
    const filter = namespace === undefined || namespace === ANY_NAMESPACE ? {} : { namespace };
    if (name === undefined) return filter;
    try {
      const { metadata } = findPod(this.#view, namespace ?? ANY_NAMESPACE, name).desired.pod;
      return { namespace: metadata.namespace, name: metadata.name };
    } catch (error) {
      // Events outlive their pods.
      if (isPicoletError(error, "not_found")) return { ...filter, name };
      throw error;
    }
  }
}

const lines = (source: AsyncIterable<string>): Answer => {
  return { kind: "stream", contentType: "application/x-ndjson", notice: "", open: () => Promise.resolve(source) };
};

const matches = (path: readonly string[], segments: readonly string[]): boolean =>
  path.length === segments.length && path.every((part, index) => part === "*" || part === segments[index]);

/** The same chunks, of which the first has been read: what goes wrong at once goes wrong here. */
async function primed(chunks: AsyncGenerator<Uint8Array>): Promise<AsyncIterable<Uint8Array>> {
  const first = await chunks.next();
  return (async function* () {
    try {
      if (first.done === true) return;
      yield first.value;
      yield* chunks;
    } finally {
      await chunks.return(undefined);
    }
  })();
}
