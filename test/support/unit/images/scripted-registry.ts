/**
 * A registry of the test's own on the loopback: it serves the given blobs, or the answer that the test makes of a
 * request.
 */
import { EventEmitter, once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { KeyPair } from "@picolet/hub/identity/certificate-authority.ts";
import { type Document, digestOf } from "./oci-content.ts";

/** @returns true when it has answered, or will */
export type Interception = (request: IncomingMessage, response: ServerResponse) => boolean;

export class ScriptedRegistry implements AsyncDisposable {
  /** `GET /v2/app/manifests/1`, in the order in which they came; with the range, where one was asked for. */
  readonly requests: string[] = [];
  /** The header Authorization of each. */
  readonly authorizations: (string | undefined)[] = [];
  /** Before anything is served. */
  intercept: Interception = () => false;
  readonly #asked = new EventEmitter();
  readonly #documents = new Map<string, Document>();
  readonly #blobs = new Map<string, Uint8Array | string>();
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    server.on("request", (request: IncomingMessage, response: ServerResponse) => this.#serve(request, response));
  }

  /** @param tls its key and certificate; missing: it speaks plain HTTP */
  static async start(tls?: KeyPair): Promise<ScriptedRegistry> {
    const server =
      tls === undefined ? createServer() : createSecureServer({ key: tls.privateKey, cert: tls.certificate });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new ScriptedRegistry(server);
  }

  /** `127.0.0.1:<port>` */
  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  add(document: Document, blobs: readonly (Uint8Array | string)[] = [], tag?: string): void {
    this.#documents.set(document.digest, document);
    if (tag !== undefined) this.#documents.set(tag, document);
    for (const blob of blobs) this.#blobs.set(digestOf(blob), blob);
  }

  /** Waits until a blob was requested, without the first `after` requests. */
  async untilBlobAsked(after = 0): Promise<void> {
    while (!this.requests.slice(after).some((each) => each.includes("/blobs/"))) await once(this.#asked, "request");
  }

  /** Until the next request. */
  async untilAsked(): Promise<void> {
    await once(this.#asked, "request");
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const { range, authorization } = request.headers;
    this.requests.push(`${request.method} ${request.url}${range === undefined ? "" : ` ${range}`}`);
    this.authorizations.push(authorization);
    this.#asked.emit("request");
    if (this.intercept(request, response)) return;
    const [, kind, reference = ""] = /^\/v2\/.+\/(manifests|blobs)\/(.+)$/.exec(request.url ?? "") ?? [];
    const document = kind === "manifests" ? this.#documents.get(reference) : undefined;
    const blob = kind === "blobs" ? this.#blobs.get(reference) : undefined;
    if (document !== undefined) {
      response.writeHead(200, { "content-type": document.mediaType, "docker-content-digest": document.digest });
      response.end(document.content);
    } else if (blob !== undefined) sendBlob(response, Buffer.from(blob), range);
    else response.writeHead(404).end('{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** The whole of it, or the range that was asked for. */
export function sendBlob(response: ServerResponse, blob: Buffer, range: string | undefined): void {
  const [, first = "0", end = ""] = /^bytes=(\d+)-(\d*)$/.exec(range ?? "") ?? [];
  const [start, last] = [Number(first), end === "" ? blob.length - 1 : Math.min(Number(end), blob.length - 1)];
  if (start > 0 && start >= blob.length) {
    response.writeHead(416).end();
    return;
  }
  const rest = blob.subarray(start, last + 1);
  const content = { "content-length": rest.length };
  if (start === 0 && end === "") response.writeHead(200, content).end(rest);
  else response.writeHead(206, { ...content, "content-range": `bytes ${start}-${last}/${blob.length}` }).end(rest);
}
