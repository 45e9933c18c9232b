/** A server of gRPC's health protocol on node:http2, which answers what a test says. */
import { once } from "node:events";
import { createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";

export type HealthReply =
  /** A number of the enum `ServingStatus`. */
  | { readonly serving: number }
  | { readonly status: number; readonly message: string }
  | { readonly http: number }
  | "silence"
  | "reset";

export class GrpcHealthServer implements AsyncDisposable {
  readonly #server: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();
  /** By service. */
  reply: (service: string) => HealthReply = () => ({ serving: 1 });
  /** Headers of the last request. */
  headers: Readonly<Record<string, unknown>> = {};
  /** Called once for each request. */
  onRequest: () => void = () => undefined;

  private constructor() {
    this.#server = createServer();
    this.#server.on("session", (session) => {
      this.#sessions.add(session);
      session.on("close", () => this.#sessions.delete(session)).on("error", () => undefined);
    });
    this.#server.on("stream", (stream, headers) => {
      this.headers = headers;
      stream.on("error", () => undefined);
      const pieces: Buffer[] = [];
      stream.on("data", (piece: Buffer) => pieces.push(piece));
      stream.on("end", () => {
        // Prefix of five bytes, tag and length of field 1, then the service's name.
        const service = Buffer.concat(pieces).subarray(7).toString();
        const reply = this.reply(service);
        this.onRequest();
        if (reply === "silence") return;
        if (reply === "reset") stream.close(2);
        else if ("http" in reply) stream.respond({ ":status": reply.http }, { endStream: true });
        else if ("status" in reply) {
          const { status, message } = reply;
          const trailers = { "grpc-status": String(status), "grpc-message": encodeURIComponent(message) };
          stream.respond({ ":status": 200, "content-type": "application/grpc", ...trailers }, { endStream: true });
        } else {
          stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
          stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
          stream.end(reply.serving === 0 ? Buffer.alloc(5) : Buffer.from([0, 0, 0, 0, 2, 8, reply.serving]));
        }
      });
    });
  }

  static async start(): Promise<GrpcHealthServer> {
    const health = new GrpcHealthServer();
    health.#server.listen(0, "127.0.0.1");
    await once(health.#server, "listening");
    return health;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Until no connection is left. */
  async quiet(): Promise<void> {
    const closed = (session: ServerHttp2Session): Promise<void> =>
      new Promise((resolve) => session.once("close", () => resolve()));
    await Promise.all([...this.#sessions].map(closed));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const session of this.#sessions) session.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }
}
