import type { IncomingMessage } from "node:http";
import { connect } from "node:net";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { WebSocket } from "ws";

/** kubectl's messages have as much. */
const MESSAGE_BYTES = 32 * KIBIBYTE;
/** Bounds the reason of a refusal. */
const MAX_REASON_BYTES = 16 * KIBIBYTE;
/** `v5.channel.k8s.io`: this channel's message names one that has ended. */
const CLOSE_CHANNEL = 255;

export interface ChannelMessage {
  readonly channel: number;
  readonly bytes: Buffer;
}

/** A WebSocket of Kubernetes' channel protocols to the agent: the first byte of a message is its channel. */
export class ChannelSession implements Disposable {
  readonly #socket: WebSocket;
  readonly #arrived: ChannelMessage[] = [];
  #isOver = false;
  #error: Error | undefined;
  #wake: (() => void) | undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data: Buffer) => {
      // One at a time: the sender waits while this one is taken.
      socket.pause();
      this.#arrived.push({ channel: data[0] ?? 0, bytes: data.subarray(1) });
      this.#wake?.();
    });
    socket.once("error", (error) => this.#end(error));
    socket.once("close", () => this.#end(undefined));
  }

  /** @throws with the agent's reason when it refuses; `unavailable` when it does not answer */
  static async open(socketPath: string, path: string, protocol: string): Promise<ChannelSession> {
    const socket = new WebSocket(`ws://picolet${path}`, [protocol], {
      createConnection: () => connect(socketPath),
      perMessageDeflate: false,
    });
    // Messages may come with the answer to the handshake.
    socket.pause();
    const session = await new Promise<ChannelSession>((resolve, reject) => {
      socket.once("open", () => resolve(new ChannelSession(socket)));
      socket.once("error", (error) =>
        reject(
          new PicoletError("unavailable", `cannot open a session with the agent at ${socketPath}`, { cause: error }),
        ),
      );
      socket.once("unexpected-response", (_request, response) => void refusal(response).then(reject, reject));
    });
    return session;
  }

  /** Until the other end closes it. @throws what broke the connection */
  async *messages(): AsyncGenerator<ChannelMessage> {
    for (;;) {
      const message = this.#arrived.shift();
      if (message !== undefined) {
        yield message;
        continue;
      }
      if (this.#isOver) {
        if (this.#error !== undefined) throw this.#error;
        return;
      }
      const woken = new Promise<void>((wake) => (this.#wake = wake));
      this.#socket.resume();
      await woken;
    }
  }

  /** Resolves when the agent has room for more; a session that is over takes nothing. */
  async send(channel: number, bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#isOver; at += MESSAGE_BYTES) {
      const message = Buffer.concat([Buffer.of(channel), bytes.subarray(at, at + MESSAGE_BYTES)]);
      await new Promise<void>((sent) => this.#socket.send(message, () => sent()));
    }
  }

  /** The other end sees the end of this channel (v5). */
  closeChannel(channel: number): void {
    if (!this.#isOver) this.#socket.send(Buffer.of(CLOSE_CHANNEL, channel));
  }

  [Symbol.dispose](): void {
    this.#socket.terminate();
  }

  #end(error: Error | undefined): void {
    this.#isOver = true;
    this.#error ??= error;
    this.#wake?.();
  }
}

async function refusal(response: IncomingMessage): Promise<PicoletError> {
  let body = "";
  for await (const piece of response.setEncoding("utf8") as AsyncIterable<string>) {
    body += piece;
    if (body.length > MAX_REASON_BYTES) break;
  }
  return new PicoletError("failed", messageOf(body).trim() || `status ${response.statusCode}`);
}

function messageOf(body: string): string {
  try {
    const value = JSON.parse(body) as { readonly message?: unknown; readonly error?: { readonly message?: unknown } };
    return String(value.message ?? value.error?.message ?? body);
  } catch {
    return body;
  }
}
