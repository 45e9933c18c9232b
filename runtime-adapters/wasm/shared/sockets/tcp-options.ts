/** Options of a TCP socket, as far as Node can set them. */
import { networkFailure } from "./socket-errors.ts";
import type { BufferSizes, TcpConnection } from "./tcp-connection.ts";

const MILLISECONDS = 1000;
const NANOSECONDS = 1_000_000_000n;
/** Linux' default and limits. */
const DEFAULT_IDLE_SECONDS = 7200;
const MAX_IDLE_SECONDS = 32_767;
/** libuv sets these two values itself. */
const INTERVAL_SECONDS = 1n;
const PROBES = 10;
/** Linux' own, which Node cannot change. */
const HOP_LIMIT = 64;
/** Bounds the buffer between component and system. The system has buffers of its own besides. */
const DEFAULT_BUFFER_BYTES = 32_768;
const MIN_BUFFER_BYTES = 4096;
const MAX_BUFFER_BYTES = 65_536;

export class TcpOptions {
  readonly sizes: BufferSizes = { receive: DEFAULT_BUFFER_BYTES, send: DEFAULT_BUFFER_BYTES };
  keepAlive = false;
  #idleSeconds = DEFAULT_IDLE_SECONDS;

  /** As a connection has them from the socket that it was accepted by. */
  copy(): TcpOptions {
    const copy = new TcpOptions();
    copy.keepAlive = this.keepAlive;
    copy.#idleSeconds = this.#idleSeconds;
    Object.assign(copy.sizes, this.sizes);
    return copy;
  }

  /** Nanoseconds; rounded to seconds. */
  get idleTime(): bigint {
    return BigInt(this.#idleSeconds) * NANOSECONDS;
  }

  set idleTime(value: bigint) {
    this.#idleSeconds = Number(clamped(notZero(value) / NANOSECONDS, 1, MAX_IDLE_SECONDS));
  }

  get interval(): bigint {
    return INTERVAL_SECONDS * NANOSECONDS;
  }

  /** The interface allows a host to round the value. */
  set interval(value: bigint) {
    notZero(value);
  }

  get count(): number {
    return PROBES;
  }

  set count(value: number) {
    notZero(BigInt(value));
  }

  get hopLimit(): number {
    return HOP_LIMIT;
  }

  set hopLimit(value: number) {
    notZero(BigInt(value));
    if (value !== HOP_LIMIT) throw networkFailure("not-supported");
  }

  setSize(which: keyof BufferSizes, bytes: bigint): void {
    this.sizes[which] = Number(clamped(notZero(bytes), MIN_BUFFER_BYTES, MAX_BUFFER_BYTES));
  }

  applyTo(connection: Pick<TcpConnection, "setKeepAlive">): void {
    connection.setKeepAlive(this.keepAlive, this.#idleSeconds * MILLISECONDS);
  }
}

function notZero(value: bigint): bigint {
  if (value === 0n) throw networkFailure("invalid-argument");
  return value;
}

function clamped(value: bigint, least: number, most: number): bigint {
  if (value < BigInt(least)) return BigInt(least);
  return value > BigInt(most) ? BigInt(most) : value;
}
