/** HTTPS to one API server: pooled connections, credentials kept fresh, deadlines, a rate limit, 429 obeyed. */

import { createSecureContext } from "node:tls";
import { cancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { type Jitter, jittered } from "@picolet/protocol/async/backoff.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { TokenBucket, type TokenBucketInit } from "@picolet/protocol/async/token-bucket.ts";
import { ignore, isPicoletError, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, type Millis, type MonotonicMs, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { Agent, type Dispatcher, ProxyAgent, request } from "undici";
import type { ClusterAccess, ClusterCredentials, ClusterTls } from "./cluster-access.ts";
import { responseError } from "./response-error.ts";

/**
 * A fleet of 5,000 renews 500 leases a second; three times that leaves room for statuses. A server that is asked too
 * much says 429 itself (priority and fairness), which slows us down further.
 */
const DEFAULT_RATE: TokenBucketInit = { rate: 1500, burst: 3000 };
/** A request that an API server works on is bounded by its own 60 s; half of it is what a user waits for. */
const DEFAULT_REQUEST_TIMEOUT = seconds(30);
/** Answers take some 5 ms: 32 at once are 6,000 a second. More requests wait for a free connection. */
const DEFAULT_CONNECTIONS = 32;
/** Below the 90 s after which an API server closes an idle connection, so that we are the first to. */
const KEEP_ALIVE = seconds(30);
const CONNECT_TIMEOUT = seconds(10);
/** A page of 500 objects of 100 KiB; a larger answer is refused with `resource_exhausted`. */
const MAX_RESPONSE_BYTES = 64 * MEBIBYTE;
/** An error's body is a Status of some KiB; of a longer one (a proxy's HTML) the rest is not read. */
const MAX_ERROR_BYTES = 256 * KIBIBYTE;
/** client-go's number. The deadline of the request usually comes first. */
const MAX_ATTEMPTS = 10;
/** A `Retry-After` beyond this is cut: the next attempt is worth more than waiting. */
const MAX_RETRY_AFTER = seconds(30);
/** Clients that were refused together do not come back together. */
const JITTER: Jitter = [0.5, 1.5];
/** How long files (certificates, a rotated token) are used without being read again. */
const CREDENTIALS_AGE = seconds(10);

export interface KubeTransportInit {
  readonly rate?: TokenBucketInit;
  readonly requestTimeout?: Millis;
  readonly connections?: number;
}

export interface KubeCall {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Below the server's address, with the query. */
  readonly path: string;
  /** Lower case. */
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: string;
  /** "get pod default/web" */
  readonly what: string;
}

interface Wire {
  readonly fingerprint: string;
  readonly checkedAt: MonotonicMs;
  readonly headers: Readonly<Record<string, string>>;
  readonly requests: Dispatcher;
  readonly streams: Dispatcher;
}

type Answer =
  | { readonly kind: "done"; readonly value: unknown }
  | { readonly kind: "refused"; readonly error: PicoletError; readonly retryAfter: Millis | undefined };

export class KubeTransport implements AsyncDisposable {
  readonly #access: ClusterAccess;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #init: KubeTransportInit;
  readonly #bucket: TokenBucket;
  #wire: Promise<Wire> | undefined;
  #isDisposed = false;

  constructor(
    components: { readonly access: ClusterAccess; readonly clock: Clock; readonly random: Random },
    init: KubeTransportInit = {},
  ) {
    this.#access = components.access;
    this.#clock = components.clock;
    this.#random = components.random;
    this.#init = init;
    this.#bucket = new TokenBucket(components, init.rate ?? DEFAULT_RATE);
  }

  /** @returns the answer's JSON. @throws as `KubeClient` says */
  send(call: KubeCall, signal: AbortSignal): Promise<unknown> {
    const timeout = this.#init.requestTimeout ?? DEFAULT_REQUEST_TIMEOUT;
    return withDeadline(this.#clock, timeout, call.what, (within) => this.#attempts(call, within), signal);
  }

  /** The bytes of an answer that has no end of its own. Nothing is read ahead of the reader but what sockets buffer. */
  async *stream(call: KubeCall, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    using life = joinSignals(signal);
    try {
      const response = await this.#open(call, life.signal);
      for await (const chunk of response.body) yield chunk as Uint8Array;
    } catch (error) {
      throw this.#failure(error, call, signal);
    } finally {
      life.abort();
    }
    if (signal.aborted) throw cancelled(call.what);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
    const wire = await this.#wire?.catch(ignore("its callers have the error; there is nothing to close"));
    if (wire !== undefined) await Promise.all([wire.requests.destroy(), wire.streams.destroy()]);
  }

  async #attempts(call: KubeCall, signal: AbortSignal): Promise<unknown> {
    let refusedOnce = false;
    for (let attempt = 1; ; attempt += 1) {
      const answer = await this.#attempt(call, signal);
      if (answer.kind === "done") return answer.value;
      if (attempt >= MAX_ATTEMPTS) throw answer.error;
      if (isUnauthorized(answer.error) && !refusedOnce) {
        refusedOnce = true;
        this.#forget();
      } else if (answer.retryAfter === undefined) throw answer.error;
      else
        await this.#clock.sleep(
          jittered(millis(Math.min(answer.retryAfter, MAX_RETRY_AFTER)), JITTER, this.#random.next()),
          signal,
        );
    }
  }

  async #attempt(call: KubeCall, signal: AbortSignal): Promise<Answer> {
    await this.#bucket.take(signal);
    const wire = await this.#current();
    let response: Dispatcher.ResponseData;
    try {
      response = await this.#request(wire, wire.requests, call, signal);
    } catch (error) {
      const failure = this.#failure(error, call, signal);
      // A kept connection that the server closed at this moment: what only reads is asked again at once.
      const again = isUnsent(error) || (call.method === "GET" && isClosedConnection(error));
      return { kind: "refused", error: failure, retryAfter: again ? millis(0) : undefined };
    }
    const isRefusal = response.statusCode >= 400;
    const text = await this.#read(response, isRefusal ? MAX_ERROR_BYTES : MAX_RESPONSE_BYTES, call, signal);
    if (!isRefusal) return { kind: "done", value: parseBody(text, call.what) };
    return {
      kind: "refused",
      error: responseError(response.statusCode, parseQuietly(text), call.what),
      retryAfter: retryAfterOf(response),
    };
  }

  /** Until the head of the answer is there. @param life as long as the body is read */
  async #open(call: KubeCall, life: AbortSignal): Promise<Dispatcher.ResponseData> {
    const timeout = this.#init.requestTimeout ?? DEFAULT_REQUEST_TIMEOUT;
    await this.#bucket.take(life);
    const wire = await this.#current();
    const request = (): Promise<Dispatcher.ResponseData> => this.#request(wire, wire.streams, call, life);
    const response = await withDeadline(this.#clock, timeout, call.what, request, life);
    if (response.statusCode < 400) return response;
    const error = responseError(
      response.statusCode,
      parseQuietly(await this.#read(response, MAX_ERROR_BYTES, call, life)),
      call.what,
    );
    if (isUnauthorized(error)) this.#forget();
    throw error;
  }

  async #request(
    wire: Wire,
    dispatcher: Dispatcher,
    call: KubeCall,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    const headers: Record<string, string | string[]> = {
      "user-agent": `picolet-hub/${VERSION}`,
      ...wire.headers,
      ...(call.headers as Record<string, string | string[]>),
    };
    return await request(`${this.#access.server}${call.path}`, {
      dispatcher,
      method: call.method,
      headers,
      signal,
      body: call.body ?? null,
    });
  }

  async #read(response: Dispatcher.ResponseData, limit: number, call: KubeCall, signal: AbortSignal): Promise<string> {
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    try {
      for await (const chunk of response.body) {
        bytes += (chunk as Uint8Array).length;
        if (bytes > limit) {
          const message = `cannot read an answer of more than ${limit} bytes`;
          throw new PicoletError("resource_exhausted", message);
        }
        chunks.push(chunk as Uint8Array);
      }
    } catch (error) {
      if (isPicoletError(error, "resource_exhausted") && response.statusCode >= 400) return "";
      throw this.#failure(error, call, signal);
    }
    return Buffer.concat(chunks).toString("utf8");
  }

  #failure(error: unknown, call: KubeCall, signal: AbortSignal): PicoletError {
    if (signal.aborted) return cancelled(call.what);
    if (isPicoletError(error)) return error;
    return new PicoletError("unavailable", `cannot ${call.what}`, { retryable: true, cause: readable(error) });
  }

  /** One read of the credentials serves all callers that ask meanwhile. */
  async #current(): Promise<Wire> {
    if (this.#isDisposed) throw new PicoletError("unavailable", "the Kubernetes client is closed");
    const before = this.#wire;
    const wire = await before;
    if (wire !== undefined && this.#clock.monotonic() - wire.checkedAt < CREDENTIALS_AGE) return wire;
    if (this.#wire === before) {
      const next = this.#renew(wire);
      this.#wire = next;
      next.catch(() => {
        if (this.#wire === next) this.#wire = before;
      });
    }
    return await (this.#wire ?? this.#current());
  }

  async #renew(wire: Wire | undefined): Promise<Wire> {
    const found = await this.#credentials(wire !== undefined);
    const checkedAt = this.#clock.monotonic();
    if (found === undefined && wire !== undefined) return { ...wire, checkedAt };
    const { tls, headers } = found ?? { tls: {}, headers: {} };
    const fingerprint = JSON.stringify(tls);
    if (wire !== undefined && wire.fingerprint === fingerprint) return { ...wire, headers, checkedAt };
    // Requests under way on the old connections end there; watches end within minutes by themselves.
    if (wire !== undefined)
      for (const old of [wire.requests, wire.streams])
        old.close().catch(ignore("the old connections are of no use either way"));
    const connections = this.#init.connections ?? DEFAULT_CONNECTIONS;
    return {
      fingerprint,
      checkedAt,
      headers,
      requests: this.#dispatcher(tls, connections),
      streams: this.#dispatcher(tls, null),
    };
  }

  /** @returns undefined when they cannot be read now, and those before may still do */
  async #credentials(hasOthers: boolean): Promise<ClusterCredentials | undefined> {
    try {
      return await this.#access.credentials();
    } catch (error) {
      if (hasOthers) return undefined;
      throw toPicoletError(error, "unavailable", "cannot get credentials for the API server");
    }
  }

  #dispatcher(tls: ClusterTls, connections: number | null): Dispatcher {
    const { ca, cert, key, ...peer } = tls;
    // One for all connections: each would parse the certificates again and keep its own copy.
    const secureContext = createSecureContext({ ca, cert, key });
    const connect = {
      ...peer,
      secureContext,
      timeout: CONNECT_TIMEOUT,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE,
    };
    const options = {
      connections,
      pipelining: 1,
      // undici joins a header's values on HTTP/2, and an API server takes the groups to impersonate one a line only.
      allowH2: false,
      keepAliveTimeout: KEEP_ALIVE,
      keepAliveMaxTimeout: KEEP_ALIVE,
      // Deadlines are ours, by the clock port.
      headersTimeout: 0,
      bodyTimeout: 0,
    };
    if (this.#access.proxy === undefined) return new Agent({ ...options, connect });
    return new ProxyAgent({ ...options, uri: this.#access.proxy, requestTls: connect });
  }

  #forget(): void {
    this.#access.refused();
    const before = this.#wire;
    this.#wire = before?.then((wire) => ({ ...wire, checkedAt: Number.NEGATIVE_INFINITY as MonotonicMs }));
    this.#wire?.catch(ignore("the next call gets the error"));
  }
}

const isUnauthorized = (error: PicoletError): boolean =>
  error.code === "permission_denied" && error.reason === "Unauthorized";

/** The connections were replaced for new credentials between the choice of one and its use. */
const isUnsent = (error: unknown): boolean => ["UND_ERR_CLOSED", "UND_ERR_DESTROYED"].includes(errnoOf(error));

const isClosedConnection = (error: unknown): boolean =>
  ["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"].includes(errnoOf(error));

/** Adds a message where Node's error has none: several addresses that all failed. */
const readable = (error: unknown): unknown =>
  error instanceof AggregateError && error.message === "" ? error.errors[0] : error;

function retryAfterOf(response: Dispatcher.ResponseData): Millis | undefined {
  const header = response.headers["retry-after"];
  if (typeof header !== "string" || !/^\d{1,6}$/.test(header)) return undefined;
  const isObeyed = response.statusCode === 429 || response.statusCode >= 500;
  return isObeyed ? seconds(Number(header)) : undefined;
}

function parseBody(text: string, what: string): unknown {
  if (text === "") return {};
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new PicoletError("corrupt", `cannot ${what}: the answer is no JSON`, { retryable: true, cause: error });
  }
}

function parseQuietly(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
