/**
 * gRPC over HTTP/2: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md. Unary calls, and streams both
 * ways; no compression. A status other than OK becomes a PicoletError with the server's own message.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { Deadlines } from "./deadlines.ts";
import { type CallEvents, GrpcCall } from "./grpc-call.ts";
import { withPrefix } from "./grpc-messages.ts";
import { GrpcStream } from "./grpc-stream.ts";
import { encodeHeaders } from "./hpack.ts";
import { Http2Client } from "./http2-client.ts";
import { nameOf, type ServerAddress } from "./http2-connection.ts";
import type { MessageDecoder, MessageEncoder } from "./protobuf.ts";

/** Bounds one message, either way. containerd's own limit; ExecSync may send as much. */
const MAX_MESSAGE_BYTES = 16 * MEBIBYTE;
const DEFAULT_CONNECT_TIMEOUT_MS = 5_000;
/** grpc-timeout has at most 8 digits. */
const MAX_TIMEOUT_VALUE = 99_999_999;

export interface GrpcMethod<Request, Response> {
  /** `/package.Service/Method` */
  readonly path: string;
  readonly request: MessageEncoder<Request>;
  readonly response: MessageDecoder<Response>;
  /** Sent with every call: name, value, name, value … */
  readonly metadata?: readonly string[];
}

/** A unix socket need not exist yet. */
export type GrpcClientInit = ServerAddress & {
  readonly connectTimeoutMs?: number;
  readonly maxMessageBytes?: number;
  readonly userAgent?: string;
  /** The buffer that its connection reads into; clients may share one. */
  readonly readBuffer?: Buffer;
};

export class GrpcClient implements Disposable {
  readonly #deadlines: Deadlines;
  readonly #http2: Http2Client;
  readonly #maxMessageBytes: number;
  readonly #authority: string;
  readonly #userAgent: string;
  /** The last header block of each method: timeouts seldom change. */
  readonly #blocks = new Map<string, { readonly timeoutMs: number | undefined; readonly block: Buffer }>();

  constructor(components: { readonly clock: Clock }, init: GrpcClientInit) {
    this.#deadlines = new Deadlines(components.clock);
    const connectTimeoutMs = init.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS;
    const { readBuffer } = init;
    const address = "path" in init ? { path: init.path } : { host: init.host, port: init.port };
    const deadlines = this.#deadlines;
    this.#http2 = new Http2Client({ ...components, deadlines }, { address, readBuffer, connectTimeoutMs });
    this.#authority = "path" in init ? "localhost" : nameOf(init);
    this.#userAgent = init.userAgent ?? "picolet";
    this.#maxMessageBytes = init.maxMessageBytes ?? MAX_MESSAGE_BYTES;
  }

  /** Calls connect by themselves; this tells one that got no connection from one that failed. @throws `unavailable` */
  async connect(): Promise<void> {
    await this.#http2.connection();
  }

  /**
   * Resolves when the connection that is open now, or the next one, breaks or is being given up; or `signal` aborts.
   */
  disconnected(signal: AbortSignal): Promise<void> {
    return this.#http2.disconnected(signal);
  }

  /** @throws PicoletError by the status; `deadline_exceeded`, `unavailable`, `cancelled`. */
  unary<Q, A>(method: GrpcMethod<Q, A>, request: Q, timeoutMs: number, signal: AbortSignal): Promise<A> {
    return new Promise((resolve, reject) => {
      let answer: { readonly value: A } | undefined;
      const call = this.#call(method, timeoutMs, signal, this.#encode(method, request), {
        onMessage: (bytes, start, end) => {
          if (answer !== undefined) throw new PicoletError("corrupt", `cannot use a second answer to ${method.path}`);
          answer = { value: method.response.decode(bytes, start, end) };
        },
        onPiece: (count) => call.consumed(count),
        onDone: (error) => {
          if (error !== undefined) reject(error);
          else if (answer === undefined) reject(new PicoletError("corrupt", `cannot use no answer to ${method.path}`));
          else resolve(answer.value);
        },
      });
      call.start();
    });
  }

  /**
   * Called at once, not when it is first iterated. Ends when the server ends it, throws as `unary` does.
   * @param timeoutMs of the whole; missing: no limit.
   */
  serverStream<Q, A>(
    method: GrpcMethod<Q, A>,
    request: Q,
    timeoutMs: number | undefined,
    signal: AbortSignal,
  ): AsyncIterable<A> {
    return this.#stream(method, timeoutMs, signal, this.#encode(method, request)).responses;
  }

  /** Requests and responses as both sides please. A client-streaming call is one that has a single response. */
  duplex<Q, A>(method: GrpcMethod<Q, A>, timeoutMs: number | undefined, signal: AbortSignal): GrpcStream<Q, A> {
    return this.#stream(method, timeoutMs, signal, undefined);
  }

  [Symbol.dispose](): void {
    this.#http2[Symbol.dispose]();
    this.#deadlines[Symbol.dispose]();
  }

  #stream<Q, A>(
    method: GrpcMethod<Q, A>,
    timeoutMs: number | undefined,
    signal: AbortSignal,
    request: Uint8Array | undefined,
  ): GrpcStream<Q, A> {
    return new GrpcStream<Q, A>(method, (events) => this.#call(method, timeoutMs, signal, request, events));
  }

  #encode<Q>(method: { readonly path: string; readonly request: MessageEncoder<Q> }, request: Q): Buffer {
    const message = method.request.encode(request);
    if (message.length <= this.#maxMessageBytes) return withPrefix(message);
    const sizes = `${message.length} bytes, more than ${this.#maxMessageBytes}`;
    throw new PicoletError("resource_exhausted", `cannot send ${method.request.name} of ${sizes}`);
  }

  #call(
    method: { readonly path: string; readonly metadata?: readonly string[] },
    timeoutMs: number | undefined,
    signal: AbortSignal,
    request: Uint8Array | undefined,
    events: CallEvents,
  ): GrpcCall {
    const components = { http2: this.#http2, deadlines: this.#deadlines };
    const block = this.#block(method, timeoutMs);
    const maxMessageBytes = this.#maxMessageBytes;
    return new GrpcCall(components, events, { path: method.path, timeoutMs, signal, maxMessageBytes, block, request });
  }

  #block(
    method: { readonly path: string; readonly metadata?: readonly string[] },
    timeoutMs: number | undefined,
  ): Buffer {
    const known = this.#blocks.get(method.path);
    if (known !== undefined && known.timeoutMs === timeoutMs) return known.block;
    const headers = [":method", "POST", ":scheme", "http", ":path", method.path, ":authority", this.#authority];
    headers.push("content-type", "application/grpc", "te", "trailers", "user-agent", this.#userAgent);
    if (timeoutMs !== undefined) headers.push("grpc-timeout", formatTimeout(timeoutMs));
    // In memory of its own: a piece of Node's pool would keep the whole slab for as long as the client lives.
    const block = Buffer.from(new Uint8Array(encodeHeaders([...headers, ...(method.metadata ?? [])])).buffer);
    this.#blocks.set(method.path, { timeoutMs, block });
    return block;
  }
}

function formatTimeout(timeoutMs: number): string {
  const whole = Math.max(1, Math.ceil(timeoutMs));
  if (whole <= MAX_TIMEOUT_VALUE) return `${whole}m`;
  return `${Math.min(MAX_TIMEOUT_VALUE, Math.ceil(whole / 1000))}S`;
}
