/** A remote command (exec, attach) as both sides of a translation see it, independent of the protocol. */
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { describeError, ignore } from "@picolet/protocol/errors.ts";
import { CHANNEL, type Channel } from "@picolet/protocol/tunnel/channel-frames.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

/** One of its channels. */
export interface CommandChannel {
  /** The next bytes; undefined at the end. */
  read(signal: AbortSignal): Promise<Uint8Array | undefined>;
  /** @throws when the other side takes no more */
  write(bytes: Uint8Array, signal: AbortSignal): Promise<void>;
  /** Half-closes it, where the protocol can. */
  end(): void;
}

export interface CommandSession extends Disposable {
  /** Undefined: it was not asked for. The error channel is always there. */
  channel(channel: Channel): CommandChannel | undefined;
  /** Aborts when the other side has gone. */
  readonly closed: AbortSignal;
  /** Everything has been written: ends the session in order. */
  finish(): Promise<void>;
}

/** The streams that a client asked for. */
export interface CommandStreams {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** A Kubernetes Status is a few hundred bytes; of a longer one the rest is dropped. */
const MAX_STATUS_BYTES = 64 * KIBIBYTE;

export function channelsOf({ stdin, stdout, stderr, tty }: CommandStreams): readonly Channel[] {
  return [
    CHANNEL.error,
    ...(stdin ? [CHANNEL.stdin] : []),
    ...(stdout ? [CHANNEL.stdout] : []),
    // A terminal has one output.
    ...(stderr && !tty ? [CHANNEL.stderr] : []),
    ...(tty ? [CHANNEL.resize] : []),
  ];
}

export const failureStatus = (message: string): Uint8Array =>
  Buffer.from(JSON.stringify({ metadata: {}, status: "Failure", message, reason: "InternalError", code: 500 }));

async function pump(from: CommandChannel, to: CommandChannel, signal: AbortSignal): Promise<void> {
  for (;;) {
    const piece = await from.read(signal);
    if (piece === undefined) break;
    await to.write(piece, signal);
  }
  to.end();
}

async function readStatus(channel: CommandChannel | undefined, signal: AbortSignal): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for (;;) {
    const piece = await channel?.read(signal);
    if (piece === undefined) break;
    bytes += piece.length;
    if (bytes <= MAX_STATUS_BYTES) pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/**
 * Carries a command between its client (`front`) and what runs it (`back`), until it has ended or one of the two is
 * gone. The client gets its status last of all, and one that says so when `back` broke off without any. Never throws.
 */
export async function relayCommand(front: CommandSession, back: CommandSession, signal: AbortSignal): Promise<void> {
  using life = joinSignals(signal, front.closed);
  const between = (channel: Channel, from: CommandSession, to: CommandSession): Promise<void> => {
    const [source, target] = [from.channel(channel), to.channel(channel)];
    return source === undefined || target === undefined ? Promise.resolve() : pump(source, target, life.signal);
  };
  try {
    for (const channel of [CHANNEL.stdin, CHANNEL.resize])
      between(channel, front, back).catch(
        ignore("input after the end of the command is of no use, and a broken input shows in the status"),
      );
    const outputs = [CHANNEL.stdout, CHANNEL.stderr].map((channel) => between(channel, back, front));
    const [status] = await Promise.all([readStatus(back.channel(CHANNEL.error), life.signal), ...outputs]);
    const lost = failureStatus("the connection to the container was lost before the command had ended");
    await front.channel(CHANNEL.error)?.write(status.length > 0 ? status : lost, life.signal);
    await front.finish();
  } catch (error) {
    if (!life.signal.aborted) {
      const message = failureStatus(describeError(error));
      await front.channel(CHANNEL.error)?.write(message, life.signal).catch(ignore("the client is gone"));
      await front.finish().catch(ignore("the client is gone"));
    }
  } finally {
    life.abort();
    back[Symbol.dispose]();
    front[Symbol.dispose]();
  }
}
