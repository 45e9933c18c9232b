/**
 * A proxy as companies have them: tunnels by CONNECT, plain requests handed over. Names are what the test says they
 * are.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";

export class ConnectProxy implements AsyncDisposable {
  /** `CONNECT registry.test:443`, `GET http://registry.test/v2/…`, in the order in which they came. */
  readonly asked: string[] = [];
  /** All header fields of all of them, as they came. */
  readonly headers: string[] = [];
  /** `host:port` → where that is. */
  readonly places = new Map<string, number>();
  /** The proxy's user, `user:password`; undefined: it requires none. */
  user: string | undefined;
  /** Instead of a tunnel. */
  refusal: number | undefined;
  /** It takes what it is asked and says nothing. */
  isSilent = false;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
    server.on("connect", (message: IncomingMessage, socket: Socket, head: Buffer) =>
      this.#tunnel(message, socket, head),
    );
    server.on("request", (message: IncomingMessage, response: ServerResponse) => this.#handOver(message, response));
  }

  static async start(): Promise<ConnectProxy> {
    const server = createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new ConnectProxy(server);
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  #status(message: IncomingMessage): number | undefined {
    this.asked.push(`${message.method} ${message.url}`);
    this.headers.push(...message.rawHeaders);
    const wanted = this.user && `Basic ${Buffer.from(this.user).toString("base64")}`;
    if (wanted !== undefined && message.headers["proxy-authorization"] !== wanted) return 407;
    return this.refusal;
  }

  #tunnel(message: IncomingMessage, socket: Socket, head: Buffer): void {
    const status = this.#status(message);
    const port = this.places.get(message.url ?? "");
    if (this.isSilent) return;
    if (status !== undefined || port === undefined) {
      socket.end(`HTTP/1.1 ${status ?? 502} No\r\n\r\n`);
      return;
    }
    const beyond = connect(port, "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
      beyond.write(head);
      beyond.pipe(socket).pipe(beyond);
    });
    for (const each of [socket, beyond]) {
      this.#sockets.add(each);
      each.on("error", () => undefined).once("close", () => this.#sockets.delete(each));
    }
  }

  #handOver(message: IncomingMessage, response: ServerResponse): void {
    const status = this.#status(message);
    const { host, pathname, search, port } = new URL(message.url ?? "");
    const place = this.places.get(port === "" ? `${host}:80` : host);
    if (status !== undefined || place === undefined) {
      response.writeHead(status ?? 502).end();
      return;
    }
    const { "proxy-authorization": _, ...headers } = message.headers;
    const options = { host: "127.0.0.1", port: place, path: pathname + search, method: message.method, headers };
    request(options, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
      answer.pipe(response);
    }).end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
