/** Remote commands over a WebSocket: the first byte of each message is its channel. The server's end. */

import { aborted, joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { CHANNEL, type Channel } from "@picolet/protocol/tunnel/channel-frames.ts";
import type { WebSocketPipe } from "../pipes/byte-pipe.ts";
import { InboundQueue } from "../pipes/inbound-queue.ts";
import { BASE64_CHANNELS, ChannelMessages } from "./channel-messages.ts";
import { type CommandChannel, type CommandSession, type CommandStreams, channelsOf } from "./command-session.ts";

/** Best first. v5 is v4 with a way to close a channel; in the base64 ones messages are text and the channel a digit. */
export const WEB_SOCKET_COMMAND_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io", BASE64_CHANNELS];
/** The subprotocol that API servers translate to SPDY and do not pass on. */
export const TRANSLATED_PROTOCOL = "v5.channel.k8s.io";
const WITH_CLOSE = TRANSLATED_PROTOCOL;

/** In v5: a message of this byte and a channel closes that channel. */
const CLOSE_SIGNAL = 255;

export class WebSocketCommand implements CommandSession {
  readonly #pipe: WebSocketPipe;
  readonly #messages: ChannelMessages;
  readonly #protocol: string;
  readonly #wanted: ReadonlySet<Channel>;
  readonly #life = joinSignals();
  readonly #inbound = new Map<number, InboundQueue>([
    [CHANNEL.stdin, new InboundQueue()],
    [CHANNEL.resize, new InboundQueue()],
  ]);

  constructor(pipe: WebSocketPipe, protocol: string, wanted: CommandStreams) {
    this.#pipe = pipe;
    this.#messages = new ChannelMessages(pipe, protocol);
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
      write: (bytes, signal) => this.#messages.write(channel, bytes, signal),
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
    await this.#messages.write(CHANNEL.error, status, this.closed).catch(ignore("the client is gone"));
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
      this.#messages
        .send(first, new Uint8Array(0), this.closed)
        .catch(ignore("the client is gone, which `closed` reports"));
  }

  async #read(): Promise<void> {
    try {
      for (;;) {
        const message = await this.#messages.read(this.closed);
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

  async #take({ channel, bytes }: { readonly channel: number; readonly bytes: Uint8Array }): Promise<void> {
    if (channel === CLOSE_SIGNAL && this.#protocol === WITH_CLOSE) {
      this.#inbound.get(bytes[0] ?? CLOSE_SIGNAL)?.end();
      return;
    }
    const queue = this.#inbound.get(channel);
    queue?.push(bytes);
    await queue?.room(this.closed);
  }
}
