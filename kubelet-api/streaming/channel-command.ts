import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import {
  CHANNEL,
  type Channel,
  ChannelFrameReader,
  channelFrame,
  MAX_CHANNEL_FRAME_BYTES,
} from "@picolet/protocol/tunnel/channel-frames.ts";
import type { TunnelStream } from "@picolet/protocol/tunnel/stream.ts";
import { InboundQueue } from "../pipes/inbound-queue.ts";
import type { CommandChannel, CommandSession } from "./command-session.ts";

/** An agent's answer in mode `channels`: a command over channel frames of one tunnel stream. */
export class ChannelCommand implements CommandSession {
  readonly #stream: TunnelStream;
  readonly #life = joinSignals();
  readonly #inbound = new Map<Channel, InboundQueue>();
  #lastWrite: Promise<void> = Promise.resolve();
  #ended = false;

  constructor(stream: TunnelStream) {
    this.#stream = stream;
    for (const channel of Object.values(CHANNEL)) this.#inbound.set(channel, new InboundQueue());
    void this.#read();
  }

  get closed(): AbortSignal {
    return this.#life.signal;
  }

  channel(channel: Channel): CommandChannel {
    return {
      read: async (signal) => await this.#inbound.get(channel)?.read(signal),
      write: (bytes, signal) => this.#write(channel, bytes, signal),
      end: () =>
        void this.#write(channel, new Uint8Array(0), this.#life.signal).catch(
          ignore("a session that is over needs no end of its channels"),
        ),
    };
  }

  async finish(): Promise<void> {
    await this.#lastWrite;
    this.#stream.end();
  }

  [Symbol.dispose](): void {
    this.#life.abort();
    if (this.#ended) this.#stream.end();
    else this.#stream.reset({ code: "cancelled", message: "the client has gone" });
  }

  /** Frames of several channels go one after the other, each whole. */
  #write(channel: Channel, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    const write = async (): Promise<void> => {
      let at = 0;
      do {
        const piece = bytes.subarray(at, at + MAX_CHANNEL_FRAME_BYTES);
        await this.#stream.write(channelFrame(channel, piece), signal);
        at += piece.length;
      } while (at < bytes.length);
    };
    const written = this.#lastWrite.then(write);
    this.#lastWrite = written.catch(ignore("its caller gets the error, and the next write fails too"));
    return written;
  }

  async #read(): Promise<void> {
    const reader = new ChannelFrameReader();
    try {
      for (;;) {
        const bytes = await this.#stream.read(this.#life.signal);
        this.#ended = bytes === undefined;
        if (bytes === undefined) break;
        for (const { channel, bytes: piece } of reader.push(bytes)) {
          const queue = this.#inbound.get(channel);
          if (piece.length === 0) queue?.end();
          else queue?.push(Uint8Array.prototype.slice.call(piece));
          await queue?.room(this.#life.signal);
        }
      }
    } catch {
      ignore("broken off: its channels end, and without a status the command is known to be lost");
    } finally {
      for (const queue of this.#inbound.values()) queue.end();
      this.#life.abort();
    }
  }
}
