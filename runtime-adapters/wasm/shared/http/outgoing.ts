/**
 * wasi:http/outgoing-handler within the policy of the pod. Only judged addresses are connected to: the socket itself
 * looks names up through `lookup`, which leaves out addresses that the policy forbids. Redirects are not followed,
 * nothing is cached, and no proxy is used.
 */
import type { ClientRequest, IncomingMessage, RequestOptions as NodeOptions } from "node:http";
import type { LookupFunction, Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { certificateProblem, isCertificateTimeCode, UNTRUSTED } from "../network/certificate-problems.ts";
import { parseAddress } from "../network/ip-address.ts";
import type { Destination, NetworkPolicy } from "../network/network-policy.ts";
import { Failure } from "../resources/failure.ts";
import { HostResource } from "../resources/handles.ts";
import { Pollable, type Readiness } from "../resources/polling.ts";
import { WakeListeners } from "../resources/wake-listeners.ts";
import { HttpError, type HttpErrorCode, httpErrorCode, type PlainCode } from "./error-code.ts";
import { FieldList } from "./fields.ts";
import type { HttpContext } from "./http-context.ts";
import { IncomingPipe } from "./incoming-body.ts";
import { IncomingResponse, milliseconds, type OutgoingRequest, type RequestOptions } from "./messages.ts";
import { joinSmallPieces, NodeBodySource, NodeBodyTarget } from "./node-messages.ts";
import { contentLength, methodText, parseAuthority } from "./request-line.ts";
import type { TlsContexts } from "./tls-contexts.ts";

/** wasi:http leaves it to the host. Longer ones are cut to these. */
const CONNECT_TIMEOUT_MS = 30_000;
const FIRST_BYTE_TIMEOUT_MS = 600_000;
const BETWEEN_BYTES_TIMEOUT_MS = 600_000;
/** To one host at once, and idle ones that are kept; each is a file descriptor and up to 100 KiB of buffers. */
const MAX_SOCKETS_PER_HOST = 16;
const MAX_SOCKETS = 64;
const MAX_IDLE_SOCKETS = 4;
const IDLE_MS = 15_000;
/** Requests of one instance whose response has not come. */
const MAX_UNDERWAY = 64;
/** Bounds the response's header. */
const MAX_HEADER_BYTES = 65_536;
/** A whole body may be as long as it likes: it is read piece by piece. */
const MAX_BODY_BYTES = Number.MAX_SAFE_INTEGER;
const MAX_URI_LENGTH = 16_384;
/**
 * Sessions that are kept so that the next connection's handshake is short, some 2 KiB each: of the hosts that are asked
 * most.
 */
const MAX_SESSIONS = 16;
/**
 * Bounds the different messages about certificates in a container's log, so that a component in a loop does not fill
 * it.
 */
const MAX_COMPLAINTS = 64;

type HttpModule = typeof import("node:http");

export interface OutgoingHttp {
  /** @throws errors that are known at once */
  handle(context: HttpContext, request: OutgoingRequest, options: RequestOptions | undefined): FutureIncomingResponse;
}

/** The client of a pod without any rule for http. */
export const noOutgoing: OutgoingHttp = {
  handle: (_, request) => {
    request.given();
    throw new Failure<HttpErrorCode>({ tag: "HTTP-request-denied" });
  },
};

export interface OutgoingInit {
  readonly policy: NetworkPolicy;
  /** PEM, trusted beside the built-in ones. */
  readonly authorities: string | undefined;
  /** The TLS contexts of the process. */
  readonly tls: TlsContexts;
  /** True when the node's clock, by which certificates are judged, has been set since it started. */
  readonly wallIsSet: () => boolean;
  /** Writes into the container's log, because wasi:http has no text for a wrong certificate. */
  readonly complain: (text: string) => void;
}

export class OutgoingRequests implements OutgoingHttp {
  readonly #init: OutgoingInit;
  readonly #complaints = new Set<string>();
  readonly #modules = new Map<
    string,
    { readonly module: HttpModule; readonly agent: InstanceType<HttpModule["Agent"]> }
  >();
  #underway = 0;

  constructor(init: OutgoingInit) {
    this.#init = init;
  }

  handle(context: HttpContext, request: OutgoingRequest, options: RequestOptions | undefined): FutureIncomingResponse {
    const hasBody = request.given();
    const timeouts = timeoutsOf(options);
    options?.[Symbol.dispose]();
    const destination = this.#destination(request);
    if (this.#underway >= MAX_UNDERWAY) throw failure("connection-limit-reached");
    const length = contentLength(request.fields.values("content-length"));
    if (length === null) throw failure("HTTP-protocol-error");
    const { module, agent } = this.#module(destination.protocol);
    const node = module.request({
      agent,
      ...target(request, destination),
      lookup: guardedLookup(this.#init.policy, destination),
      maxHeaderSize: MAX_HEADER_BYTES,
      joinDuplicateHeaders: false,
      setDefaultHeaders: false,
    } as NodeOptions);
    const future = new FutureIncomingResponse(context, timeouts);
    this.#underway += 1;
    node.once("close", () => {
      this.#underway -= 1;
    });
    node.once("error", (error) => this.#complain(destination, error));
    future.follow(node);
    sendHead(node, request, authorityOf(destination), hasBody);
    if (hasBody) request.pipe.connect(new NodeBodyTarget(node, (whole) => announce(node, length ?? whole)));
    else node.end();
    return future;
  }

  #destination(request: OutgoingRequest): Destination & { readonly protocol: "http" | "https" } {
    const scheme = request.scheme()?.tag ?? "HTTPS";
    const authority = parseAuthority(request.authority() ?? "");
    const method = methodText(request.method());
    if (scheme === "other" || authority === undefined) throw failure("HTTP-request-URI-invalid");
    if (method === undefined || method === "CONNECT") throw failure("HTTP-request-method-invalid");
    if ((request.pathWithQuery() ?? "").length > MAX_URI_LENGTH) throw failure("HTTP-request-URI-too-long");
    const protocol = scheme === "HTTPS" ? "https" : "http";
    const port = authority.port ?? (protocol === "https" ? 443 : 80);
    const destination = { protocol, host: authority.host, port, method } as const;
    if (!this.#init.policy.allows(destination)) throw failure("HTTP-request-denied");
    return destination;
  }

  /** Loaded with the first request: most components that serve never ask. */
  #module(protocol: "http" | "https"): {
    readonly module: HttpModule;
    readonly agent: InstanceType<HttpModule["Agent"]>;
  } {
    const loaded = this.#modules.get(protocol);
    if (loaded !== undefined) return loaded;
    const module = process.getBuiltinModule(`node:${protocol}`) as HttpModule;
    const { tls, authorities } = this.#init;
    const agent = new module.Agent({
      ...(protocol === "https"
        ? { secureContext: tls.of(authorities), ALPNProtocols: ["http/1.1"], maxCachedSessions: MAX_SESSIONS }
        : {}),
      keepAlive: true,
      maxSockets: MAX_SOCKETS_PER_HOST,
      maxTotalSockets: MAX_SOCKETS,
      maxFreeSockets: MAX_IDLE_SOCKETS,
      timeout: IDLE_MS,
      scheduling: "lifo",
    });
    const made = { module, agent };
    this.#modules.set(protocol, made);
    return made;
  }

  #complain({ host, port }: Destination, error: Error): void {
    if (httpErrorCode(error).tag !== "TLS-certificate-error") return;
    const text = `picolet: no TLS with ${host} port ${port}: ${this.#reason(errnoOf(error))}\n`;
    if (this.#complaints.has(text) || this.#complaints.size >= MAX_COMPLAINTS) return;
    this.#complaints.add(text);
    this.#init.complain(text);
  }

  #reason(code: string): string {
    if (isCertificateTimeCode(code) && !this.#init.wallIsSet()) {
      return "this node's clock has not been set, so that no certificate can be judged";
    }
    const problem = certificateProblem(code) ?? `its certificate is refused (${code})`;
    return problem === UNTRUSTED ? `${problem}: name the authority in wasm.http.caFile of the node` : problem;
  }
}

const failure = (tag: PlainCode): Failure<HttpErrorCode> => new Failure<HttpErrorCode>({ tag });

const authorityOf = ({ protocol, host, port }: Destination): string => {
  const name = host.includes(":") ? `[${host}]` : host;
  return port === (protocol === "https" ? 443 : 80) ? name : `${name}:${port}`;
};

const target = (request: OutgoingRequest, { host, port, method }: Destination) => {
  const path = request.pathWithQuery() ?? "/";
  // RFC 6066, 3: a name without the dot at its end, and no address. Certificates are judged by the same.
  const servername = parseAddress(host) === undefined ? host.replace(/\.$/, "") : "";
  return { host, port, method, servername, path: path.startsWith("/") || path === "*" ? path : `/${path}` };
};

function sendHead(node: ClientRequest, { fields }: OutgoingRequest, host: string, hasBody: boolean): void {
  node.setHeader("Host", host);
  const byName = new Map<string, string[]>();
  for (const [name, text] of fields.pairs()) {
    byName.set(name.toLowerCase(), [...(byName.get(name.toLowerCase()) ?? []), text]);
  }
  if (!hasBody) byName.delete("content-length");
  for (const [name, values] of byName) node.setHeader(name, name === "content-length" ? (values[0] as string) : values);
}

function announce(node: ClientRequest, length: number | undefined): void {
  if (length !== undefined) node.setHeader("Content-Length", length);
  else node.setHeader("Transfer-Encoding", "chunked");
}

interface Timeouts {
  readonly connectMs: number;
  readonly firstByteMs: number;
  readonly betweenBytesMs: number;
}

const timeoutsOf = (options: RequestOptions | undefined): Timeouts => ({
  connectMs: milliseconds(options?.connectTimeout(), CONNECT_TIMEOUT_MS),
  firstByteMs: milliseconds(options?.firstByteTimeout(), FIRST_BYTE_TIMEOUT_MS),
  betweenBytesMs: milliseconds(options?.betweenBytesTimeout(), BETWEEN_BYTES_TIMEOUT_MS),
});

/** @returns the event before which a request cannot be sent; undefined on a connection that has carried others */
function awaitedEvent(socket: Socket, protocol: string): "connect" | "secureConnect" | undefined {
  if (protocol === "https:") return (socket as TLSSocket).authorized ? undefined : "secureConnect";
  return socket.connecting ? "connect" : undefined;
}

/** Keeps the addresses that the policy allows, so that a name that resolves to the node, or changes, leads nowhere. */
function guardedLookup(policy: NetworkPolicy, destination: Destination): LookupFunction {
  return (hostname, options, done) => {
    const { lookup } = process.getBuiltinModule("node:dns");
    lookup(hostname, { ...options, all: true }, (error, found) => {
      if (error !== null) {
        done(error, []);
        return;
      }
      const allowed = found.filter(({ address }) => policy.allowsResolved(destination, address));
      if (allowed.length === 0) done(new HttpError({ tag: "destination-IP-prohibited" }), []);
      else if (options.all === true) done(null, allowed);
      else done(null, allowed[0]?.address ?? "", allowed[0]?.family);
    });
  };
}

export class FutureIncomingResponse extends HostResource {
  readonly #context: HttpContext;
  readonly #timeouts: Timeouts;
  readonly #wakes = new WakeListeners();
  #node: ClientRequest | undefined;
  #outcome: IncomingMessage | HttpErrorCode | undefined;
  #taken = false;

  constructor(context: HttpContext, timeouts: Timeouts) {
    super(context.pools.futureResponses);
    this.#context = context;
    this.#timeouts = timeouts;
  }

  follow(node: ClientRequest): void {
    this.#node = node;
    let timer: NodeJS.Timeout | undefined;
    const within = (milliseconds: number, tag: "connection-timeout" | "HTTP-response-timeout"): void => {
      clearTimeout(timer);
      timer = setTimeout(() => node.destroy(new HttpError({ tag })), milliseconds);
    };
    const { connectMs, firstByteMs } = this.#timeouts;
    within(connectMs, "connection-timeout");
    node.once("socket", (socket) => {
      const connected = (): void => within(firstByteMs, "HTTP-response-timeout");
      const awaited = awaitedEvent(socket, node.protocol);
      if (awaited === undefined) connected();
      else socket.once(awaited, connected);
    });
    node.once("response", (message) => {
      clearTimeout(timer);
      joinSmallPieces(message);
      this.#resolve(message);
    });
    node.on("error", (error) => {
      clearTimeout(timer);
      this.#resolve(httpErrorCode(error));
    });
    node.once("close", () => {
      clearTimeout(timer);
      this.#resolve({ tag: "HTTP-response-incomplete" });
    });
  }

  get readiness(): Readiness {
    return { ready: () => this.#outcome !== undefined, onReady: (wake) => this.#wakes.add(wake) };
  }

  subscribe(): Pollable {
    return new Pollable(this.#context.handles.pollables, this.#context.poller, this.readiness);
  }

  /** Undefined: not yet. The outer error: the response was taken before. */
  get(): unknown {
    const outcome = this.#outcome;
    if (outcome === undefined) return undefined;
    if (this.#taken) return { tag: "err", val: undefined };
    this.#taken = true;
    if ("tag" in outcome) return { tag: "ok", val: { tag: "err", val: outcome } };
    const pipe = new IncomingPipe(this.#context, new NodeBodySource(outcome, this.#timeouts.betweenBytesMs), {
      maxBytes: MAX_BODY_BYTES,
      tooLarge: { tag: "HTTP-response-body-size", val: undefined },
    });
    const fields = FieldList.received(outcome.rawHeaders);
    const response = new IncomingResponse(this.#context, outcome.statusCode ?? 0, fields, pipe);
    return { tag: "ok", val: { tag: "ok", val: response } };
  }

  /** No one waits for the answer any more. */
  protected override closed(): void {
    if (!this.#taken) this.#node?.destroy();
  }

  #resolve(outcome: IncomingMessage | HttpErrorCode): void {
    if (this.#outcome !== undefined) return;
    this.#outcome = outcome;
    this.#wakes.all();
  }
}
