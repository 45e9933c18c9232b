import { connect, type Socket } from "node:net";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { HttpResponseError, HttpResponseReader, type ResponseHead } from "@picolet/protocol/http/response-reader.ts";
import type { ApiError } from "@picolet/protocol/local-api/status.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { unreachable } from "./exit-codes.ts";

/**
 * Bounds memory for one answer: 110 pods of the 1.5 MB that etcd allows would be 165 MB, real ones are 1 MB together.
 */
const MAX_BODY_BYTES = 256 * MEBIBYTE;
/** Bounds the head of an answer; the agent's longest is about 300 bytes. */
const MAX_HEAD_BYTES = 16 * KIBIBYTE;
/** Bounds memory for one line of a watch, which is one object. */
const MAX_LINE_BYTES = 16 * MEBIBYTE;

export interface AgentClientInit {
  readonly socketPath: string;
  /** Bounds how long the agent may be silent while an answer is due. */
  readonly timeout: Millis;
  /** The user has edgectl alone: advice must name no other program. */
  readonly isRestricted?: boolean;
}

interface Exchange {
  readonly head: ResponseHead;
  readonly body: AsyncGenerator<Buffer>;
}

/**
 * Calls the agent over its local socket, with one connection for each request. It reads HTTP/1.1 itself, because Node's
 * client would double the time in which edgectl starts.
 *
 * Errors: with the reason `AgentUnreachable` when no agent answers there; else with the agent's message.
 */
export class AgentClient {
  readonly #init: AgentClientInit;

  constructor(init: AgentClientInit) {
    this.#init = init;
  }

  get socketPath(): string {
    return this.#init.socketPath;
  }

  async get<T>(path: string): Promise<T> {
    return (await this.#json(path, "GET", undefined, this.#init.timeout)) as T;
  }

  async post<T>(path: string, body: unknown, timeout: Millis): Promise<T> {
    return (await this.#json(path, "POST", JSON.stringify(body), timeout)) as T;
  }

  /** @returns the agent's own words also where it refuses what was sent for what is in it. */
  async put<T, R extends ApiError>(path: string, text: string, timeout: Millis): Promise<T | R> {
    const { head, body } = await this.#exchange(path, "PUT", text, timeout, false);
    const value = this.#parse(await collect(body));
    if (head.status === 200) return value as T;
    if (!isApiError(value)) throw this.#foreign(`status ${head.status}`);
    if ("problems" in value) return value as R;
    throw new PicoletError(value.error.code, value.error.message);
  }

  /** Bytes as they are, or nothing; answered in JSON. */
  async send<T>(method: "PUT" | "DELETE", path: string, bytes: Buffer | undefined, timeout: Millis): Promise<T> {
    return (await this.#json(path, method, bytes, timeout)) as T;
  }

  /** Requests a body that may take long; only its head is awaited. `notice` is for the user; `sent` as in `lines`. */
  async stream(
    path: string,
    sent?: unknown,
  ): Promise<{ readonly notice: string; readonly chunks: AsyncGenerator<Buffer> }> {
    const [method, text] = sent === undefined ? ["GET", undefined] : ["POST", JSON.stringify(sent)];
    const { head, body } = await this.#exchange(path, method, text, this.#init.timeout, true);
    if (head.status !== 200) throw await this.#refusal(head, body);
    return { notice: head.headers.get("picolet-notice")?.[0] ?? "", chunks: body };
  }

  /** The objects of a stream that has one a line. @param sent the body of a POST; missing: it is a GET */
  async *lines<T>(path: string, sent?: unknown): AsyncGenerator<T> {
    const { chunks } = await this.stream(path, sent);
    let rest = "";
    const decoder = new TextDecoder();
    for await (const chunk of chunks) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > MAX_LINE_BYTES) throw this.#foreign("a line without end");
      for (const line of lines) {
        const value = this.#parse(line);
        if (isApiError(value)) throw new PicoletError(value.error.code, value.error.message);
        yield value as T;
      }
    }
    if (rest !== "") throw this.#foreign("an unfinished line");
  }

  async #json(path: string, method: string, sent: string | Buffer | undefined, timeout: Millis): Promise<unknown> {
    const { head, body } = await this.#exchange(path, method, sent, timeout, false);
    if (head.status !== 200) throw await this.#refusal(head, body);
    return this.#parse(await collect(body));
  }

  async #refusal(head: ResponseHead, body: AsyncGenerator<Buffer>): Promise<PicoletError> {
    const value = this.#parse(await collect(body));
    if (!isApiError(value)) return this.#foreign(`status ${head.status}`);
    return new PicoletError(value.error.code, value.error.message);
  }

  #parse(text: string): unknown {
    try {
      return JSON.parse(text);
    } catch {
      throw this.#foreign("no JSON");
    }
  }

  async #exchange(
    path: string,
    method: string,
    sent: string | Buffer | undefined,
    timeout: Millis,
    openEnd: boolean,
  ): Promise<Exchange> {
    const { socketPath } = this.#init;
    const socket = connect(socketPath);
    socket.setTimeout(timeout, () =>
      socket.destroy(unreachable(`the agent at ${socketPath} does not answer within ${timeout / 1000} s`)),
    );
    const length = sent === undefined ? "" : `Content-Length: ${Buffer.byteLength(sent)}\r\n`;
    const request = `${method} ${path} HTTP/1.1\r\nHost: picolet\r\nConnection: close\r\n${length}\r\n`;
    // In one piece: an agent that answers without having received a body resets the connection, and the answer is lost.
    socket.write(Buffer.concat([Buffer.from(request), Buffer.from(sent ?? "")]));
    const pieces: Buffer[] = [];
    const reader = new HttpResponseReader({ maxHeadBytes: MAX_HEAD_BYTES }, ({ buffer, byteOffset, length }) =>
      pieces.push(Buffer.from(buffer, byteOffset, length)),
    );
    const body = this.#body(socket, reader, pieces);
    // The first piece is empty and comes with the head.
    await body.next();
    const { head } = reader;
    if (head === undefined) throw this.#foreign("no head");
    if (openEnd) socket.setTimeout(0);
    return { head, body };
  }

  /** Yields an empty piece when the head is complete, then the body as it comes. */
  async *#body(socket: Socket, reader: HttpResponseReader, pieces: Buffer[]): AsyncGenerator<Buffer> {
    let begun = false;
    const incoming = new Incoming(socket);
    try {
      for (let bytes = await incoming.next(); bytes !== undefined; bytes = await incoming.next()) {
        reader.push(bytes);
        if (!begun && reader.head !== undefined) {
          begun = true;
          yield Buffer.alloc(0);
        }
        yield* pieces.splice(0);
        if (reader.isDone) return;
      }
      reader.end();
    } catch (cause) {
      const error = isEarlyEnd(cause) ? new PicoletError("unavailable", "the agent's answer ended early") : cause;
      throw begun && isPicoletError(error) ? error : this.#connectionError(error);
    } finally {
      socket.destroy();
    }
  }

  #connectionError(error: unknown): PicoletError {
    const { socketPath } = this.#init;
    if (isPicoletError(error))
      return error.code === "corrupt" ? this.#foreign(error.message) : unreachable(error.message);
    switch (errnoOf(error)) {
      case "ENOENT":
      case "ENOTDIR":
        return unreachable(`there is no socket ${socketPath}\n${this.#advice}`);
      case "ECONNREFUSED":
        return unreachable(`no process listens at ${socketPath}: the agent has ended\n${this.#advice}`);
      case "EACCES":
      case "EPERM":
        return unreachable(
          `no permission to open ${socketPath}\n${this.#init.isRestricted === true ? WAIT : HOW_TO_GET_IN}`,
        );
      case "EAGAIN":
        return unreachable(`the agent at ${socketPath} has too many clients; try again`);
      case "ECONNRESET":
      case "EPIPE":
        return unreachable(`the agent at ${socketPath} closed the connection; it may have too many clients`);
      default:
        return unreachable(`cannot talk to the agent at ${socketPath}`, error);
    }
  }

  get #advice(): string {
    return this.#init.isRestricted === true ? WAIT : HOW_TO_START;
  }

  #foreign(what: string): PicoletError {
    return unreachable(`what answers at ${this.#init.socketPath} is not picolet: ${what}`);
  }
}

/** Reads a socket piece by piece, no faster than the pieces are taken. (Node's iterator takes 2 ms to set up.) */
class Incoming {
  readonly #socket: Socket;
  /** At most one piece: the socket is paused as soon as there is one. */
  #piece: Buffer | undefined;
  #ended = false;
  #error: Error | undefined;
  #wake: (() => void) | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (piece: Buffer) => {
      socket.pause();
      this.#piece = this.#piece === undefined ? piece : Buffer.concat([this.#piece, piece]);
      this.#wake?.();
    });
    socket.on("error", (error) => {
      this.#error = error;
      this.#wake?.();
    });
    socket.on("close", () => {
      this.#ended = true;
      this.#wake?.();
    });
  }

  /** `undefined` when the connection has ended. */
  async next(): Promise<Buffer | undefined> {
    while (this.#piece === undefined && this.#error === undefined && !this.#ended) {
      this.#socket.resume();
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#piece === undefined && this.#error !== undefined) throw this.#error;
    const piece = this.#piece;
    this.#piece = undefined;
    return piece;
  }
}

const isEarlyEnd = (error: unknown): boolean => error instanceof HttpResponseError && error.code === "unavailable";

const HOW_TO_START = `Is the agent running? Start it with: systemctl start picolet
If it listens elsewhere, name its socket: --socket PATH or PICOLET_SOCKET=PATH`;
const WAIT = "The board starts it by itself: try again in a minute. Until then doctor examines the board.";
const HOW_TO_GET_IN = "Run edgectl as root (sudo edgectl ...) or as a member of the socket's group.";

async function collect(body: AsyncGenerator<Buffer>): Promise<string> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of body) {
    size += piece.length;
    if (size > MAX_BODY_BYTES) throw new PicoletError("resource_exhausted", "the agent's answer is too large");
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString("utf8");
}

function isApiError(value: unknown): value is ApiError {
  if (typeof value !== "object" || value === null || !("error" in value)) return false;
  const { error } = value;
  return (
    typeof error === "object" &&
    error !== null &&
    "code" in error &&
    "message" in error &&
    typeof error.code === "string" &&
    typeof error.message === "string"
  );
}
