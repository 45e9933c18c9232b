import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { WebSocketPipe } from "../pipes/byte-pipe.ts";

/** Subprotocol whose messages are text: the channel a digit, the content in base64. */
export const BASE64_CHANNELS = "v4.base64.channel.k8s.io";
/** Payload of one message; kubectl reads 32 KiB at once. */
const MAX_MESSAGE_BYTES = 32 * KIBIBYTE;
const DIGIT_ZERO = 0x30;

/** Messages of a WebSocket of Kubernetes' protocols: the first byte of each is its channel. */
export class ChannelMessages {
  readonly #pipe: WebSocketPipe;
  readonly #isText: boolean;

  constructor(pipe: WebSocketPipe, protocol: string) {
    this.#pipe = pipe;
    this.#isText = protocol === BASE64_CHANNELS;
  }

  /** Skips empty messages. @returns undefined at the client's end. @throws what broke it, `cancelled` */
  async read(signal: AbortSignal): Promise<{ readonly channel: number; readonly bytes: Uint8Array } | undefined> {
    for (;;) {
      const message = await this.#pipe.read(signal);
      if (message === undefined) return undefined;
      const [first] = message;
      if (first === undefined) continue;
      const content = message.subarray(1);
      if (!this.#isText) return { channel: first, bytes: content };
      return { channel: first - DIGIT_ZERO, bytes: Buffer.from(Buffer.from(content).toString("latin1"), "base64") };
    }
  }

  /** In messages of limited size; none for no bytes. */
  async write(channel: number, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    for (let at = 0; at < bytes.length; at += MAX_MESSAGE_BYTES) {
      await this.send(channel, bytes.subarray(at, at + MAX_MESSAGE_BYTES), signal);
    }
  }

  /** One message, which may be empty. */
  async send(channel: number, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    const message = this.#isText
      ? `${channel}${Buffer.from(bytes).toString("base64")}`
      : Buffer.concat([Buffer.of(channel), bytes]);
    await this.#pipe.write(message, signal);
  }
}
