/** A real HTTPS server whose answers a test scripts: for what an API server does on the wire, well or badly. */
import { once } from "node:events";
import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { ClusterAccess } from "@picolet/hub/kubernetes/cluster-access.ts";
import { TlsAuthority } from "../identity/tls-authority.ts";
import { fixedAccess } from "./fixed-access.ts";

export interface WireRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  readonly body: unknown;
}

export type WireHandler = (request: WireRequest, response: ServerResponse) => void | Promise<void>;

export class KubeWireServer implements AsyncDisposable {
  readonly authority: TlsAuthority;
  readonly requests: WireRequest[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Connections ever made. */
  connections = 0;
  handler: WireHandler;

  static async start(handler: WireHandler): Promise<KubeWireServer> {
    const authority = new TlsAuthority();
    const { certificate, privateKey } = authority.issueServer();
    const server = createServer({ cert: certificate, key: privateKey });
    const wire = new KubeWireServer(server, authority, handler);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return wire;
  }

  private constructor(server: Server, authority: TlsAuthority, handler: WireHandler) {
    this.#server = server;
    this.authority = authority;
    this.handler = handler;
    server.on("secureConnection", (socket) => {
      this.connections += 1;
      this.#sockets.add(socket);
      socket.on("error", () => undefined).on("close", () => this.#sockets.delete(socket));
    });
    server.on("request", async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const url = new URL(request.url ?? "/", "https://server");
      const text = Buffer.concat(chunks).toString("utf8");
      const seen: WireRequest = {
        method: request.method ?? "",
        path: url.pathname,
        query: url.searchParams,
        headers: request.headers,
        body: text === "" ? undefined : JSON.parse(text),
      };
      this.requests.push(seen);
      await this.handler(seen, response);
    });
  }

  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  access(headers: Readonly<Record<string, string>> = {}): ClusterAccess {
    return fixedAccess(this.url, { tls: { ca: this.authority.ca }, headers });
  }

  /** Cuts every connection, as a server that is killed does. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }
}

export function answer(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

export const statusBody = (code: number, reason: string, message = reason): Record<string, unknown> => ({
  apiVersion: "v1",
  kind: "Status",
  status: "Failure",
  code,
  reason,
  message,
});
