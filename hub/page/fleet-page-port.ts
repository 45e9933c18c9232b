/** The page of the fleet: its port, its static files, its data, and the way into a board's page. */
import { readFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import { join } from "node:path";
import { TLSSocket } from "node:tls";
import { gzip } from "node:zlib";
import type { FleetNodes } from "@picolet/hub-core/fleet.ts";
import type { ConnectionGate } from "@picolet/kubelet-api/fairness/connection-gate.ts";
import { onceAny } from "@picolet/kubelet-api/pipes/byte-pipe.ts";
import { aborted, type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { nodeNameProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { PAGE_DATA_PATH, PAGE_PATH } from "@picolet/protocol/page/board-data.ts";
import type { FleetChange, FleetRollouts } from "@picolet/protocol/page/fleet-data.ts";
import { isOwnSite, PAGE_HEADERS, pageFileOf } from "@picolet/protocol/page/page-headers.ts";
import { hasBody, type PodAction, podActionOf, READS_ONLY } from "@picolet/protocol/page/pod-actions.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { FleetIndex } from "./fleet-index.ts";

/** A right that a user must have. */
export type PageQuestion =
  | { readonly kind: "fleet" }
  | { readonly kind: "rollouts" }
  | { readonly kind: "board"; readonly node: string }
  /** To restart and delete pods of a namespace, beside the right to read the board's page. */
  | { readonly kind: "pods"; readonly namespace: string };

/** A request of a user to a board. */
export type BoardRequest =
  /** @param url from `/page/data/` on */
  | { readonly kind: "read"; readonly url: string }
  /** The user has the rights. */
  | { readonly kind: "change"; readonly action: PodAction; readonly user: string };

export interface FleetPageComponents {
  readonly nodes: FleetNodes;
  /** PEM. */
  readonly tls: Watch<{ readonly certificateChain: string; readonly privateKey: string }>;
  /**
   * @returns the user's name
   * @throws `permission_denied`, with the reason `Unauthorized` for an unknown user
   */
  readonly authorize: (request: IncomingMessage, question: PageQuestion, signal: AbortSignal) => Promise<string>;
  readonly rollouts: (signal: AbortSignal) => Promise<FleetRollouts>;
  /** Passes a request on to a board, and writes its answer. */
  readonly askBoard: (
    node: string,
    request: BoardRequest,
    response: ServerResponse,
    signal: AbortSignal,
  ) => Promise<void>;
  readonly statusOf: (error: unknown) => { readonly status: number; readonly message: string };
  readonly gate: ConnectionGate;
  readonly clock: Clock;
  readonly log: Log;
}

export interface FleetPageInit {
  readonly host: string;
  readonly port: number;
  readonly version: string;
  /** The folder of the static files. */
  readonly folder: string;
}

/** Administrators with some tabs each. Of one more, the user or network that has most gives way. */
export const PAGE_PORT_LIMITS = { name: "fleet's page", maxConnections: 512, maxPending: 256 };
/** Followed changes, logs and events: of one user, and of all. A further one gets 429. */
export const MAX_STREAMS_PER_USER = 16;
export const MAX_STREAMS = 256;
/** Requests whose user is being asked for: each may cost the API server two reviews. */
const MAX_REVIEWS = 32;
/** A browser's headers with a token of a service account. */
const MAX_HEADER_BYTES = 16 * KIBIBYTE;
const HANDSHAKE_TIMEOUT_MS = 10_000;
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_TIMEOUT_MS = 30_000;
/** A client that takes nothing for so long is disconnected. */
const UNREAD_TIMEOUT_MS = 30_000;
/** Changes are gathered for so long: a fleet of 10,000 that returns is some lines. */
const CHANGE_INTERVAL = seconds(1);
/** Boards in one line of changes: 60 KB. */
const BOARDS_PER_LINE = 500;
/** A stream without changes shows that it lives, so that a proxy keeps it. */
const QUIET_TURNS = 20;
/** The index is dropped after so long without a request. */
const IDLE = seconds(120);
/** Rollouts are read from the API server this often at most, for all visitors. */
const ROLLOUTS_AGE_MS = 5000;
const MAX_URL_LENGTH = 4096;
/** A person confirms each restart and each deletion. More of one user get 429. */
export const CHANGE_RATE = { burst: 10, perSecond: 0.2 };
/** A board answers before the pod's containers have ended; one that says nothing keeps its user no longer waiting. */
const CHANGE_TIMEOUT = seconds(30);
const MIN_GZIP_BYTES = 2048;
const JSON_TYPE = "application/json";

export class FleetPagePort implements Component {
  readonly name = "fleet's page";
  readonly #components: FleetPageComponents;
  readonly #init: FleetPageInit;
  readonly #server: Server;
  readonly #stop: JoinedSignal = joinSignals();
  readonly #streams = new Map<string, number>();
  readonly #changeLimits: RateLimits;
  #reviews = 0;
  #index: Promise<FleetIndex> | undefined;
  #usedAt = 0;
  #epochs = 0;
  #rollouts: { readonly at: number; readonly found: Promise<FleetRollouts> } | undefined;

  constructor(components: FleetPageComponents, init: FleetPageInit) {
    this.#components = components;
    this.#init = init;
    this.#changeLimits = new RateLimits(components, CHANGE_RATE);
    this.#server = createServer({
      ...tlsOf(components),
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
    });
    components.gate.guard(this.#server);
    this.#server.on("request", (request, response) => void this.#serve(request, response));
    this.#server.on("clientError", (_, socket) => socket.destroy());
  }

  /** @returns the port. @throws `unavailable` */
  async listen(): Promise<number> {
    const { host, port } = this.#init;
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", (cause) =>
        reject(new PicoletError("unavailable", `cannot listen on ${host}:${port}`, { cause })),
      );
      this.#server.listen({ host, port }, resolve);
    });
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new PicoletError("internal", "the socket has no port");
    this.#components.log.info("listens", { part: this.name, host, port: address.port });
    return address.port;
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal);
    try {
      await Promise.race([this.#followTls(life.signal), this.#dropWhenIdle(life.signal), aborted(signal)]);
    } finally {
      life.abort();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#server.closeAllConnections();
    (await this.#index)?.[Symbol.dispose]();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async #followTls(signal: AbortSignal): Promise<void> {
    for await (const _ of this.#components.tls.changes(signal)) this.#server.setSecureContext(tlsOf(this.#components));
  }

  /** Nothing is kept of the fleet while no one looks. */
  async #dropWhenIdle(signal: AbortSignal): Promise<void> {
    const { clock } = this.#components;
    for (;;) {
      await clock.sleep(IDLE, signal);
      const index = await this.#index;
      if (index === undefined || index.viewers > 0 || clock.monotonic() - this.#usedAt < IDLE) continue;
      this.#index = undefined;
      index[Symbol.dispose]();
    }
  }

  #fleet(): Promise<FleetIndex> {
    const { nodes, clock } = this.#components;
    this.#usedAt = clock.monotonic();
    if (this.#index === undefined) {
      this.#epochs += 1;
      const epoch = `${clock.wall().getTime().toString(36)}-${this.#epochs}`;
      this.#index = FleetIndex.open(nodes, epoch);
    }
    return this.#index;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    using life = joinSignals(this.#stop.signal);
    response.once("close", () => life.abort());
    response.on("error", () => life.abort());
    response.setTimeout(UNREAD_TIMEOUT_MS, () => {
      if (response.writableNeedDrain || response.writableEnded) response.destroy();
    });
    for (const [name, value] of Object.entries(PAGE_HEADERS)) response.setHeader(name, value);
    try {
      await this.#answer(request, response, life.signal);
    } catch (error) {
      if (response.headersSent || isCancelled(error)) {
        response.destroy();
        return;
      }
      const { status, message } = this.#components.statusOf(error);
      if (status >= 500) this.#components.log.warn("cannot answer the fleet's page", { error: describeError(error) });
      response.writeHead(status, { "content-type": JSON_TYPE });
      response.end(`${JSON.stringify({ error: { message } })}\n`);
    }
  }

  async #answer(request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const { method, url = "/", headers } = request;
    if (url.length > MAX_URL_LENGTH) throw new PicoletError("invalid", "the path is too long");
    if (url === "/" || url === "/page") {
      response.writeHead(302, { location: PAGE_PATH });
      response.end();
      return;
    }
    const isReading = method === "GET" || method === "HEAD";
    if (isReading && !url.startsWith(PAGE_DATA_PATH)) return await this.#file(url, response);
    const site = headers["sec-fetch-site"];
    if (!isOwnSite(typeof site === "string" ? site : undefined))
      throw new PicoletError("permission_denied", "another site may not read this page");
    if (!isReading) return await this.#changePod(request, response, signal);
    await this.#data(url.slice(PAGE_DATA_PATH.length), request, response, signal);
  }

  async #changePod(request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const { method, url = "", headers } = request;
    const [, node = "", path = ""] = CHANGE_PATH.exec(url) ?? [];
    const action = podActionOf(method, path);
    if (action === undefined || nodeNameProblems(node).length > 0)
      throw new PicoletError("unimplemented", READS_ONLY, { reason: "MethodNotAllowed" });
    if (hasBody(headers)) throw new PicoletError("invalid", "a restart or deletion of a pod has no body");
    await this.#authorize(request, { kind: "board", node }, signal);
    const user = await this.#authorize(request, { kind: "pods", namespace: action.namespace }, signal);
    const waitMs = this.#changeLimits.take(user);
    if (waitMs > 0) throw new PicoletError("resource_exhausted", `too many pods are changed: again in ${waitMs} ms`);
    const { clock, log, askBoard } = this.#components;
    log.info("passes a change of a pod on to its board", { node, user, ...action });
    const ask = (deadline: AbortSignal): Promise<void> =>
      askBoard(node, { kind: "change", action, user }, response, deadline);
    await this.#stream(user, () => withDeadline(clock, CHANGE_TIMEOUT, "change the pod", ask, signal));
  }

  async #file(url: string, response: ServerResponse): Promise<void> {
    const [path = ""] = url.split("?", 1);
    const found = path.startsWith(PAGE_PATH) ? pageFileOf(path.slice(PAGE_PATH.length)) : undefined;
    if (found === undefined) throw new PicoletError("not_found", "there is no such page");
    const content = await readFile(join(this.#init.folder, found.file));
    response.writeHead(200, { "content-type": found.contentType, "content-length": content.length });
    response.end(content);
  }

  async #data(rest: string, request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const [path = "", search = ""] = rest.split("?", 2);
    const [, name, below] = /^boards\/([^/]{1,300})\/(.+)$/.exec(path) ?? [];
    if (name !== undefined && below !== undefined) {
      const node = decoded(name);
      const user = await this.#authorize(request, { kind: "board", node }, signal);
      const url = `${PAGE_DATA_PATH}${below}${search === "" ? "" : `?${search}`}`;
      return await this.#stream(user, () => this.#components.askBoard(node, { kind: "read", url }, response, signal));
    }
    switch (path) {
      case "overview":
        await this.#authorize(request, { kind: "fleet" }, signal);
        return await sendJson((await this.#fleet()).overview(this.#init.version), request, response);
      case "boards":
        await this.#authorize(request, { kind: "fleet" }, signal);
        return await sendJson((await this.#fleet()).boards(), request, response);
      case "rollouts":
        await this.#authorize(request, { kind: "rollouts" }, signal);
        return await sendJson(await this.#readRollouts(), request, response);
      case "changes": {
        const user = await this.#authorize(request, { kind: "fleet" }, signal);
        const since = new URLSearchParams(search).get("since") ?? "";
        return await this.#stream(user, () => this.#changes(since, response, signal));
      }
      default:
        throw new PicoletError("not_found", "the page has no such data");
    }
  }

  async #authorize(request: IncomingMessage, question: PageQuestion, signal: AbortSignal): Promise<string> {
    if (this.#reviews >= MAX_REVIEWS) throw new PicoletError("resource_exhausted", "too many users are being checked");
    this.#reviews += 1;
    try {
      const user = await this.#components.authorize(request, question, signal);
      if (request.socket instanceof TLSSocket) this.#components.gate.admit(request.socket, user);
      return user;
    } finally {
      this.#reviews -= 1;
    }
  }

  async #stream(user: string, answer: () => Promise<void>): Promise<void> {
    const own = this.#streams.get(user) ?? 0;
    const all = [...this.#streams.values()].reduce((sum, count) => sum + count, 0);
    if (own >= MAX_STREAMS_PER_USER || all >= MAX_STREAMS)
      throw new PicoletError(
        "resource_exhausted",
        `${own >= MAX_STREAMS_PER_USER ? own : all} streams are open already`,
      );
    this.#streams.set(user, own + 1);
    try {
      await answer();
    } finally {
      const left = (this.#streams.get(user) ?? 1) - 1;
      if (left === 0) this.#streams.delete(user);
      else this.#streams.set(user, left);
    }
  }

  #readRollouts(): Promise<FleetRollouts> {
    const { clock, rollouts } = this.#components;
    const now = clock.monotonic();
    if (this.#rollouts === undefined || now - this.#rollouts.at > ROLLOUTS_AGE_MS) {
      const found = rollouts(this.#stop.signal);
      this.#rollouts = { at: now, found };
      found.catch(() => {
        this.#rollouts = undefined;
      });
    }
    return this.#rollouts.found;
  }

  /** A reader that is slow gets each board's latest state, however often it has changed. */
  async #changes(since: string, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const index = await this.#fleet();
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    const missed = index.changedSince(since);
    if (missed === undefined) {
      response.end(lineOf({ reset: true }));
      return;
    }
    const changed = new Set(missed);
    using _ = index.follow((name) => changed.add(name));
    response.flushHeaders();
    for (let quiet = 0; !signal.aborted; quiet += 1) {
      this.#usedAt = this.#components.clock.monotonic();
      const names = [...changed].slice(0, BOARDS_PER_LINE);
      for (const name of names) changed.delete(name);
      if (names.length > 0 || quiet >= QUIET_TURNS) {
        quiet = 0;
        const boards = names.flatMap((name) => index.board(name) ?? []);
        const gone = names.filter((name) => index.board(name) === undefined);
        if (!response.write(lineOf({ boards, gone }))) await onceAny(response, ["drain", "close"], signal);
      }
      if (changed.size === 0) await this.#components.clock.sleep(CHANGE_INTERVAL, signal);
    }
  }
}

/** The board's name and what is asked of it. A board's answers never become part of an address: names are strict. */
const CHANGE_PATH = new RegExp(`^${PAGE_DATA_PATH}boards/([^/]{1,253})/(.+)$`);

const lineOf = (change: FleetChange): string => `${JSON.stringify(change)}\n`;

const tlsOf = ({ tls }: Pick<FleetPageComponents, "tls">) => ({
  key: tls.current.privateKey,
  cert: tls.current.certificateChain,
});

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new PicoletError("invalid", "the path is not encoded properly");
  }
}

async function sendJson(body: unknown, { headers }: IncomingMessage, response: ServerResponse): Promise<void> {
  const plain = Buffer.from(`${JSON.stringify(body)}\n`);
  const isPacked = plain.length >= MIN_GZIP_BYTES && /\bgzip\b/.test(headers["accept-encoding"] ?? "");
  const content = isPacked ? await packed(plain) : plain;
  response.writeHead(200, {
    ...{ "content-type": JSON_TYPE, "content-length": content.length, vary: "accept-encoding" },
    ...(isPacked ? { "content-encoding": "gzip" } : {}),
  });
  response.end(content);
}

/** Fast rather than small: a list of 10,000 boards takes 2 ms. */
const packed = (plain: Buffer): Promise<Buffer> =>
  new Promise((resolve, reject) =>
    gzip(plain, { level: 1 }, (error, out) => (error === null ? resolve(out) : reject(error))),
  );
