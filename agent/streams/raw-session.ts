/**
 * A session in mode `raw`: bytes between a stream of the tunnel and the runtime's streaming server, or a pod's port,
 * and nothing else.
 */
import { connect, type Socket } from "node:net";
import { cancelled, onAbort } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { TunnelStream } from "@picolet/protocol/tunnel/stream.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { RuntimeStream } from "@picolet/runtime-contract/runtime-adapter.ts";

type Upgrade = Extract<RuntimeStream, { kind: "upgrade" }>;
type RuntimeAddress = Pick<Upgrade, "host" | "port">;

/** What is read from the runtime at once; each session has one such buffer. */
const READ_BUFFER_BYTES = 32 * KIBIBYTE;
/**
 * Pieces read ahead of the tunnel; with them a session holds 128 KiB at most. More than one, because what a command
 * said last has to be read before a write finds that the runtime has gone: Node then throws away what is unread.
 */
const MAX_PIECES = 3;

/** A connection that is read only as fast as its bytes are taken. */
export class RuntimeConnection implements Disposable {
  readonly #socket: Socket;
  readonly #pieces: Uint8Array[] = [];
  #ended = false;
  #wake: (() => void) | undefined;

  private constructor({ host, port }: RuntimeAddress) {
    const onread = {
      // Outside Node's pool: it lives as long as the session.
      buffer: Buffer.allocUnsafeSlow(READ_BUFFER_BYTES),
      callback: (length: number, buffer: Uint8Array): boolean => {
        // The buffer is filled again while the piece waits for the tunnel's credit.
        this.#pieces.push(Uint8Array.prototype.slice.call(buffer, 0, length));
        this.#wake?.();
        return this.#pieces.length < MAX_PIECES;
      },
    };
    this.#socket = connect({ host, port, onread, allowHalfOpen: true });
    this.#socket.setNoDelay(true);
    // Runtimes close with what they have not read, which resets the connection: all the same an end. What went wrong,
    // if anything, is said in the protocol that is carried.
    for (const event of ["error", "end", "close"]) this.#socket.on(event, () => this.#finish());
    // Only a reader sees its end.
    this.#socket.resume();
  }

  /** @param what names the target in errors @throws `unavailable` when no process listens there */
  static async open(address: RuntimeAddress, what: string, signal: AbortSignal): Promise<RuntimeConnection> {
    const connection = new RuntimeConnection(address);
    const socket = connection.#socket;
    try {
      await new Promise<void>((resolve, reject) => {
        const onAbort = (): void => reject(cancelled("the connection"));
        signal.addEventListener("abort", onAbort, { once: true });
        socket.once("connect", () => {
          signal.removeEventListener("abort", onAbort);
          resolve();
        });
        socket.once("error", reject);
        if (signal.aborted) onAbort();
      });
      return connection;
    } catch (error) {
      connection[Symbol.dispose]();
      if (signal.aborted) throw error;
      throw new PicoletError("unavailable", `cannot connect to ${what}`, {
        cause: error,
        retryable: true,
      });
    }
  }

  /** The next bytes, in memory of their own; undefined when the connection has ended for any reason. */
  async read(): Promise<Uint8Array | undefined> {
    while (this.#pieces.length === 0 && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const piece = this.#pieces.shift();
    if (piece !== undefined && !this.#socket.destroyed) this.#socket.resume();
    return piece;
  }

  /** Resolves when more can be written; at once when the runtime has gone, which `read` reports. */
  async write(bytes: Uint8Array): Promise<void> {
    // Lets what has come be read first.
    await new Promise((resolve) => setImmediate(resolve));
    if (this.#ended || this.#socket.write(bytes)) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        this.#socket.off("drain", done);
        this.#socket.off("close", done);
        resolve();
      };
      this.#socket.once("drain", done);
      this.#socket.once("close", done);
    });
  }

  end(): void {
    this.#socket.end();
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }

  #finish(): void {
    this.#ended = true;
    this.#wake?.();
  }
}

/** One line a value: containerd before 1.7 does not take a list of protocol versions apart. */
function headerLines(name: string, value: string): string[] {
  const values = name === "x-stream-protocol-version" ? value.split(",") : [value];
  return values.map((each) => `${name}: ${each.trim()}\r\n`);
}

/** @param headers of the client, checked: names in lower case, values without control characters. */
export function upgradeRequest(target: Upgrade, headers: Readonly<Record<string, string>>): Buffer {
  // A WebSocket is asked for with GET; SPDY clients use POST.
  const method = headers.upgrade?.toLowerCase() === "websocket" ? "GET" : "POST";
  const host = target.host.includes(":") ? `[${target.host}]` : target.host;
  const lines = Object.entries(headers).flatMap(([name, value]) => headerLines(name, value));
  const length = method === "POST" ? "content-length: 0\r\n" : "";
  return Buffer.from(
    `${method} ${target.path} HTTP/1.1\r\nhost: ${host}:${target.port}\r\n${length}connection: Upgrade\r\n${lines.join("")}\r\n`,
    "latin1",
  );
}

/**
 * Copies both ways until both have ended, or one is gone. At most a buffer, a piece and what the tunnel's credit lets
 * through are held.
 * @throws what broke it
 */
export async function copyRaw(stream: TunnelStream, connection: RuntimeConnection, signal: AbortSignal): Promise<void> {
  using _end = onAbort(signal, () => connection[Symbol.dispose]());
  const down = async (): Promise<void> => {
    for (;;) {
      const piece = await connection.read();
      if (piece === undefined) break;
      await stream.write(piece, signal);
    }
    stream.end();
  };
  const up = async (): Promise<void> => {
    for (;;) {
      const piece = await stream.read(signal);
      if (piece === undefined) break;
      await connection.write(piece);
    }
    connection.end();
  };
  try {
    await Promise.all([down(), up()]);
  } finally {
    connection[Symbol.dispose]();
  }
}
