/**
 * A gRPC server for unary calls on a unix socket, for what registers with or queries a kubelet: device plugins and
 * monitoring agents. node:http2 is left out for its memory, as in the client.
 */
import { chmodSync, mkdirSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { dirname } from "node:path";
import { toPicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { Deadlines } from "./deadlines.ts";
import { GrpcServerConnection, type ServedMethod } from "./grpc-server-connection.ts";
import type { MessageDecoder, MessageEncoder } from "./protobuf.ts";

/** One connection for each plugin or monitoring agent of a board. Beyond it the longest idle one is closed. */
const MAX_CONNECTIONS = 32;

/** @param answer a PicoletError that it throws becomes the status of the same meaning, any other `Unknown` */
export function served<Q, A>(
  method: { readonly path: string; readonly request: MessageDecoder<Q>; readonly response: MessageEncoder<A> },
  answer: (request: Q, signal: AbortSignal) => Promise<A> | A,
): ServedMethod {
  const { path, request, response } = method;
  // Decoded before the first wait, because the bytes are valid during the call only.
  const respond = (bytes: Buffer, start: number, end: number, signal: AbortSignal): Promise<Uint8Array> => {
    const decoded = request.decode(bytes, start, end);
    return Promise.resolve(answer(decoded, signal)).then((value) => response.encode(value));
  };
  return { path, answer: respond };
}

export interface GrpcServerInit {
  /** Its folder is made, for root alone; an old socket is replaced. */
  readonly path: string;
  readonly methods: readonly ServedMethod[];
}

export class GrpcServer implements AsyncDisposable {
  readonly #init: GrpcServerInit;
  readonly #methods: ReadonlyMap<string, ServedMethod>;
  readonly #deadlines: Deadlines;
  readonly #connections = new Set<GrpcServerConnection>();
  #server: Server | undefined;

  constructor(components: { readonly clock: Clock }, init: GrpcServerInit) {
    this.#init = init;
    this.#deadlines = new Deadlines(components.clock);
    this.#methods = new Map(init.methods.map((method) => [method.path, method]));
  }

  /** @throws `failed` when the socket cannot be made */
  async listen(): Promise<void> {
    const { path } = this.#init;
    const server = createServer((socket) => this.serve(socket));
    this.#server = server;
    try {
      mkdirSync(dirname(path), { recursive: true, mode: 0o750 });
      rmSync(path, { force: true });
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen(path, resolve);
      });
      chmodSync(path, 0o660);
    } catch (error) {
      throw toPicoletError(error, "failed", `cannot listen on ${path}`);
    }
  }

  /** Serves a connection that another listener has accepted. */
  serve(socket: Socket): void {
    if (this.#connections.size >= MAX_CONNECTIONS) {
      const idle = [...this.#connections].find((each) => each.isIdle);
      if (idle === undefined) {
        socket.destroy();
        return;
      }
      idle.close();
    }
    const components = { socket, methods: this.#methods, deadlines: this.#deadlines };
    const connection = new GrpcServerConnection(components, () => this.#connections.delete(connection));
    this.#connections.add(connection);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of [...this.#connections]) connection.close();
    this.#deadlines[Symbol.dispose]();
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }
}
