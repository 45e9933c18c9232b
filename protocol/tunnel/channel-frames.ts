/**
 * The frames of a session in mode `channels` (`SessionReply` in stream.ts): how several pipes share one tunnel stream.
 */
import { PicoletError } from "../errors.ts";
import { KIBIBYTE } from "../units.ts";

/** Channels by their numbers in Kubernetes' WebSocket protocols. */
export const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4 } as const;
export type Channel = (typeof CHANNEL)[keyof typeof CHANNEL];

const HEADER_BYTES = 4;
/**
 * Bounds the content of a frame that is sent here; the format allows 16 MiB, which would hold up the other channels.
 */
export const MAX_CHANNEL_FRAME_BYTES = 64 * KIBIBYTE;

const NOTHING = new Uint8Array(0);

/** Part of what one channel carries. */
export interface ChannelPiece {
  readonly channel: Channel;
  /** Shares memory with what was pushed. Empty: the channel has been closed. */
  readonly bytes: Uint8Array;
  /** True for the last piece of its frame: messages (error, resize) end there. */
  readonly last: boolean;
}

/** @param bytes at most MAX_CHANNEL_FRAME_BYTES; none: closes the channel. */
export function channelFrame(channel: Channel, bytes: Uint8Array): Uint8Array {
  if (bytes.length > MAX_CHANNEL_FRAME_BYTES) {
    throw new PicoletError("internal", `cannot put ${bytes.length} bytes into one channel frame`);
  }
  const frame = new Uint8Array(HEADER_BYTES + bytes.length);
  frame[0] = channel;
  frame[1] = bytes.length >>> 16;
  frame[2] = (bytes.length >>> 8) & 0xff;
  frame[3] = bytes.length & 0xff;
  frame.set(bytes, HEADER_BYTES);
  return frame;
}

const isChannel = (value: number): value is Channel => value <= CHANNEL.resize;

/** Takes a stream of frames that was cut anywhere apart. Keeps at most a header. */
export class ChannelFrameReader {
  readonly #header = new Uint8Array(HEADER_BYTES);
  #headerBytes = 0;
  #left = 0;
  #channel: Channel = CHANNEL.stdin;

  /** True when the stream may end here. */
  get betweenFrames(): boolean {
    return this.#headerBytes === 0;
  }

  /** @throws `corrupt` for a channel that does not exist or a frame above MAX_CHANNEL_FRAME_BYTES. */
  *push(bytes: Uint8Array): Generator<ChannelPiece> {
    let at = 0;
    while (at < bytes.length) {
      if (this.#headerBytes < HEADER_BYTES) {
        this.#header[this.#headerBytes] = bytes[at] ?? 0;
        this.#headerBytes += 1;
        at += 1;
        if (this.#headerBytes < HEADER_BYTES) continue;
        this.#begin();
        if (this.#left > 0) continue;
        this.#headerBytes = 0;
        yield { channel: this.#channel, bytes: NOTHING, last: true };
        continue;
      }
      const piece = bytes.subarray(at, at + this.#left);
      at += piece.length;
      this.#left -= piece.length;
      const last = this.#left === 0;
      if (last) this.#headerBytes = 0;
      yield { channel: this.#channel, bytes: piece, last };
    }
  }

  #begin(): void {
    const [channel = 0, high = 0, middle = 0, low = 0] = this.#header;
    this.#left = high * 65_536 + middle * 256 + low;
    if (!isChannel(channel)) throw new PicoletError("corrupt", `there is no channel ${channel}`);
    if (this.#left > MAX_CHANNEL_FRAME_BYTES) {
      throw new PicoletError("corrupt", `a frame of ${this.#left} bytes is larger than ${MAX_CHANNEL_FRAME_BYTES}`);
    }
    this.#channel = channel;
  }
}
