/**
 * One text from a web server, as Go's client, which the kubelet has, fetches it: redirects, and all of it within a
 * limit.
 */
import { isUtf8 } from "node:buffer";
import { existsSync, readFileSync } from "node:fs";
import type { Agent, IncomingMessage, RequestOptions } from "node:http";
import type { SecureContext } from "node:tls";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { isCancelled, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { VERSION } from "@picolet/protocol/version.ts";

/** As of a manifest's file. The kubelet takes 10 MB; 110 pods of 4 KB are half of this. */
export const MAX_TEXT_BYTES = MEBIBYTE;
/** The kubelet waits 10 s; as much as that limit over a line of 20 KB a second takes 50. */
const TIME_LIMIT = seconds(60);
/** Go's. */
const MAX_REDIRECTS = 10;
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
/** Headers that Go does not send to another host after a redirect. */
const SENSITIVE: ReadonlySet<string> = new Set(["authorization", "www-authenticate", "cookie", "cookie2"]);

/** Files of distributions with the system's trusted authorities; the first existing one counts. */
export const SYSTEM_CA_FILES: readonly string[] = [
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/ca-bundle.pem",
  "/etc/pki/tls/cacert.pem",
  "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
  "/etc/ssl/cert.pem",
];

type Headers = Readonly<Record<string, readonly string[]>>;

export interface FetchRequest {
  readonly url: URL;
  readonly headers: Headers;
  /** The ETag of the known answer; "" without one. */
  readonly etag: string;
  readonly lastModified: string;
}

export type FetchAnswer =
  /** What is known is still what is there. */
  | { readonly kind: "same" }
  | { readonly kind: "text"; readonly text: string; readonly etag: string; readonly lastModified: string };

export interface HttpFetchInit {
  /** `SYSTEM_CA_FILES` */
  readonly caFiles: readonly string[];
}

/** Keeps one connection open between two fetches, if the server does. */
export class HttpFetch implements Disposable {
  readonly #clock: Clock;
  readonly #init: HttpFetchInit;
  readonly #agents = new Map<string, Agent>();
  #authorities: SecureContext | undefined;

  constructor(components: { readonly clock: Clock }, init: HttpFetchInit) {
    this.#clock = components.clock;
    this.#init = init;
  }

  /** @throws PicoletError `unavailable`, `failed`, `resource_exhausted`, `invalid`, `deadline_exceeded`, `cancelled` */
  async fetch(request: FetchRequest, signal: AbortSignal): Promise<FetchAnswer> {
    const follow = (deadline: AbortSignal): Promise<FetchAnswer> => this.#follow(request, deadline);
    return await withDeadline(this.#clock, TIME_LIMIT, "read it", follow, signal);
  }

  [Symbol.dispose](): void {
    for (const agent of this.#agents.values()) agent.destroy();
  }

  async #follow(request: FetchRequest, signal: AbortSignal): Promise<FetchAnswer> {
    let { url, headers } = request;
    for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects += 1) {
      const response = await this.#ask({ ...request, url, headers }, signal);
      const status = response.statusCode ?? 0;
      const { location } = response.headers;
      if (!REDIRECTS.has(status) || location === undefined) return await answerOf(response, request, signal);
      response.destroy();
      const next = targetOf(location, url);
      if (!isSameSite(url, next)) headers = withoutSensitive(headers);
      url = next;
    }
    throw new PicoletError("failed", `stopped after ${MAX_REDIRECTS} redirects`);
  }

  /** A connection that was kept may have been closed a moment ago: asked once more then. */
  async #ask(request: FetchRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const attempt = await this.#attempt(request, signal);
    if (attempt.kind === "answered") return attempt.response;
    if (!attempt.wasKept || signal.aborted) throw attempt.error;
    const second = await this.#attempt(request, signal);
    if (second.kind === "answered") return second.response;
    throw second.error;
  }

  async #attempt({ url, headers, etag, lastModified }: FetchRequest, signal: AbortSignal): Promise<Attempt> {
    const isSecure = url.protocol === "https:";
    const { request } = isSecure ? await import("node:https") : await import("node:http");
    const options: RequestOptions & { readonly secureContext?: SecureContext } = {
      signal,
      agent: await this.#agent(url),
      headers: {
        "user-agent": `picolet/${VERSION}`,
        "accept-encoding": "identity",
        ...Object.fromEntries(Object.entries(headers).map(([name, values]) => [name, [...values]])),
        ...(etag === "" ? {} : { "if-none-match": etag }),
        ...(lastModified === "" ? {} : { "if-modified-since": lastModified }),
      },
      ...(isSecure ? { secureContext: await this.#trusted() } : {}),
    };
    return await new Promise((resolve, reject) => {
      try {
        const sent = request(url, options);
        sent.on("response", (response) => resolve({ kind: "answered", response }));
        sent.on("error", (error) => {
          const wrapped = toPicoletError(error, "unavailable", `cannot reach ${url.host}`);
          resolve({ kind: "failed", error: wrapped, wasKept: sent.reusedSocket });
        });
        sent.end();
      } catch (error) {
        // A header that cannot be sent.
        reject(toPicoletError(error, "invalid", `cannot ask ${url.host}`));
      }
    });
  }

  async #agent({ protocol }: URL): Promise<Agent> {
    const known = this.#agents.get(protocol);
    if (known !== undefined) return known;
    const module = protocol === "https:" ? await import("node:https") : await import("node:http");
    const agent = new module.Agent({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1 });
    this.#agents.set(protocol, agent);
    return agent;
  }

  /** Parsed once: some 140 authorities take a board 100 ms. */
  async #trusted(): Promise<SecureContext> {
    if (this.#authorities !== undefined) return this.#authorities;
    const file = this.#init.caFiles.find((path) => existsSync(path));
    if (file === undefined) {
      throw new PicoletError("failed", "cannot find the system's certificate authorities (package ca-certificates)");
    }
    const { createSecureContext } = await import("node:tls");
    this.#authorities = createSecureContext({ ca: readFileSync(file) });
    return this.#authorities;
  }
}

type Attempt =
  | { readonly kind: "answered"; readonly response: IncomingMessage }
  | { readonly kind: "failed"; readonly error: PicoletError; readonly wasKept: boolean };

function targetOf(location: string, from: URL): URL {
  const target = URL.parse(location, from.href);
  if (target !== null && (target.protocol === "http:" || target.protocol === "https:")) return target;
  throw new PicoletError("failed", "was redirected to what is no http or https URL");
}

const isSameSite = (from: URL, to: URL): boolean =>
  to.hostname === from.hostname || to.hostname.endsWith(`.${from.hostname}`);

const withoutSensitive = (headers: Headers): Headers =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !SENSITIVE.has(name.toLowerCase())));

async function answerOf(response: IncomingMessage, asked: FetchRequest, signal: AbortSignal): Promise<FetchAnswer> {
  const { statusCode, statusMessage = "", headers } = response;
  const isConditional = asked.etag !== "" || asked.lastModified !== "";
  if (statusCode === 304 && isConditional) {
    await bodyOf(response, signal);
    return { kind: "same" };
  }
  if (statusCode !== 200) {
    response.destroy();
    throw new PicoletError("unavailable", `was answered with ${statusCode} ${statusMessage}`.trimEnd().slice(0, 200));
  }
  const bytes = await bodyOf(response, signal);
  if (!isUtf8(bytes)) throw new PicoletError("invalid", "is no text: pods are YAML or JSON in UTF-8");
  return {
    kind: "text",
    text: bytes.toString("utf8"),
    etag: headers.etag ?? "",
    lastModified: headers["last-modified"] ?? "",
  };
}

async function bodyOf(response: IncomingMessage, signal: AbortSignal): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  try {
    for await (const piece of response as AsyncIterable<Buffer>) {
      length += piece.length;
      if (length > MAX_TEXT_BYTES) {
        throw new PicoletError("resource_exhausted", `Too long: may not be more than ${MAX_TEXT_BYTES} bytes`);
      }
      pieces.push(piece);
    }
  } catch (error) {
    if (error instanceof PicoletError || isCancelled(error) || signal.aborted) throw error;
    throw toPicoletError(error, "unavailable", `the answer was cut short (${errnoOf(error) || "error"})`);
  }
  // The caller aborts its signal once it has its answer, which would close a connection that the pool does not have
  // back yet.
  await new Promise<void>((resolve) => setImmediate(resolve));
  return Buffer.concat(pieces, length);
}
