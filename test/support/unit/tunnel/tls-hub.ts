/**
 * `TestHub` behind a real WebSocket over TLS on loopback, which asks for client certificates and refuses what it is
 * told to.
 */
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { HubAddress } from "@picolet/agent/core/hub/hub-address.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { TUNNEL_SUBPROTOCOL } from "@picolet/protocol/tunnel/messages.ts";
import { type WebSocket, WebSocketServer } from "ws";
import type { TlsAuthority } from "../identity/tls-authority.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { TestHub } from "./tunnel-hub.ts";

export interface Refused {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly text?: string;
}

export class TlsHub implements AsyncDisposable {
  readonly hub = new TestHub();
  readonly log = new RecordedLog();
  readonly #server: Server;
  readonly #webSockets: WebSocketServer;
  readonly sockets: TLSSocket[] = [];
  readonly webSockets: WebSocket[] = [];
  /** Path, subprotocol and `resumed` or `full` of each upgrade. */
  readonly upgrades: string[] = [];
  refusal: Refused | undefined;
  /** True when the hub speaks the tunnel's protocol; false leaves the WebSocket to the test. */
  speaks = true;
  #onUpgrade: () => void = () => undefined;

  private constructor(authority: TlsAuthority, clientCa: string) {
    const { privateKey: key, certificate: cert } = authority.issueServer();
    const options = { key, cert, ca: clientCa, requestCert: true, rejectUnauthorized: false, minVersion: "TLSv1.3" };
    this.#server = createServer(options as Parameters<typeof createServer>[0]);
    this.#webSockets = new WebSocketServer({
      noServer: true,
      perMessageDeflate: false,
      handleProtocols: (offered) => (offered.has(TUNNEL_SUBPROTOCOL) ? TUNNEL_SUBPROTOCOL : false),
    });
    this.#server.on("secureConnection", (socket: TLSSocket) => {
      this.sockets.push(socket);
      socket.on("error", () => undefined);
    });
    this.#server.on("upgrade", (request, socket, head) => this.#upgrade(request, socket, head));
    this.#server.on("request", (_: IncomingMessage, response: ServerResponse) => response.writeHead(404).end());
  }

  /** @param clientCa whose clients are let in; the authority's own unless given */
  static async start(authority: TlsAuthority, clientCa: string = authority.ca): Promise<TlsHub> {
    const hub = new TlsHub(authority, clientCa);
    await new Promise<void>((resolve) => hub.#server.listen(0, "127.0.0.1", resolve));
    return hub;
  }

  get address(): HubAddress {
    const { port } = this.#server.address() as AddressInfo;
    return { host: "127.0.0.1", port, url: `https://127.0.0.1:${port}` };
  }

  /** Resolves with the next upgrade. */
  nextUpgrade(): Promise<void> {
    return new Promise((resolve) => {
      this.#onUpgrade = resolve;
    });
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const tls = socket as TLSSocket;
    const resumed = tls.isSessionReused() ? "resumed" : "full";
    this.upgrades.push(`${request.url} ${request.headers["sec-websocket-protocol"]} ${resumed}`);
    socket.on("error", () => undefined);
    const refusal = tls.authorized ? this.refusal : { status: 401, text: String(tls.authorizationError) };
    if (refusal !== undefined) {
      const { status, headers = {}, text = "" } = refusal;
      const lines = Object.entries({ ...headers, "content-length": `${text.length}`, connection: "close" });
      const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join("");
      socket.end(`HTTP/1.1 ${status} Refused\r\n${head}\r\n${text}`);
      return;
    }
    this.#webSockets.handleUpgrade(request, socket, head, (webSocket) => {
      this.webSockets.push(webSocket);
      webSocket.on("error", () => undefined);
      if (this.speaks) this.#join(webSocket, tls);
      this.#onUpgrade();
    });
  }

  #join(webSocket: WebSocket, socket: TLSSocket): void {
    const { mux } = this.hub.accept(
      {
        send: (bytes) => webSocket.send(bytes, { binary: true }),
        get bufferedBytes(): number {
          return webSocket.bufferedAmount;
        },
        close: (code, reason) => webSocket.close(code, reason),
      },
      { clock: systemClock, log: this.log },
    );
    webSocket.on("message", (data) => mux.receive(data as Buffer));
    webSocket.on("close", () => mux.close(new PicoletError("unavailable", "the agent has gone")));
    socket.on("drain", () => mux.drained());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const each of this.sockets) each.destroy();
    const closed = once(this.#server, "close");
    this.#server.close();
    await closed;
  }
}
