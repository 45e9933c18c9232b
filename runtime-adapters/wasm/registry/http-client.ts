/** Requests over `undici`, one at a time: redirects, timeouts and limits. Nothing here knows of registries. */

import { readFileSync } from "node:fs";
import { getCACertificates } from "node:tls";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { Agent, type Dispatcher, Pool, ProxyAgent } from "undici";
import type { PullLimits } from "../shared/messages/pull-request.ts";
import { type ProxySettings, proxyFor, type RegistryProxy } from "../shared/oci/proxies.ts";
import { networkFailure, proxyFailure } from "./failures.ts";

export interface HttpRequest {
  readonly method?: "GET" | "POST";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  /** Bounds the whole exchange; undefined: only silence is bounded. */
  readonly timeoutMs?: number | undefined;
  /** The role of the other end in messages, where it is not the registry. */
  readonly role?: string | undefined;
}

export interface HttpResponse {
  readonly status: number;
  readonly body: Dispatcher.ResponseData["body"];
  /** The host that answered in the end, for messages: host and port, and its role. */
  readonly host: string;
  /** True when that is the host of the request, and not one that it redirected to. */
  readonly isAsked: boolean;
  header(name: string): string | undefined;
}

/** Registries redirect once, to where they store blobs. */
const MAX_REDIRECTS = 5;
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
const MAX_HEADER_BYTES = 32_768;

export class HttpClient implements AsyncDisposable {
  readonly #limits: PullLimits;
  readonly #proxies: ProxySettings;
  readonly #ca: readonly string[] | undefined;
  /** By the proxy's URL, "" for the one that asks directly. */
  readonly #dispatchers = new Map<string, Dispatcher>();

  /** @param caFile PEM, trusted beside the machine's own. @throws `invalid` when it cannot be read */
  constructor(limits: PullLimits, caFile: string | undefined, proxies: ProxySettings) {
    this.#limits = limits;
    this.#proxies = proxies;
    this.#ca = caFile === undefined ? undefined : [...getCACertificates("default"), readAuthority(caFile)];
  }

  /**
   * Follows redirects, without the authorization where they lead to another origin, and with a body to none.
   * @throws `unavailable` when no host answers; `failed` for redirects without end, from HTTPS to HTTP, or of a body to
   * another origin
   */
  async send(url: URL, request: HttpRequest, signal: AbortSignal): Promise<HttpResponse> {
    const timeout = request.timeoutMs === undefined ? [] : [AbortSignal.timeout(request.timeoutMs)];
    const joined = joinSignals(signal, ...timeout);
    try {
      const response = await this.#follow(url, request, joined.signal);
      // The signal also ends the reading of the body.
      response.body.once("close", () => joined[Symbol.dispose]());
      return response;
    } catch (error) {
      joined[Symbol.dispose]();
      throw error;
    }
  }

  async #follow(url: URL, request: HttpRequest, signal: AbortSignal): Promise<HttpResponse> {
    let target = url;
    for (let hop = 0; hop <= MAX_REDIRECTS; hop += 1) {
      const isAsked = target.origin === url.origin;
      const response = await this.#exchange(target, request, isAsked, signal);
      const location = response.header("location");
      if (!REDIRECTS.has(response.status) || location === undefined) return response;
      response.body.on("error", ignore("an answer that leads elsewhere has no content")).destroy();
      target = nextTarget(target, location);
      // A body may be an identity token.
      if (request.body !== undefined && target.origin !== url.origin) {
        const message = `${url.host} redirects what is for it alone to ${target.host}`;
        throw new PicoletError("failed", message, { retryable: true });
      }
    }
    throw new PicoletError("failed", `${url.host} redirects more than ${MAX_REDIRECTS} times`, { retryable: true });
  }

  async #exchange(target: URL, request: HttpRequest, isAsked: boolean, signal: AbortSignal): Promise<HttpResponse> {
    const { authorization: _, ...open } = request.headers;
    const proxy = proxyFor(target, this.#proxies);
    const host = request.role === undefined ? target.host : `${target.host}, ${request.role}`;
    try {
      const { statusCode, headers, body } = await this.#dispatcher(proxy).request({
        origin: target.origin,
        path: target.pathname + target.search,
        method: request.method ?? "GET",
        headers: isAsked ? request.headers : open,
        body: request.body ?? null,
        signal,
      });
      return {
        status: statusCode,
        body,
        host,
        isAsked,
        header: (name) => {
          const value = headers[name];
          return Array.isArray(value) ? value.join(", ") : value;
        },
      };
    } catch (error) {
      throw proxy === undefined ? networkFailure(error, host) : proxyFailure(error, host, proxy.name);
    }
  }

  #dispatcher(proxy: RegistryProxy | undefined): Dispatcher {
    const known = this.#dispatchers.get(proxy?.url.href ?? "");
    if (known !== undefined) return known;
    const made = this.#make(proxy);
    this.#dispatchers.set(proxy?.url.href ?? "", made);
    return made;
  }

  #make(proxy: RegistryProxy | undefined): Dispatcher {
    const { connectTimeoutMs: timeout, idleTimeoutMs } = this.#limits;
    const tls = this.#ca === undefined ? {} : { ca: [...this.#ca] };
    const settings = {
      ...{ connections: 1, allowH2: false, maxHeaderSize: MAX_HEADER_BYTES },
      ...{ headersTimeout: idleTimeoutMs, bodyTimeout: idleTimeoutMs },
    };
    if (proxy === undefined) return new Agent({ ...settings, connect: { timeout, ...tls } });
    return new ProxyAgent({
      ...settings,
      uri: proxy.url.href,
      // HTTPS goes through a tunnel, with all credentials; plain HTTP is sent to the proxy, as all clients do.
      proxyTunnel: false,
      connectTimeout: timeout,
      requestTls: { timeout, ...tls },
      // Bounds the tunnel's own request: a proxy that does not answer must not hold up the pull for five minutes.
      clientFactory: (origin, options) => new Pool(origin, { ...options, headersTimeout: timeout }),
    });
  }

  /** The whole of an answer. @throws `resource_exhausted` when it has more than `limit` bytes */
  async read(response: HttpResponse, limit: number, what: string): Promise<Buffer> {
    const tooLarge = (): PicoletError =>
      new PicoletError("resource_exhausted", `${what} is larger than ${limit} bytes`);
    const chunks: Buffer[] = [];
    let size = 0;
    try {
      if (Number(response.header("content-length") ?? 0) > limit) throw tooLarge();
      for await (const chunk of response.body as AsyncIterable<Buffer>) {
        size += chunk.length;
        if (size > limit) throw tooLarge();
        chunks.push(chunk);
      }
      return Buffer.concat(chunks, size);
    } catch (error) {
      response.body.on("error", ignore("the first error is reported")).destroy();
      throw networkFailure(error, response.host);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#dispatchers.values()].map((each) => each.destroy()));
  }

  get idleTimeoutMs(): number {
    return this.#limits.idleTimeoutMs;
  }
}

function nextTarget(from: URL, location: string): URL {
  if (!URL.canParse(location, from.href)) {
    throw new PicoletError("failed", `${from.host} redirects to what is no URL`, { retryable: true });
  }
  const target = new URL(location, from);
  const isAllowed = target.protocol === "https:" || (target.protocol === "http:" && from.protocol === "http:");
  if (isAllowed) return target;
  const where = `${target.protocol}//${target.host}`;
  throw new PicoletError("failed", `${from.host} redirects to ${where}, which is not encrypted`, { retryable: true });
}

function readAuthority(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new PicoletError("invalid", `cannot read the authority ${path} of wasm.registries`, { cause });
  }
}
