/** A client of a message bus on a unix socket (D-Bus specification: EXTERNAL authentication, the bus's own methods). */

import { connect, type Socket } from "node:net";
import { checkCancelled, wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import { type DbusCall, DbusDecoder, type DbusMessage, type DbusValue, encodeCall } from "./dbus-message.ts";

/** As libdbus waits. */
const CALL_LIMIT = seconds(25);
/** The server's lines are of some 40 bytes. */
const MAX_AUTHENTICATION_BYTES = 1024;
/**
 * Bounds memory: signals that wait for their reader. logind sends two a shutdown. With more the connection is closed,
 * and opened again.
 */
const MAX_SIGNALS = 64;
/** Calls that wait for their answer; ours come one after the other. */
const MAX_CALLS = 16;

const BUS = { destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus" };

interface Waiting {
  readonly resolve: (body: readonly DbusValue[]) => void;
  readonly reject: (error: Error) => void;
}

/** The address of the system bus: from the environment as libdbus reads it, else the standard one. */
export function systemBusPath(environment: Readonly<Record<string, string | undefined>>): string {
  const address = environment.DBUS_SYSTEM_BUS_ADDRESS ?? "";
  const path = /(?:^|;)unix:(?:[^;]*,)?path=([^,;]+)/.exec(address)?.[1];
  return path === undefined ? "/run/dbus/system_bus_socket" : decodeURIComponent(path);
}

export class DbusConnection implements Disposable {
  readonly #socket: Socket;
  readonly #clock: Clock;
  readonly #decoder = new DbusDecoder();
  readonly #calls = new Map<number, Waiting>();
  #signals: DbusMessage[] = [];
  #wake: (() => void) | undefined;
  #serial = 0;
  #failure: PicoletError | undefined;
  readonly #onSignal: ((message: DbusMessage) => void) | undefined;

  /**
   * @param onSignal given each signal as it comes; without it they wait for `nextSignal`
   * @throws PicoletError `unavailable`, `permission_denied`, `corrupt`, `deadline_exceeded`, `cancelled`
   */
  static async open(
    path: string,
    clock: Clock,
    signal: AbortSignal,
    onSignal?: (message: DbusMessage) => void,
  ): Promise<DbusConnection> {
    const socket = connect(path);
    try {
      const authenticate = (deadline: AbortSignal): Promise<Buffer> => authenticated(socket, deadline);
      const rest = await withDeadline(clock, CALL_LIMIT, "open the message bus", authenticate, signal);
      const connection = new DbusConnection(socket, clock, rest, onSignal);
      await connection.call({ ...BUS, member: "Hello", signature: "", body: [] }, signal);
      return connection;
    } catch (error) {
      socket.destroy();
      throw toPicoletError(error, "unavailable", `cannot open the message bus at ${path}`);
    }
  }

  private constructor(
    socket: Socket,
    clock: Clock,
    rest: Buffer,
    onSignal: ((message: DbusMessage) => void) | undefined,
  ) {
    this.#socket = socket;
    this.#onSignal = onSignal;
    this.#clock = clock;
    socket.on("data", (bytes: Buffer) => this.#receive(bytes));
    socket.on("error", (error) => this.#fail(toPicoletError(error, "unavailable", "cannot use the message bus")));
    socket.on("close", () => this.#fail(new PicoletError("unavailable", "the message bus has closed the connection")));
    if (rest.length > 0) this.#receive(rest);
    socket.resume();
  }

  /**
   * @throws PicoletError `failed` with the name of the error that the other side answered with; `unavailable`,
   * `cancelled`
   */
  async call(call: DbusCall, signal: AbortSignal): Promise<readonly DbusValue[]> {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#calls.size >= MAX_CALLS)
      throw new PicoletError("resource_exhausted", `cannot call ${call.member} as well`);
    this.#serial += 1;
    const serial = this.#serial;
    const exchange = (): Promise<readonly DbusValue[]> =>
      new Promise((resolve, reject) => {
        this.#calls.set(serial, { resolve, reject });
        this.#socket.write(encodeCall(call, serial));
      });
    try {
      return await withDeadline(this.#clock, CALL_LIMIT, `call ${call.interface}.${call.member}`, exchange, signal);
    } finally {
      this.#calls.delete(serial);
    }
  }

  /** Subscribes to such signals. */
  async subscribe(rule: string, signal: AbortSignal): Promise<void> {
    await this.call({ ...BUS, member: "AddMatch", signature: "s", body: [rule] }, signal);
  }

  /** In the order in which they came. @throws PicoletError what has ended the connection; `cancelled` */
  async nextSignal(signal: AbortSignal): Promise<DbusMessage> {
    for (;;) {
      const next = this.#signals.shift();
      if (next !== undefined) return next;
      if (this.#failure !== undefined) throw this.#failure;
      checkCancelled(signal, "the wait for a signal");
      await wokenOrAborted(signal, (wake) => {
        this.#wake = wake;
        return () => {
          this.#wake = undefined;
        };
      });
    }
  }

  [Symbol.dispose](): void {
    this.#fail(new PicoletError("unavailable", "the connection to the message bus was closed"));
  }

  #receive(bytes: Buffer): void {
    if (this.#failure !== undefined) return;
    try {
      for (const message of this.#decoder.push(bytes)) this.#take(message);
    } catch (error) {
      this.#fail(toPicoletError(error, "corrupt", "cannot read from the message bus"));
    }
  }

  #take(message: DbusMessage): void {
    if (message.kind === "signal" && this.#onSignal !== undefined) this.#onSignal(message);
    else if (message.kind === "signal") this.#keep(message);
    else this.#answer(message);
  }

  #keep(message: DbusMessage): void {
    this.#signals.push(message);
    this.#wake?.();
    if (this.#signals.length > MAX_SIGNALS) throw new PicoletError("resource_exhausted", "too many signals");
  }

  #answer(message: DbusMessage): void {
    const waiting = this.#calls.get(message.replySerial);
    if (message.kind === "return") waiting?.resolve(message.body);
    if (message.kind !== "error") return;
    const [text = ""] = message.body;
    const cause = new Error(`${message.errorName}: ${String(text)}`);
    waiting?.reject(new PicoletError("failed", "cannot do what was asked over the message bus", { cause }));
  }

  #fail(failure: PicoletError): void {
    this.#failure ??= failure;
    this.#socket.destroy();
    for (const { reject } of this.#calls.values()) reject(this.#failure);
    this.#calls.clear();
    this.#wake?.();
  }
}

/** @returns what came after the last line of the authentication; the socket is paused then */
function authenticated(socket: Socket, signal: AbortSignal): Promise<Buffer> {
  const user = Buffer.from(String(process.getuid?.() ?? 0)).toString("hex");
  return new Promise((resolve, reject) => {
    let received: Buffer = Buffer.alloc(0);
    const settle = (settled: () => void): void => {
      socket.pause();
      socket.off("connect", onConnect).off("close", onClose).off("data", onData);
      signal.removeEventListener("abort", onAbort);
      settled();
    };
    const refuse = (why: string): void =>
      settle(() => reject(new PicoletError("permission_denied", "cannot authenticate", { cause: new Error(why) })));
    const onAbort = (): void => settle(() => reject(signal.reason));
    const onConnect = (): void => void socket.write(`\0AUTH EXTERNAL ${user}\r\n`);
    const onClose = (): void => refuse("it closed the connection");
    const onData = (bytes: Buffer): void => {
      received = Buffer.concat([received, bytes]);
      const end = received.indexOf("\r\n");
      const line = received.toString("latin1", 0, end < 0 ? MAX_AUTHENTICATION_BYTES + 1 : end);
      if (line.length > MAX_AUTHENTICATION_BYTES) refuse("a line without end");
      else if (end >= 0 && !line.startsWith("OK ")) refuse(line);
      else if (end >= 0) {
        socket.write("BEGIN\r\n");
        settle(() => resolve(received.subarray(end + 2)));
      }
    };
    signal.addEventListener("abort", onAbort, { once: true });
    socket.on("connect", onConnect).on("close", onClose).on("data", onData);
    // Stays: one that comes before the connection's next owner listens must not end the program.
    socket.on("error", (error) => settle(() => reject(error)));
  });
}
