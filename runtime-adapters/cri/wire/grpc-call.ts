import { isPicoletError, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import type { Deadline, Deadlines } from "./deadlines.ts";
import { MessageAssembler } from "./grpc-messages.ts";
import { GrpcStatusError } from "./grpc-status.ts";
import type { HeaderList } from "./hpack.ts";
import type { Http2Client } from "./http2-client.ts";
import type { Http2Connection, Http2Stream, StreamHandler } from "./http2-connection.ts";

export interface CallEvents {
  /** The bytes are valid during the call only. What it throws fails the call. */
  onMessage(bytes: Buffer, start: number, end: number): void;
  /** Called after the messages that end in a piece of `count` bytes; return them with `consumed`. */
  onPiece(count: number): void;
  /** Once, last. `undefined`: status OK. */
  onDone(error: PicoletError | undefined): void;
}

export interface CallInit {
  readonly path: string;
  readonly timeoutMs: number | undefined;
  readonly signal: AbortSignal;
  readonly maxMessageBytes: number;
  /** From `encodeHeaders`. */
  readonly block: Buffer;
  /** The whole request where it is one message; missing: it is sent later, piece by piece. */
  readonly request: Uint8Array | undefined;
}

/** Attempts at a call that the other side is known not to have processed. */
const MAX_ATTEMPTS = 2;
/** grpc-message of more is cut: it goes into events and logs. */
const MAX_STATUS_MESSAGE_LENGTH = 8 * 1024;

type CallState =
  | { readonly kind: "connecting" }
  | { readonly kind: "open"; readonly stream: Http2Stream }
  | { readonly kind: "done" };

/** One call from its start to its status: connects, sends, collects, watches deadline and signal. */
export class GrpcCall {
  readonly #http2: Http2Client;
  readonly #events: CallEvents;
  readonly #init: CallInit;
  readonly #assembler: MessageAssembler;
  readonly #deadline: Deadline | undefined;
  readonly #onAbort: () => void;
  #state: CallState = { kind: "connecting" };
  #attempts = 0;
  #responded = false;
  #opened: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;

  constructor(
    components: { readonly http2: Http2Client; readonly deadlines: Deadlines },
    events: CallEvents,
    init: CallInit,
  ) {
    this.#http2 = components.http2;
    this.#events = events;
    this.#init = init;
    this.#assembler = new MessageAssembler(init.maxMessageBytes, (bytes, start, end) =>
      events.onMessage(bytes, start, end),
    );
    this.#onAbort = () => this.fail(new PicoletError("cancelled", `the call of ${init.path} was cancelled`));
    init.signal.addEventListener("abort", this.#onAbort, { once: true });
    const { timeoutMs } = init;
    if (timeoutMs !== undefined) this.#deadline = components.deadlines.add(timeoutMs, () => this.fail(this.#tooLate()));
  }

  /** Goes out now when there is a connection, else as soon as there is one. */
  start(): void {
    if (this.#init.signal.aborted) this.#onAbort();
    else this.#attempt();
  }

  /** Resolves once it was handed to the socket, or the call is done. */
  async send(bytes: Uint8Array, end: boolean): Promise<void> {
    if (this.#state.kind === "connecting") {
      this.#opened ??= Promise.withResolvers<void>();
      await this.#opened.promise;
    }
    if (this.#state.kind === "open") await this.#state.stream.send(bytes, end);
  }

  consumed(count: number): void {
    if (this.#state.kind === "open") this.#state.stream.consumed(count);
  }

  fail(error: PicoletError): void {
    if (this.#state.kind === "open") this.#state.stream.cancel();
    this.#finish(error);
  }

  #attempt(): void {
    this.#attempts += 1;
    const { open } = this.#http2;
    if (open !== undefined) {
      this.#attach(open);
      return;
    }
    this.#http2.connection().then(
      (connection) => {
        if (this.#state.kind === "connecting") this.#attach(connection);
      },
      (error: unknown) => this.#finish(toOwn(error)),
    );
  }

  #attach(connection: Http2Connection): void {
    const { block, request } = this.#init;
    const first = request === undefined ? undefined : { bytes: request, end: true };
    try {
      this.#state = { kind: "open", stream: connection.open(block, this.#handler(), first) };
    } catch (error) {
      // The connection broke between its promise and this: as good as a refusal.
      this.#retryOr(toOwn(error));
    }
    this.#opened?.resolve();
  }

  #retryOr(error: PicoletError): void {
    if (this.#state.kind === "done") return;
    if (this.#attempts >= MAX_ATTEMPTS || this.#init.request === undefined) this.#finish(error);
    else {
      this.#state = { kind: "connecting" };
      this.#attempt();
    }
  }

  #handler(): StreamHandler {
    return {
      onHeaders: (headers, end) => this.#onHeaders(headers, end),
      onData: (piece) => {
        try {
          this.#assembler.feed(piece);
        } catch (error) {
          this.fail(toOwn(error));
          return;
        }
        if (this.#state.kind !== "done") this.#events.onPiece(piece.length);
      },
      onEnd: () =>
        this.#finish(new PicoletError("corrupt", `cannot use an answer to ${this.#init.path} without status`)),
      onFailed: (error, processed) => {
        if (processed === "no") this.#retryOr(error);
        // The other side knows the deadline too: grpc-go resets the stream then, and may be the first to do so.
        else this.#finish(this.#deadline?.isOver() === true ? this.#tooLate() : error);
      },
    };
  }

  #tooLate(): PicoletError {
    const { path, timeoutMs } = this.#init;
    return new PicoletError("deadline_exceeded", `cannot wait for ${path} longer than ${timeoutMs} ms`, {
      retryable: true,
    });
  }

  #onHeaders(headers: HeaderList, end: boolean): void {
    if (!this.#responded) {
      const status = header(headers, ":status");
      if (status?.startsWith("1") && !end) return;
      this.#responded = true;
      if (status !== "200") this.fail(httpError(this.#init.path, status));
    }
    if (!end || this.#state.kind === "done") return;
    const error = statusError(headers, this.#init.path);
    const cut = error === undefined && this.#assembler.midway;
    this.#finish(cut ? new PicoletError("corrupt", `cannot use half an answer to ${this.#init.path}`) : error);
  }

  #finish(error: PicoletError | undefined): void {
    if (this.#state.kind === "done") return;
    this.#state = { kind: "done" };
    this.#deadline?.[Symbol.dispose]();
    this.#init.signal.removeEventListener("abort", this.#onAbort);
    this.#assembler.abandon();
    this.#opened?.resolve();
    this.#events.onDone(error);
  }
}

const toOwn = (error: unknown): PicoletError =>
  isPicoletError(error) ? error : toPicoletError(error, "internal", "cannot carry out a call");

function header(headers: HeaderList, name: string): string | undefined {
  for (let index = 0; index < headers.length; index += 2) if (headers[index] === name) return headers[index + 1];
  return undefined;
}

function statusError(headers: HeaderList, path: string): PicoletError | undefined {
  const status = header(headers, "grpc-status");
  if (status === undefined) return new PicoletError("corrupt", `cannot use an answer to ${path} without status`);
  if (status === "0") return undefined;
  const message = percentDecode(header(headers, "grpc-message") ?? "").slice(0, MAX_STATUS_MESSAGE_LENGTH);
  return new GrpcStatusError(Number(status), message === "" ? `${path} failed with status ${status}` : message);
}

/** A wrong escape stays as it is. */
function percentDecode(text: string): string {
  if (!text.includes("%")) return text;
  const bytes = Buffer.from(text, "latin1");
  let length = 0;
  for (let index = 0; index < bytes.length; index += 1) {
    const hex = bytes[index] === 0x25 ? text.slice(index + 1, index + 3) : "";
    const escaped = /^[0-9a-fA-F]{2}$/.test(hex);
    bytes[length] = escaped ? Number.parseInt(hex, 16) : (bytes[index] ?? 0);
    length += 1;
    if (escaped) index += 2;
  }
  return bytes.toString("utf8", 0, length);
}

/**
 * Translates the HTTP status of a proxy, or of a server that does not speak gRPC (grpc's http-grpc-status-mapping.md).
 */
function httpError(path: string, status: string | undefined): PicoletError {
  const message = `cannot call ${path}: the HTTP status is ${status ?? "missing"}`;
  if (status === "401" || status === "403") return new PicoletError("permission_denied", message);
  if (status === "404") return new PicoletError("unimplemented", message);
  if (status === "429" || status === "502" || status === "503" || status === "504") {
    return new PicoletError("unavailable", message, { retryable: true });
  }
  return new PicoletError("failed", message);
}
