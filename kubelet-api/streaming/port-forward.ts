/**
 * Forwarded ports over SPDY/3.1, for pods whose connections a node gives one by one. The client opens two streams for
 * each connection, one for its bytes and one for its error message, with the same `requestid` in their
 * headers.
 */

import { type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { describeError, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import { type BytePipe, joinPipes } from "../pipes/byte-pipe.ts";
import { SpdyConnection } from "./spdy/spdy-connection.ts";
import type { SpdyStream } from "./spdy/spdy-stream.ts";

export const PORT_FORWARD_PROTOCOL = "portforward.k8s.io";
/** Subprotocol of a WebSocket whose messages are the bytes of such a connection. */
export const TUNNELLED_PORT_FORWARD_PROTOCOL = `SPDY/3.1+${PORT_FORWARD_PROTOCOL}`;

/** Kubernetes' own limit between the two streams of one connection. */
const PAIR_LIMIT = seconds(30);
const MAX_REQUEST_ID_LENGTH = 64;

export interface PortForwardComponents {
  readonly clock: Clock;
  /** @throws an error whose message the client gets */
  connect(port: number, signal: AbortSignal): Promise<BytePipe>;
}

/** Until the client goes, or `signal` aborts; no connection is left then. Never throws. */
export async function forwardPorts(
  components: PortForwardComponents,
  pipe: BytePipe,
  signal: AbortSignal,
): Promise<void> {
  const connections = new Set<Promise<void>>();
  const onStream = (stream: SpdyStream): void => {
    const pair = pairs.add(stream, client.closed);
    if (pair === undefined) return;
    const connection = forwardOne(components, pair, client.closed);
    connections.add(connection);
    void connection.then(() => connections.delete(connection));
  };
  const pairs = new StreamPairs(components.clock);
  const client = new SpdyConnection(pipe, { role: "server", onStream });
  await client.run(signal);
  await Promise.all(connections);
}

interface StreamPair {
  readonly port: number;
  readonly data: SpdyStream;
  readonly error: SpdyStream;
}

/** The first of the two streams of a connection, until the other arrives. */
interface Half {
  readonly type: string;
  readonly stream: SpdyStream;
  readonly waiting: JoinedSignal;
}

/** Streams that are none of a pair, or stay alone, are reset. */
class StreamPairs {
  readonly #clock: Clock;
  readonly #halves = new Map<string, Half>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @returns the pair whose second stream it is */
  add(stream: SpdyStream, closed: AbortSignal): StreamPair | undefined {
    const wanted = wish(stream);
    const half = this.#halves.get(wanted?.key ?? "");
    if (wanted === undefined || half?.type === wanted.type) {
      stream.reset();
      return undefined;
    }
    const { type, port, key } = wanted;
    if (half === undefined) {
      this.#wait(key, { type, stream, waiting: joinSignals(closed) });
      return undefined;
    }
    this.#halves.delete(key);
    half.waiting.abort();
    return type === "data" ? { port, data: stream, error: half.stream } : { port, data: half.stream, error: stream };
  }

  #wait(key: string, half: Half): void {
    const { stream, waiting } = half;
    this.#halves.set(key, half);
    const isLate = (): void => {
      this.#halves.delete(key);
      stream.reset();
    };
    void this.#clock
      .sleep(PAIR_LIMIT, waiting.signal)
      .then(isLate, ignore("the pair was complete in time, or the session is over"))
      .finally(() => waiting[Symbol.dispose]());
  }
}

/** @returns undefined for what is neither of the two, or for no port */
function wish({ id, headers }: SpdyStream): { type: string; port: number; key: string } | undefined {
  const { streamtype: type = "", port: digits = "" } = headers;
  const port = /^[1-9]\d{0,4}$/.test(digits) ? Number(digits) : 0;
  if ((type !== "data" && type !== "error") || port === 0 || port > 65_535) return undefined;
  // Old clients open the stream for errors first, and number nothing.
  const request = headers.requestid ?? `after ${type === "error" ? id : id - 2}`;
  return request.length > MAX_REQUEST_ID_LENGTH ? undefined : { type, port, key: `${port} ${request}` };
}

/** Never throws. */
async function forwardOne(
  { clock, connect }: PortForwardComponents,
  { port, data, error }: StreamPair,
  signal: AbortSignal,
): Promise<void> {
  try {
    const back = await connect(port, signal);
    await joinPipes({ clock }, new StreamPipe(data), back, signal);
  } catch (failure) {
    const message = `error forwarding port ${port}: ${describeError(failure)}`;
    await error
      .write(Buffer.from(message), signal)
      .catch(ignore("the client is gone; the reset below ends the stream"));
    data.reset();
  } finally {
    error.end();
  }
}

/** A stream of the client's. One that it has reset is broken, not at its end. */
class StreamPipe implements BytePipe {
  readonly #stream: SpdyStream;

  constructor(stream: SpdyStream) {
    this.#stream = stream;
  }

  async read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    const piece = await this.#stream.read(signal);
    if (piece === undefined && this.#stream.isReset) throw new PicoletError("unavailable", "the client has gone");
    return piece;
  }

  write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.#stream.write(bytes, signal);
  }

  end(): void {
    this.#stream.end();
  }

  destroy(): void {
    this.#stream.reset();
  }
}
