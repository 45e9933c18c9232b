import type { IncomingHttpHeaders, IncomingMessage, OutgoingHttpHeaders } from "node:http";
import { Agent, request as httpsRequest, type RequestOptions } from "node:https";
import { type Duplex, duplexPair, Readable } from "node:stream";
import type {
  KubeletConnector,
  KubeletRequest,
  KubeletResponse,
  KubeletTarget,
  KubeletUpgrade,
} from "@picolet/hub-core/kubelet-connector.ts";
import { joinPipes, SocketPipe, type WebSocketPipe } from "@picolet/kubelet-api/pipes/byte-pipe.ts";
import { readResponseHead } from "@picolet/kubelet-api/pipes/response-head.ts";
import { acceptWebSocket, offeredProtocols } from "@picolet/kubelet-api/pipes/web-socket-server.ts";
import { kubeStatus } from "@picolet/kubelet-api/serving/kube-status.ts";
import { commandStreams } from "@picolet/kubelet-api/serving/kubelet-path.ts";
import { SPDY_COMMAND_PROTOCOLS } from "@picolet/kubelet-api/streaming/spdy-command.ts";
import { translateCommand } from "@picolet/kubelet-api/streaming/translate-command.ts";
import { TRANSLATED_PROTOCOL } from "@picolet/kubelet-api/streaming/web-socket-command.ts";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { ignore, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { KubeletTargets } from "./kubelet-targets.ts";

/** All PEM. */
export interface KubeletClientTls {
  /** With which an API server shows kubelets who it is. */
  readonly certificateChain: string;
  readonly privateKey: string;
  /** CAs, one of which must have issued a kubelet's serving certificate. */
  readonly kubeletCa: string;
}

/**
 * From the request to the answer's head, as a real API server gives a kubelet. A log that is followed answers at once.
 */
const ANSWER_TIMEOUT_MS = 60_000;
/** Idle connections to one kubelet. */
const MAX_IDLE_PER_NODE = 2;
/** `kubectl port-forward` from 1.31 on: SPDY inside a WebSocket, for proxies that let only those through. */
const TUNNEL_PREFIX = "SPDY/3.1+";
/** Headers of one connection, not of a request. */
const HOP_HEADERS: ReadonlySet<string> = new Set([
  "host",
  "connection",
  "keep-alive",
  "transfer-encoding",
  "authorization",
]);

type Dialled =
  | { readonly kind: "upgraded"; readonly headers: IncomingHttpHeaders; readonly socket: Duplex }
  | ({ readonly kind: "refused" } & KubeletResponse);

/**
 * How an API server of ours reaches kubelets, and what a real one translates on the way: kubelets and runtimes speak
 * SPDY, newer clients a WebSocket with `v5.channel.k8s.io`, or SPDY inside a WebSocket.
 */
export class KubeletDialer implements KubeletConnector, Disposable {
  readonly #clock: Clock;
  readonly #tls: Watch<KubeletClientTls>;
  readonly #targets: KubeletTargets;
  readonly #agent = new Agent({ keepAlive: true, maxFreeSockets: MAX_IDLE_PER_NODE });

  constructor(components: {
    readonly clock: Clock;
    readonly tls: Watch<KubeletClientTls>;
    readonly targets: KubeletTargets;
  }) {
    this.#clock = components.clock;
    this.#tls = components.tls;
    this.#targets = components.targets;
  }

  async request(target: KubeletTarget, request: KubeletRequest, signal: AbortSignal): Promise<KubeletResponse> {
    const response = await this.#request(target, request, signal);
    // Other pages are passed on unchanged.
    const isLog = request.path.startsWith("/containerLogs/");
    return isLog && isRefused(response) ? await statusAnswer(response) : response;
  }

  async upgrade(target: KubeletTarget, request: KubeletRequest, signal: AbortSignal): Promise<KubeletUpgrade> {
    const upgrade = await this.#upgrade(target, request, signal);
    return upgrade.kind === "refused" ? { kind: "refused", ...(await statusAnswer(upgrade)) } : upgrade;
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }

  #request(target: KubeletTarget, request: KubeletRequest, signal: AbortSignal): Promise<KubeletResponse> {
    const { method, path, headers, body } = request;
    return new Promise((resolve, reject) => {
      const outgoing = httpsRequest({
        ...this.#options(target),
        agent: this.#agent,
        method,
        path,
        headers: endToEnd(headers),
        signal,
      });
      outgoing.setTimeout(ANSWER_TIMEOUT_MS, () => outgoing.destroy(new Error("no answer")));
      outgoing.on("error", (error) => reject(unreachable(target, error, signal)));
      outgoing.on("response", (response) => {
        outgoing.setTimeout(0);
        resolve(responseOf(response));
      });
      if (body === undefined) outgoing.end();
      else body.pipe(outgoing);
    });
  }

  async #upgrade(target: KubeletTarget, request: KubeletRequest, signal: AbortSignal): Promise<KubeletUpgrade> {
    const offered = offeredProtocols({ headers: request.headers as IncomingHttpHeaders });
    const tunnelled = offered
      .filter((each) => each.startsWith(TUNNEL_PREFIX))
      .map((each) => each.slice(TUNNEL_PREFIX.length));
    if (tunnelled.length > 0) return await this.#tunnel(target, request, tunnelled, signal);
    if (offered.includes(TRANSLATED_PROTOCOL)) return await this.#translate(target, request, signal);
    const dialled = await this.#dial(target, request.method, request.path, upgradeHeaders(request.headers), signal);
    if (dialled.kind === "refused") return dialled;
    return { kind: "upgraded", headers: dialled.headers, connection: dialled.socket };
  }

  /** SPDY inside a WebSocket: unpacked, and passed on unread. */
  async #tunnel(
    target: KubeletTarget,
    request: KubeletRequest,
    protocols: readonly string[],
    signal: AbortSignal,
  ): Promise<KubeletUpgrade> {
    const dialled = await this.#dialSpdy(target, request.path, protocols, signal);
    if (dialled.kind === "refused") return dialled;
    const protocol = String(dialled.headers["x-stream-protocol-version"] ?? protocols[0]);
    return await this.#asWebSocket(request, `${TUNNEL_PREFIX}${protocol}`, dialled.socket, signal, async (front) => {
      await joinPipes({ clock: this.#clock }, front, new SocketPipe(dialled.socket), signal);
    });
  }

  async #translate(target: KubeletTarget, request: KubeletRequest, signal: AbortSignal): Promise<KubeletUpgrade> {
    const query = URL.parse(request.path, "http://node")?.searchParams ?? new URLSearchParams();
    const streams = commandStreams(query);
    const dialled = await this.#dialSpdy(target, request.path, SPDY_COMMAND_PROTOCOLS, signal);
    if (dialled.kind === "refused") return dialled;
    const protocol = String(dialled.headers["x-stream-protocol-version"] ?? "channel.k8s.io");
    return await this.#asWebSocket(request, TRANSLATED_PROTOCOL, dialled.socket, signal, async (pipe) => {
      const back = new SocketPipe(dialled.socket);
      await translateCommand({ clock: this.#clock }, pipe, back, { protocol, streams }, signal);
    });
  }

  /** @param session what to do with the client's end, in the background */
  async #asWebSocket(
    request: KubeletRequest,
    protocol: string,
    socket: Duplex,
    signal: AbortSignal,
    session: (front: WebSocketPipe) => Promise<void>,
  ): Promise<KubeletUpgrade> {
    const [near, far] = duplexPair();
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const)
      one.once("close", () => other.destroy());
    for (const side of [near, far]) side.on("error", ignore("`close` follows, and ends the other side"));
    const accepting = acceptWebSocket(
      { method: "GET", url: request.path, headers: request.headers } as IncomingMessage,
      far,
      Buffer.alloc(0),
      protocol,
    );
    const { status, headers, rest } = await readResponseHead(new SocketPipe(near), signal);
    const front = await accepting;
    if (rest.length > 0) near.unshift(rest);
    if (front === undefined) {
      socket.destroy();
      return { kind: "refused", status, headers, body: near };
    }
    session(front).catch(() => {
      socket.destroy();
      near.destroy();
    });
    return { kind: "upgraded", headers, connection: near };
  }

  #dialSpdy(target: KubeletTarget, path: string, protocols: readonly string[], signal: AbortSignal): Promise<Dialled> {
    const headers = { upgrade: "SPDY/3.1", "x-stream-protocol-version": [...protocols] };
    return this.#dial(target, "POST", path, headers, signal);
  }

  #dial(
    target: KubeletTarget,
    method: string,
    path: string,
    headers: OutgoingHttpHeaders,
    signal: AbortSignal,
  ): Promise<Dialled> {
    return new Promise((resolve, reject) => {
      const options = { ...this.#options(target), agent: false as const, method, path, signal };
      const outgoing = httpsRequest({ ...options, headers: { ...headers, connection: "Upgrade" } });
      outgoing.setTimeout(ANSWER_TIMEOUT_MS, () => outgoing.destroy(new Error("no answer")));
      outgoing.on("error", (error) => reject(unreachable(target, error, signal)));
      outgoing.on("response", (response) => {
        outgoing.setTimeout(0);
        resolve({ kind: "refused", ...responseOf(response) });
      });
      outgoing.on("upgrade", (response, socket, head) => {
        socket.setTimeout(0);
        socket.on("error", ignore("`close` follows, which its user waits for"));
        if (head.length > 0) socket.unshift(head);
        resolve({ kind: "upgraded", headers: response.headers, socket });
      });
      outgoing.end();
    });
  }

  /** @throws as `KubeletTargets.endpointOf` */
  #options(target: KubeletTarget): RequestOptions {
    const { certificateChain, privateKey, kubeletCa } = this.#tls.current;
    return { ...this.#targets.endpointOf(target), cert: certificateChain, key: privateKey, ca: kubeletCa };
  }
}

function endToEnd(headers: OutgoingHttpHeaders): OutgoingHttpHeaders {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !HOP_HEADERS.has(name.toLowerCase())));
}

const UPGRADE_HEADER = /^(upgrade|sec-websocket-.*|x-stream-protocol-version)$/i;

function upgradeHeaders(headers: OutgoingHttpHeaders): OutgoingHttpHeaders {
  const kept: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(headers)) {
    if (!UPGRADE_HEADER.test(name) || value === undefined) continue;
    // Several values of one header come joined; runtimes expect a line each.
    const isList = name.toLowerCase() === "x-stream-protocol-version";
    kept[name] = isList
      ? String(value)
          .split(",")
          .map((each) => each.trim())
      : value;
  }
  return kept;
}

const responseOf = (response: IncomingMessage): KubeletResponse => {
  return { status: response.statusCode ?? 502, headers: response.headers, body: response };
};

function unreachable({ node }: KubeletTarget, error: Error, signal: AbortSignal): PicoletError {
  if (signal.aborted) return cancelled("the request to a kubelet");
  // Its name led to addresses that must not be dialed.
  if (isPicoletError(error)) return error;
  return new PicoletError("unavailable", `cannot reach the kubelet of node ${node}`, { cause: error, retryable: true });
}

/** A kubelet says what is wrong in a sentence; of a longer text the rest is dropped. */
const MAX_TEXT_BYTES = 16 * KIBIBYTE;

const isRefused = ({ status }: Pick<KubeletResponse, "status">): boolean => status >= 400;

/** Makes a kubelet's refusal, which is text, a Kubernetes Status as API servers make it. */
async function statusAnswer({ status, body }: KubeletResponse): Promise<KubeletResponse> {
  const text = await readText(body);
  const answer = isStatus(text) ? text : JSON.stringify(kubeStatus(status, text.trim()));
  const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(answer) };
  return { status, headers, body: Readable.from([Buffer.from(answer)]) };
}

async function readText(body: Readable): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const piece of body as AsyncIterable<Buffer>) {
      bytes += piece.length;
      if (bytes > MAX_TEXT_BYTES) break;
      pieces.push(piece);
    }
  } catch {
    ignore("the part that arrived is enough");
  }
  return Buffer.concat(pieces).toString("utf8");
}

function isStatus(text: string): boolean {
  if (!text.startsWith("{")) return false;
  try {
    return (JSON.parse(text) as { readonly kind?: unknown }).kind === "Status";
  } catch {
    return false;
  }
}
