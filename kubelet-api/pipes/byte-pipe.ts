/** Two directions of bytes with back-pressure over a socket, a WebSocket or a stream of the tunnel. */
import type { EventEmitter } from "node:events";
import type { Duplex } from "node:stream";
import { joinSignals, rejectOnAbort } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import type { TunnelStream } from "@picolet/protocol/tunnel/stream.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { RawData, WebSocket } from "ws";

export interface BytePipe {
  /** The next bytes, as they came; undefined at the other side's end. @throws what broke it, `cancelled` */
  read(signal: AbortSignal): Promise<Uint8Array | undefined>;
  /** Resolves when more can be taken. The bytes are not to be changed afterwards. @throws what broke it, `cancelled` */
  write(bytes: Uint8Array, signal: AbortSignal): Promise<void>;
  /** Nothing more will be written. */
  end(): void;
  /** Ends both directions at once. */
  destroy(): void;
}

/** Bounds what waits in a WebSocket before its writer waits: one message of each of its channels. */
const MAX_WEB_SOCKET_BUFFER_BYTES = 256 * KIBIBYTE;

/** Resolves with the first of `events` of `emitter`, or rejects as `cancelled` when `signal` aborts. */
export async function onceAny(
  emitter: Pick<EventEmitter, "once" | "off">,
  events: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const onEvent = (): void => resolve();
  for (const event of events) emitter.once(event, onEvent);
  try {
    await rejectOnAbort(promise, signal, "the wait for a socket");
  } finally {
    for (const event of events) emitter.off(event, onEvent);
  }
}

/** A socket that has no other reader. */
export class SocketPipe implements BytePipe {
  readonly #socket: Duplex;

  constructor(socket: Duplex) {
    this.#socket = socket;
    socket.on("error", ignore("the reader or writer gets it; without a listener it would end the process"));
  }

  async read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    const socket = this.#socket;
    for (;;) {
      const piece: unknown = socket.read();
      if (piece instanceof Uint8Array) return piece;
      if (socket.readableEnded) return undefined;
      if (socket.destroyed) throw brokenOff(socket.errored);
      await onceAny(socket, ["readable", "end", "close"], signal);
    }
  }

  async write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.#socket.destroyed || this.#socket.writableEnded) throw brokenOff(this.#socket.errored);
    if (!this.#socket.write(bytes)) await onceAny(this.#socket, ["drain", "close"], signal);
    if (this.#socket.destroyed) throw brokenOff(this.#socket.errored);
  }

  end(): void {
    this.#socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }
}

const brokenOff = (cause: unknown): PicoletError =>
  new PicoletError("unavailable", "the connection was broken off", cause ? { cause } : {});

/** Every message a piece, in both directions; its end is a closing handshake. */
export class WebSocketPipe implements BytePipe {
  readonly #socket: WebSocket;
  readonly #received: Uint8Array[] = [];
  #closed: { readonly clean: boolean } | undefined;
  #wake: (() => void) | undefined;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data: RawData) => {
      // `nodebuffer` is the binary type: one buffer a message.
      this.#received.push(data as Buffer);
      socket.pause();
      this.#wake?.();
    });
    socket.on("close", (code) => {
      this.#closed = { clean: code === 1000 || code === 1005 };
      this.#wake?.();
    });
    socket.on("error", ignore("`close` follows"));
  }

  async read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    for (;;) {
      const piece = this.#received.shift();
      if (piece !== undefined) return piece;
      if (this.#closed !== undefined) {
        if (this.#closed.clean) return undefined;
        throw brokenOff(undefined);
      }
      this.#socket.resume();
      await this.#next(signal);
    }
  }

  /** @param message text for a text message */
  async write(message: Uint8Array | string, signal: AbortSignal): Promise<void> {
    if (this.#socket.readyState !== this.#socket.OPEN) throw brokenOff(undefined);
    const sent = new Promise<void>((resolve, reject) => {
      this.#socket.send(message, (error) => {
        if (error) reject(toPicoletError(error, "unavailable", "cannot send on the WebSocket"));
        else resolve();
      });
    });
    if (this.#socket.bufferedAmount < MAX_WEB_SOCKET_BUFFER_BYTES) {
      sent.catch(ignore("the socket closes after it, which both sides see"));
      return;
    }
    await rejectOnAbort(sent, signal, "the wait for a socket");
  }

  end(): void {
    this.close(1000);
  }

  /** @param code of RFC 6455, section 7.4 */
  close(code: number): void {
    // A paused one would never see the other side's answer.
    this.#socket.resume();
    this.#socket.close(code);
  }

  destroy(): void {
    this.#socket.terminate();
  }

  async #next(signal: AbortSignal): Promise<void> {
    const next = new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    await rejectOnAbort(next, signal, "the wait for a socket");
  }
}

/** A stream of the tunnel. */
export class TunnelPipe implements BytePipe {
  readonly #stream: TunnelStream;

  constructor(stream: TunnelStream) {
    this.#stream = stream;
  }

  read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    return this.#stream.read(signal);
  }

  write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.#stream.write(bytes, signal);
  }

  end(): void {
    this.#stream.end();
  }

  destroy(): void {
    this.#stream.reset({ code: "cancelled", message: "the client has gone" });
  }
}

async function copy(from: BytePipe, to: BytePipe, signal: AbortSignal): Promise<void> {
  for (;;) {
    const piece = await from.read(signal);
    if (piece === undefined) break;
    await to.write(piece, signal);
  }
  to.end();
}

/** Like `copy`, but reads on to the end of `from` when `to` takes no more. */
async function copyWhileTaken(from: BytePipe, to: BytePipe, signal: AbortSignal): Promise<void> {
  let isTaken = true;
  for (;;) {
    const piece = await from.read(signal);
    if (piece === undefined) break;
    if (!isTaken) continue;
    await to.write(piece, signal).catch(() => {
      isTaken = false;
    });
  }
  if (isTaken) to.end();
}

/** How long a client may take to close its side when the session is over; then it is disconnected. */
const LINGER = seconds(10);

/**
 * Copies both ways until both have ended, or one breaks; then neither is left. Never throws.
 * @param back whose end is the end of the session. `front` is read on until it ends too: closing a socket with
 * something unread in it would take away from its client what it has not read yet.
 */
export async function joinPipes(
  { clock }: { readonly clock: Clock },
  front: BytePipe,
  back: BytePipe,
  signal: AbortSignal,
): Promise<void> {
  using life = joinSignals(signal);
  // A write that fails says no more than that the end of `back` is near, with what it said last still to be read.
  const forth = copyWhileTaken(front, back, life.signal);
  const fro = copy(back, front, life.signal).then(() => {
    clock.sleep(LINGER, life.signal).then(() => life.abort(), ignore("the front has ended in time"));
  });
  try {
    await Promise.all([forth, fro]);
  } catch {
    ignore("the error is dropped: each side sees that the connection is over");
  } finally {
    life.abort();
    front.destroy();
    back.destroy();
  }
}
