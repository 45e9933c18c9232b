/** `attach` where a container's output is its log: both outputs as channels, from now on, until the container ends. */

import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, isCancelled } from "@picolet/protocol/errors.ts";
import {
  CHANNEL,
  type Channel,
  channelFrame,
  MAX_CHANNEL_FRAME_BYTES,
} from "@picolet/protocol/tunnel/channel-frames.ts";
import type { TunnelStream } from "@picolet/protocol/tunnel/stream.ts";
import type { FoundLog, LogRequest, LogStream } from "../core/pods/container-logs.ts";

/** Kubernetes' Status for a session that ended as it should. */
const SUCCESS = Buffer.from(JSON.stringify({ metadata: {}, status: "Success" }));

const NOTHING = new Uint8Array(0);

const fromNowOn = (stream: LogStream): LogRequest => ({
  ...{ stream, follow: true, tailLines: 0, timestamps: false, sinceMs: undefined, limitBytes: undefined },
});

/** Frames of several writers, one after the other. */
class FrameWriter {
  readonly #stream: TunnelStream;
  readonly #signal: AbortSignal;
  #last: Promise<void> = Promise.resolve();

  constructor(stream: TunnelStream, signal: AbortSignal) {
    this.#stream = stream;
    this.#signal = signal;
  }

  /** A writer has at most this one frame waiting: it is to wait for it. */
  write(channel: Channel, bytes: Uint8Array): Promise<void> {
    this.#last = this.#last.then(() => this.#stream.write(channelFrame(channel, bytes), this.#signal));
    return this.#last;
  }
}

/** @param outputs those that the client wants */
export async function copyLog(
  stream: TunnelStream,
  log: FoundLog,
  outputs: readonly LogStream[],
  signal: AbortSignal,
): Promise<void> {
  using session = joinSignals(signal);
  const writer = new FrameWriter(stream, session.signal);
  const copy = async (output: LogStream): Promise<void> => {
    for await (const piece of log.read(fromNowOn(output), session.signal)) {
      for (let at = 0; at < piece.length; at += MAX_CHANNEL_FRAME_BYTES) {
        await writer.write(CHANNEL[output], piece.subarray(at, at + MAX_CHANNEL_FRAME_BYTES));
      }
    }
  };
  const copying = Promise.all(outputs.map(copy));
  // A failure of the one ends the other.
  copying.catch(() => session.abort());
  const left = untilLeft(stream, session.signal).finally(() => session.abort());
  try {
    await copying;
    if (!session.signal.aborted) {
      await writer.write(CHANNEL.error, SUCCESS);
      for (const channel of [...outputs.map((each) => CHANNEL[each]), CHANNEL.error]) {
        await writer.write(channel, NOTHING);
      }
    }
    stream.end();
  } catch (error) {
    if (!isCancelled(error) || signal.aborted) throw error;
  } finally {
    session.abort();
    await left;
  }
}

/** Waits until the client disconnects. Its input is dropped: it was refused at the start. */
async function untilLeft(stream: TunnelStream, signal: AbortSignal): Promise<void> {
  try {
    while ((await stream.read(signal)) !== undefined);
  } catch {
    ignore("the session ended, or the stream was reset, which its writers see too");
  }
}
