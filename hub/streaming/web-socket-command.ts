/** Remote commands over a WebSocket: the first byte of each message is its channel. The server's end. */

import type { WebSocketPipe } from "@picolet/hub-core/pipes/byte-pipe.ts";
import { InboundQueue } from "@picolet/hub-core/pipes/inbound-queue.ts";
import { aborted, joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { CHANNEL, type Channel } from "@picolet/protocol/tunnel/channel-frames.ts";
import { type CommandChannel, type CommandSession, type CommandStreams, channelsOf } from "./command-session.ts";

/** Best first. v5 is v4 with a way to close a channel; in the base64 ones messages are text and the channel a digit. */
export const WEB_SOCKET_COMMAND_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"];
/** The subprotocol that API servers translate to SPDY and do not pass on. */
export const TRANSLATED_PROTOCOL = "v5.channel.k8s.io";
const WITH_CLOSE = TRANSLATED_PROTOCOL;
const BASE64 = "v4.base64.channel.k8s.io";

/** In v5: a message of this byte and a channel closes that channel. */
const CLOSE_SIGNAL = 255;
/** Payload of one message; kubectl reads 32 KiB at once. */
const MAX_MESSAGE_BYTES = 32 * 1024;
const DIGIT_ZERO = 0x30;

export class WebSocketCommand implements CommandSession {
  readonly #pipe: WebSocketPipe;
  readonly #protocol: string;
  readonly #wanted: ReadonlySet<Channel>;
  readonly #life = joinSignals();
  readonly #inbound = new Map<number, InboundQueue>([
    [CHANNEL.stdin, new InboundQueue()],
    [CHANNEL.resize, new InboundQueue()],
  ]);

  constructor(pipe: WebSocketPipe, protocol: string, wanted: CommandStreams) {
    this.#pipe = pipe;
    this.#protocol = protocol;
    this.#wanted = new Set(channelsOf(wanted));
    void this.#read();
    this.#greet();
  }

  get closed(): AbortSignal {
    return this.#life.signal;
  }

  channel(channel: Channel): CommandChannel | undefined {
    if (!this.#wanted.has(channel)) return undefined;
    return {
      read: async (signal) => await this.#inbound.get(channel)?.read(signal),
      write: (bytes, signal) => this.#write(channel, bytes, signal),
      // Outputs end with the connection, in order; v5's signal is the client's.
      end: () => undefined,
    };
  }

  async finish(): Promise<void> {
    this.#pipe.close(1000);
    await aborted(this.closed);
  }

  /** Ends it with a status instead of a command. */
  async fail(status: Uint8Array): Promise<void> {
    await this.#write(CHANNEL.error, status, this.closed).catch(ignore("the client is gone"));
    await this.finish();
  }

  [Symbol.dispose](): void {
    this.#life.abort();
    this.#pipe.destroy();
  }

  /** An empty message on the first output reports that the session is open, as Kubernetes' own server does. */
  #greet(): void {
    const first = [CHANNEL.stdout, CHANNEL.stderr, CHANNEL.error].find((channel) => this.#wanted.has(channel));
    if (first !== undefined)
      this.#pipe
        .write(this.#message(first, new Uint8Array(0)), this.closed)
        .catch(ignore("the client is gone, which `closed` reports"));
  }

  async #write(channel: Channel, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    for (let at = 0; at < bytes.length; at += MAX_MESSAGE_BYTES) {
      await this.#pipe.write(this.#message(channel, bytes.subarray(at, at + MAX_MESSAGE_BYTES)), signal);
    }
  }

  #message(channel: Channel, bytes: Uint8Array): Uint8Array | string {
    if (this.#protocol === BASE64) return `${channel}${Buffer.from(bytes).toString("base64")}`;
    const message = Buffer.allocUnsafe(1 + bytes.length);
    message[0] = channel;
    message.set(bytes, 1);
    return message;
  }

  async #read(): Promise<void> {
    try {
      for (;;) {
        const message = await this.#pipe.read(this.closed);
        if (message === undefined) break;
        await this.#take(message);
      }
    } catch {
      ignore("the client is gone, which `closed` reports");
    } finally {
      for (const queue of this.#inbound.values()) queue.end();
      this.#life.abort(new PicoletError("unavailable", "the client has gone"));
    }
  }

  async #take(message: Uint8Array): Promise<void> {
    const [first] = message;
    if (first === undefined) return;
    if (first === CLOSE_SIGNAL && this.#protocol === WITH_CLOSE) {
      this.#inbound.get(message[1] ?? CLOSE_SIGNAL)?.end();
      return;
    }
    const isText = this.#protocol === BASE64;
    const queue = this.#inbound.get(isText ? first - DIGIT_ZERO : first);
    const content = message.subarray(1);
    queue?.push(isText ? Buffer.from(Buffer.from(content).toString("latin1"), "base64") : content);
    await queue?.room(this.closed);
  }
}
