/** A real runtime's socket with CRI alone: every call of another service is answered as by a runtime that has none. */
import {
  type ClientHttp2Session,
  connect,
  constants,
  createServer,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import { createConnection, type Socket } from "node:net";
import { refuse } from "../unit/cri/scripted-cri.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";

const UNIMPLEMENTED = 12;

export class PlainCri implements Disposable {
  readonly #folder = new TempFolder();
  readonly #server = createServer();
  readonly #sockets = new Set<Socket>();
  readonly #runtime: ClientHttp2Session;
  readonly socketPath = this.#folder.at("socket");
  /** Services other than CRI's that were asked for. */
  readonly refused = new Set<string>();

  private constructor(runtimePath: string) {
    this.#runtime = connect("http://localhost", { createConnection: () => createConnection(runtimePath) });
    this.#server.on("connection", (socket: Socket) => this.#sockets.add(socket));
    this.#server.on("stream", (stream, headers) => {
      stream.on("error", () => undefined);
      const [, service = ""] = String(headers[":path"]).split("/");
      if (service.startsWith("runtime.v1.")) return this.#pass(stream, headers);
      this.refused.add(service);
      refuse(stream, UNIMPLEMENTED);
    });
  }

  static async start(runtimePath: string): Promise<PlainCri> {
    const proxy = new PlainCri(runtimePath);
    await new Promise<void>((resolve) => proxy.#server.listen(proxy.socketPath, resolve));
    return proxy;
  }

  #pass(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    const call = this.#runtime.request(headers, { endStream: false });
    let trailers: IncomingHttpHeaders = {};
    call.on("error", () => stream.close(constants.NGHTTP2_CANCEL));
    stream.on("close", () => call.close(constants.NGHTTP2_CANCEL));
    call.on("response", (response, flags) => {
      const isAll = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
      if (stream.destroyed) return;
      stream.respond(response, isAll ? { endStream: true } : { waitForTrailers: true });
    });
    call.on("trailers", (received) => {
      trailers = received;
    });
    stream.on("wantTrailers", () => stream.sendTrailers(trailers));
    stream.pipe(call);
    call.pipe(stream);
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    this.#runtime.destroy();
    this.#folder[Symbol.dispose]();
  }
}
