/**
 * A CRI socket on which a test answers the calls itself: what a runtime newer, older or worse than containerd 1.6 would
 * say.
 */
import { createServer, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { withPrefix } from "@picolet/runtime-cri/wire/grpc-messages.ts";
import { TempFolder } from "../machine/temp-folder.ts";

export const GRPC_HEADERS = { ":status": 200, "content-type": "application/grpc" };
const PREFIX_BYTES = 5;

type OnCall = (method: string, stream: ServerHttp2Stream, request: Promise<Buffer>) => void;

export class ScriptedCri implements Disposable {
  readonly #folder = new TempFolder();
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer();
  readonly endpoint = this.#folder.at("socket");

  private constructor(onCall: OnCall) {
    this.#server.on("connection", (socket: Socket) => this.#sockets.add(socket));
    this.#server.on("stream", (stream, headers) => {
      stream.on("error", () => undefined);
      const parts: Buffer[] = [];
      const request = new Promise<Buffer>((resolve) => {
        stream.on("data", (part: Buffer) => parts.push(part));
        stream.on("end", () => resolve(Buffer.concat(parts).subarray(PREFIX_BYTES)));
      });
      onCall(String(headers[":path"]).split("/").at(-1) ?? "", stream, request);
    });
  }

  /** @param onCall is given the last part of a call's path, and its request's bytes when they are all there */
  static async start(onCall: OnCall): Promise<ScriptedCri> {
    const runtime = new ScriptedCri(onCall);
    await new Promise<void>((resolve) => runtime.#server.listen(runtime.endpoint, resolve));
    return runtime;
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    this.#folder[Symbol.dispose]();
  }
}

export function answer(stream: ServerHttp2Stream, body: Buffer): void {
  stream.respond(GRPC_HEADERS, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.end(withPrefix(body));
}

/** @param status gRPC's number; 12: there is no such call */
export const refuse = (stream: ServerHttp2Stream, status: number, message = ""): void =>
  stream.respond({ ...GRPC_HEADERS, "grpc-status": String(status), "grpc-message": message }, { endStream: true });
