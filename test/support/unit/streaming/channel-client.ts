/** A client of Kubernetes' WebSocket protocols, as edgectl is one. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { WebSocket } from "ws";

export class ChannelClient implements Disposable {
  readonly protocol: string;
  readonly #socket: WebSocket;
  readonly #received = new Map<number, Buffer[]>();
  #changed = Promise.withResolvers<void>();
  closed = false;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    this.protocol = socket.protocol;
    socket.on("message", (data: Buffer) => {
      const channel = data[0] ?? 0;
      this.#received.set(channel, [...(this.#received.get(channel) ?? []), data.subarray(1)]);
      this.#wake();
    });
    socket.once("close", () => {
      this.closed = true;
      this.#wake();
    });
  }

  /** @param url `ws+unix:SOCKET:PATH` or `wss://…` @throws `status body` when it is refused */
  static async open(url: string, protocols: readonly string[], options = {}): Promise<ChannelClient> {
    const socket = new WebSocket(url, [...protocols], options);
    // Its messages may come with the answer to the handshake.
    socket.pause();
    const client = await new Promise<ChannelClient>((resolve, reject) => {
      socket.once("open", () => resolve(new ChannelClient(socket)));
      socket.once("error", reject);
      socket.once("unexpected-response", (_request, response) => void refusal(response).then(reject, reject));
    });
    socket.resume();
    return client;
  }

  text(channel: number): string {
    return Buffer.concat(this.#received.get(channel) ?? []).toString("latin1");
  }

  send(channel: number, content: string | Buffer): void {
    this.#socket.send(Buffer.concat([Buffer.of(channel), Buffer.from(content)]));
  }

  /** v5 alone. */
  closeChannel(channel: number): void {
    this.#socket.send(Buffer.of(255, channel));
  }

  async until(isSo: (client: ChannelClient) => boolean): Promise<void> {
    while (!isSo(this)) {
      if (this.closed) throw new Error(`the session is over; its status is ${this.text(3)}`);
      await this.#changed.promise;
    }
  }

  /** The status at its end: "Success", an exit code, or a message. */
  async end(): Promise<string> {
    while (!this.closed) await this.#changed.promise;
    return statusOf(this.text(3));
  }

  close(): void {
    this.#socket.close(1000);
  }

  [Symbol.dispose](): void {
    this.#socket.terminate();
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}

interface Status {
  readonly status: string;
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly reason: string; readonly message: string }[] };
}

function statusOf(text: string): string {
  if (text === "") return "";
  const { status, message = "", details } = JSON.parse(text) as Status;
  const code = details?.causes?.find(({ reason }) => reason === "ExitCode")?.message;
  return status === "Success" ? status : (code ?? message);
}

async function refusal(response: IncomingMessage): Promise<Error> {
  const pieces: Buffer[] = [];
  response.on("data", (piece: Buffer) => pieces.push(piece));
  await once(response, "end");
  const body = Buffer.concat(pieces).toString("utf8");
  const message = body.startsWith("{") ? (JSON.parse(body) as { readonly message: string }).message : body;
  return new Error(`${response.statusCode} ${message}`);
}
