/** Logs, exec, attach, port-forward and the kubelet's own pages: passed on to the node's kubelet. */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { KubeletConnector, KubeletRequest, KubeletTarget } from "@picolet/hub-core/kubelet-connector.ts";
import { joinPipes, SocketPipe } from "@picolet/kubelet-api/pipes/byte-pipe.ts";
import { acceptWebSocket, offeredProtocols } from "@picolet/kubelet-api/pipes/web-socket-server.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { ApiObject, ObjectLookup, ResourceDefinition, UserInfo } from "../api/resource-definition.ts";
import { badRequest, methodNotAllowed, notFound, StatusError } from "../api/status-error.ts";
import type { RequestVerb, ResourcePath } from "./request-info.ts";

interface Fields {
  readonly [field: string]: unknown;
}

const PODS = { group: "", plural: "pods" };
const NODES = { group: "", plural: "nodes" };

const POD_STREAMS: ReadonlySet<string> = new Set(["log", "exec", "attach", "portforward"]);

/** Names of headers that concern this connection or this server alone. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  "authorization",
  "cookie",
  "host",
  "keep-alive",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
]);
const CONNECTION_HEADERS: ReadonlySet<string> = new Set(["connection", "upgrade", "transfer-encoding"]);

const BASE64_LOG = "base64.binary.k8s.io";
/** Subprotocols of a WebSocket that carries a log; without any of them its bytes come as they are. */
const LOG_PROTOCOLS: readonly string[] = ["binary.k8s.io", BASE64_LOG];
const MIN_FAILURE_STATUS = 400;

const asFields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const asList = (value: unknown): readonly Fields[] => (Array.isArray(value) ? value.map(asFields) : []);

/** One authorized request: its user, and the resource and verb it asks for. */
export interface AuthorizedRequest {
  readonly message: IncomingMessage;
  readonly query: URLSearchParams;
  readonly user: UserInfo;
  readonly path: ResourcePath;
  readonly verb: RequestVerb;
  readonly definition: ResourceDefinition;
  readonly authorizeCreate: () => void;
}

interface KubeletEndpointComponents {
  readonly clock: Clock;
  readonly lookup: ObjectLookup;
  readonly kubelets: KubeletConnector | undefined;
}

export class KubeletEndpoint {
  readonly #clock: Clock;
  readonly #lookup: ObjectLookup;
  readonly #kubelets: KubeletConnector | undefined;

  constructor({ clock, lookup, kubelets }: KubeletEndpointComponents) {
    this.#clock = clock;
    this.#lookup = lookup;
    this.#kubelets = kubelets;
  }

  serves({ path, definition }: AuthorizedRequest): boolean {
    if (definition.group !== "") return false;
    if (definition.plural === "pods") return POD_STREAMS.has(path.subresource);
    return definition.plural === "nodes" && path.subresource === "proxy";
  }

  /** @throws StatusError while nothing has been written */
  async handle(request: AuthorizedRequest, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const { message } = request;
    const isStream = ["exec", "attach", "portforward"].includes(request.path.subresource);
    if (isStream) throw badRequest("Upgrade request required");
    const { target, path } = this.#locate(request);
    const hasBody = message.method !== "GET" && message.method !== "HEAD";
    const headers = passedHeaders(message, false);
    const asked: KubeletRequest = {
      method: message.method ?? "GET",
      path,
      headers,
      body: hasBody ? message : undefined,
    };
    const answer = await this.#reach(target, () => this.#connector().request(target, asked, signal));
    response.writeHead(answer.status, withoutConnection(answer.headers));
    response.flushHeaders();
    await pipeline(answer.body, response, { signal }).catch(() => {
      answer.body.destroy();
      response.destroy();
    });
  }

  /** Until both ends are closed. @throws StatusError while nothing has been written */
  async upgrade(request: AuthorizedRequest, socket: Duplex, head: Buffer, signal: AbortSignal): Promise<void> {
    const { message } = request;
    const { target, path } = this.#locate(request);
    if (request.path.subresource === "log" && message.headers.upgrade?.toLowerCase() === "websocket") {
      await this.#logUpgrade(target, path, { message, socket, head }, signal);
      return;
    }
    const asked = { method: message.method ?? "GET", path, headers: passedHeaders(message, true), body: undefined };
    const answer = await this.#reach(target, () => this.#connector().upgrade(target, asked, signal));
    if (answer.kind === "refused") {
      socket.write(headText(answer.status, { ...withoutConnection(answer.headers), connection: "close" }));
      await pipeline(answer.body, socket).catch(() => socket.destroy());
      return;
    }
    const { connection } = answer;
    socket.write(headText(101, answer.headers));
    if (head.length > 0) connection.write(head);
    await joinPipes({ clock: this.#clock }, new SocketPipe(socket), new SocketPipe(connection), signal);
  }

  /**
   * The kubelet knows no WebSocket for logs: each piece of its answer is one message, then the connection is closed.
   */
  async #logUpgrade(
    target: KubeletTarget,
    path: string,
    { message, socket, head }: { message: IncomingMessage; socket: Duplex; head: Buffer },
    signal: AbortSignal,
  ): Promise<void> {
    const offered = offeredProtocols(message).filter((each) => each !== "");
    const protocol = LOG_PROTOCOLS.find((each) => offered.includes(each));
    if (protocol === undefined && offered.length > 0) throw badRequest("no supported WebSocket subprotocol is offered");
    const headers = withoutWebSocket(passedHeaders(message, false));
    const asked: KubeletRequest = { method: "GET", path, headers, body: undefined };
    const answer = await this.#reach(target, () => this.#connector().request(target, asked, signal));
    if (answer.status >= MIN_FAILURE_STATUS) {
      socket.write(headText(answer.status, { ...withoutConnection(answer.headers), connection: "close" }));
      await pipeline(answer.body, socket).catch(() => socket.destroy());
      return;
    }
    const pipe = await acceptWebSocket(message, socket, head, protocol ?? "");
    if (pipe === undefined) {
      answer.body.destroy();
      return;
    }
    try {
      for await (const piece of answer.body as AsyncIterable<Buffer>) {
        await pipe.write(protocol === BASE64_LOG ? piece.toString("base64") : piece, signal);
      }
      pipe.end();
    } catch {
      answer.body.destroy();
      pipe.destroy();
    }
  }

  async #reach<T>(target: KubeletTarget, call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      if (error instanceof StatusError) throw error;
      if (isPicoletError(error, "permission_denied")) throw badRequest(describeError(error));
      const message = `error dialing backend of node ${JSON.stringify(target.node)}: ${describeError(error)}`;
      throw new StatusError("ServiceUnavailable", message, {}, error);
    }
  }

  #connector(): KubeletConnector {
    if (this.#kubelets === undefined) throw new StatusError("ServiceUnavailable", "this server reaches no kubelets");
    return this.#kubelets;
  }

  #locate({ path, query, message }: AuthorizedRequest): { readonly target: KubeletTarget; readonly path: string } {
    if (path.plural === "nodes") {
      const search = (message.url ?? "").split("?")[1];
      const inner = path.rest === "" ? "/" : path.rest;
      if (hasDotSegments(inner)) throw badRequest("the path behind proxy may not contain the segments . and ..");
      return { target: this.#target(path.name), path: search === undefined ? inner : `${inner}?${search}` };
    }
    const allowed = path.subresource === "log" ? ["GET"] : ["GET", "POST"];
    if (!allowed.includes(message.method ?? "")) throw methodNotAllowed();
    const pod = this.#lookup.get("pods", path.namespace, path.name);
    if (pod === undefined) throw notFound(PODS, path.name);
    const node = asFields(pod.spec).nodeName;
    if (typeof node !== "string" || node === "") throw badRequest(`pod ${path.name} does not have a host assigned`);
    return { target: this.#target(node), path: podPath(pod, path.subresource, query) };
  }

  #target(name: string): KubeletTarget {
    const node = this.#lookup.get("nodes", "", name);
    if (node === undefined) throw notFound(NODES, name);
    const status = asFields(node.status);
    const addresses = asList(status.addresses);
    const address = ["InternalIP", "ExternalIP", "Hostname"]
      .map((type) => addresses.find((each) => each.type === type)?.address)
      .find((each): each is string => typeof each === "string" && each !== "");
    const port = asFields(asFields(status.daemonEndpoints).kubeletEndpoint).Port;
    const isClaimed = address !== undefined && typeof port === "number" && port > 0;
    return { node: name, claimed: isClaimed ? { address, port } : undefined };
  }
}

/**
 * Encoded ones too: a kubelet resolves them after it has decoded the path, and would serve another one than was
 * authorized.
 */
function hasDotSegments(path: string): boolean {
  const [pathname = ""] = path.split("?");
  return decodeURIComponent(pathname)
    .split(/[/\\]/)
    .some((segment) => segment === "." || segment === "..");
}

/** The kubelet's path for a subresource of a pod. */
function podPath(pod: ApiObject, subresource: string, query: URLSearchParams): string {
  const { namespace = "", name } = pod.metadata;
  const base = `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  if (subresource === "portforward") return withQuery(`/portForward/${base}`, pick(query, ["ports"]));
  const container = encodeURIComponent(containerOf(pod, query.get("container") ?? "", subresource));
  if (subresource === "log") {
    const options = [
      "follow",
      "previous",
      "sinceSeconds",
      "sinceTime",
      "timestamps",
      "tailLines",
      "limitBytes",
      "stream",
    ];
    return withQuery(`/containerLogs/${base}/${container}`, pick(query, options));
  }
  const wanted = new URLSearchParams();
  const names = { stdin: "input", stdout: "output", stderr: "error", tty: "tty" };
  for (const [option, kubelet] of Object.entries(names)) {
    if (["true", "1"].includes(query.get(option) ?? "")) wanted.append(kubelet, "1");
  }
  if (subresource === "exec") for (const each of query.getAll("command")) wanted.append("command", each);
  return withQuery(`/${subresource}/${base}/${container}`, wanted);
}

function pick(query: URLSearchParams, names: readonly string[]): URLSearchParams {
  return new URLSearchParams([...query].filter(([name]) => names.includes(name)));
}

const withQuery = (path: string, query: URLSearchParams): string =>
  query.size === 0 ? path : `${path}?${query.toString()}`;

function containerOf(pod: ApiObject, asked: string, subresource: string): string {
  const spec = asFields(pod.spec);
  const names = (field: string): string[] => asList(spec[field]).map((each) => String(each.name));
  const containers = names("containers");
  const others = [...names("initContainers"), ...names("ephemeralContainers")];
  if (asked !== "") {
    if (containers.includes(asked) || others.includes(asked)) return asked;
    throw badRequest(`container ${asked} is not valid for pod ${pod.metadata.name}`);
  }
  const [only, ...more] = containers;
  if (only !== undefined && (more.length === 0 || subresource !== "log")) return only;
  const inits = names("initContainers");
  const hint = inits.length === 0 ? "" : ` or one of the init containers: [${inits.join(" ")}]`;
  throw badRequest(
    `a container name must be specified for pod ${pod.metadata.name}, choose one of: [${containers.join(" ")}]${hint}`,
  );
}

function passedHeaders({ headers }: IncomingMessage, isUpgrade: boolean): OutgoingHttpHeaders {
  const kept = Object.entries(headers).filter(([name]) => {
    if (OWN_HEADERS.has(name) || name.startsWith("impersonate-")) return false;
    return isUpgrade || !CONNECTION_HEADERS.has(name);
  });
  const protocols = headers["sec-websocket-protocol"];
  const passed: OutgoingHttpHeaders = Object.fromEntries(kept);
  if (protocols === undefined) return passed;
  // A token among the subprotocols is for this server alone.
  const left = protocols
    .split(",")
    .map((each) => each.trim())
    .filter((each) => !each.startsWith("base64url.bearer."));
  return { ...passed, "sec-websocket-protocol": left.join(", ") };
}

const withoutWebSocket = (headers: OutgoingHttpHeaders): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith("sec-websocket-")));

const withoutConnection = (headers: OutgoingHttpHeaders): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !CONNECTION_HEADERS.has(name.toLowerCase())));

function headText(status: number, headers: OutgoingHttpHeaders): string {
  const lines = Object.entries(headers).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value])
      .filter((each) => each !== undefined)
      .map((each) => `${name}: ${String(each)}`),
  );
  return `HTTP/1.1 ${status} ${status === 101 ? "Switching Protocols" : "Refused"}\r\n${lines.join("\r\n")}\r\n\r\n`;
}
