/** Remote commands over SPDY/3.1: each channel a stream that says in its headers which one it is. */

import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import { CHANNEL, type Channel } from "@picolet/protocol/tunnel/channel-frames.ts";
import type { BytePipe } from "../pipes/byte-pipe.ts";
import { type CommandChannel, type CommandSession, type CommandStreams, channelsOf } from "./command-session.ts";
import { SpdyConnection } from "./spdy/spdy-connection.ts";
import type { SpdyStream } from "./spdy/spdy-stream.ts";

/** Best first. v3 brought the terminal's size, v4 the exit code as a Status; v2 is v1 with working half-closes. */
export const SPDY_COMMAND_PROTOCOLS = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
const WITH_STATUS = SPDY_COMMAND_PROTOCOLS[0];
const WITH_RESIZE: ReadonlySet<string> = new Set(SPDY_COMMAND_PROTOCOLS.slice(0, 2));

/** Kubernetes' own limit for a client to open its streams, and for a server to accept them. */
const STREAMS_LIMIT = seconds(30);

/** How long a client may take to close when the command has ended. */
const LINGER = seconds(10);

const STREAM_TYPE = "streamtype";
const TYPE_OF: Readonly<Record<Channel, string>> = {
  [CHANNEL.stdin]: "stdin",
  [CHANNEL.stdout]: "stdout",
  [CHANNEL.stderr]: "stderr",
  [CHANNEL.error]: "error",
  [CHANNEL.resize]: "resize",
};

const expected = (streams: CommandStreams, protocol: string): readonly Channel[] =>
  channelsOf(streams).filter((channel) => channel !== CHANNEL.resize || WITH_RESIZE.has(protocol));

/** A command over SPDY/3.1, as either end. */
export class SpdyCommand implements CommandSession {
  readonly #connection: SpdyConnection;
  readonly #streams: ReadonlyMap<Channel, SpdyStream>;
  readonly #errors: CommandChannel | undefined;
  readonly #role: "client" | "server";
  readonly #clock: Clock;

  private constructor(
    { connection, clock }: { readonly connection: SpdyConnection; readonly clock: Clock },
    streams: ReadonlyMap<Channel, SpdyStream>,
    { protocol, role }: { readonly protocol: string; readonly role: "client" | "server" },
  ) {
    this.#clock = clock;
    this.#connection = connection;
    this.#streams = streams;
    this.#role = role;
    const errors = streams.get(CHANNEL.error);
    const inWords = role === "server" ? writingText : readingText;
    this.#errors = errors === undefined || protocol === WITH_STATUS ? errors : inWords(errors);
  }

  /**
   * The server's end: waits until the client has opened the streams that it asked for.
   * @throws `deadline_exceeded` when it does not, `unavailable` when it goes
   */
  static async accept(
    { clock }: { readonly clock: Clock },
    pipe: BytePipe,
    protocol: string,
    wanted: CommandStreams,
    signal: AbortSignal,
  ): Promise<SpdyCommand> {
    const missing = new Map(expected(wanted, protocol).map((channel) => [TYPE_OF[channel], channel]));
    const streams = new Map<Channel, SpdyStream>();
    const complete = Promise.withResolvers<void>();
    const onStream = (stream: SpdyStream): void => {
      const type = stream.headers[STREAM_TYPE] ?? "";
      const channel = missing.get(type);
      if (channel === undefined) {
        stream.reset();
        return;
      }
      missing.delete(type);
      streams.set(channel, stream);
      if (missing.size === 0) complete.resolve();
    };
    const connection = new SpdyConnection(pipe, { role: "server", onStream });
    void connection.run(signal);
    await within(clock, connection, complete.promise);
    return new SpdyCommand({ connection, clock }, streams, { protocol, role: "server" });
  }

  /** The client's end: opens the streams. @throws as `accept` */
  static async open(
    { clock }: { readonly clock: Clock },
    pipe: BytePipe,
    protocol: string,
    wanted: CommandStreams,
    signal: AbortSignal,
  ): Promise<SpdyCommand> {
    const connection = new SpdyConnection(pipe, { role: "client" });
    void connection.run(signal);
    const streams = new Map<Channel, SpdyStream>();
    const opening = async (): Promise<void> => {
      for (const channel of expected(wanted, protocol)) {
        streams.set(channel, await connection.open({ [STREAM_TYPE]: TYPE_OF[channel] }, connection.closed));
      }
    };
    await within(clock, connection, opening());
    return new SpdyCommand({ connection, clock }, streams, { protocol, role: "client" });
  }

  get closed(): AbortSignal {
    return this.#connection.closed;
  }

  channel(channel: Channel): CommandChannel | undefined {
    return channel === CHANNEL.error ? this.#errors : this.#streams.get(channel);
  }

  async finish(): Promise<void> {
    for (const stream of this.#streams.values()) stream.end();
    await this.#connection.finish();
    if (this.#role === "server") await this.#untilClosed();
  }

  [Symbol.dispose](): void {
    this.#connection[Symbol.dispose]();
  }

  /** The client closes when it has read everything; a connection cut off earlier may take that from it. */
  async #untilClosed(): Promise<void> {
    await this.#clock.sleep(LINGER, this.closed).catch(ignore("the client has closed, which is waited for"));
  }
}

async function within(clock: Clock, connection: SpdyConnection, task: Promise<void>): Promise<void> {
  using limit = joinSignals(connection.closed);
  const late = clock.sleep(STREAMS_LIMIT, limit.signal).then(
    () => {
      throw new PicoletError("deadline_exceeded", "the other side did not open its streams in time");
    },
    () => {
      throw new PicoletError("unavailable", "the other side has gone", { cause: connection.closed.reason });
    },
  );
  late.catch(ignore("the race may be over before"));
  try {
    await Promise.race([task, late]);
  } catch (error) {
    task.catch(ignore("the other error is thrown, and the connection is closed"));
    connection[Symbol.dispose]();
    throw error;
  } finally {
    limit.abort();
  }
}

interface StatusText {
  readonly status?: unknown;
  readonly message?: unknown;
}

/** Before v4 the error channel has a message, or nothing when all went well. */
function writingText(stream: SpdyStream): CommandChannel {
  return {
    read: (signal) => stream.read(signal),
    write: async (bytes, signal) => {
      const status = JSON.parse(Buffer.from(bytes).toString("utf8")) as StatusText;
      if (status.status !== "Success") await stream.write(Buffer.from(String(status.message ?? "failed")), signal);
    },
    end: () => stream.end(),
  };
}

function readingText(stream: SpdyStream): CommandChannel {
  let told = false;
  return {
    read: async (signal) => {
      if (told) return undefined;
      told = true;
      const pieces: Uint8Array[] = [];
      for (let piece = await stream.read(signal); piece !== undefined; piece = await stream.read(signal)) {
        pieces.push(piece);
      }
      const message = Buffer.concat(pieces).toString("utf8");
      const status =
        message === "" ? { status: "Success" } : { status: "Failure", message, reason: "InternalError", code: 500 };
      return Buffer.from(JSON.stringify({ metadata: {}, ...status }));
    },
    write: (bytes, signal) => stream.write(bytes, signal),
    end: () => stream.end(),
  };
}
