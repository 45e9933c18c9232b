import { wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";
import type { Deadlines } from "./deadlines.ts";
import { Http2Connection, nameOf, type ServerAddress } from "./http2-connection.ts";

/**
 * From the second failed attempt in a row on, later calls are refused for this long; a runtime that is back is found
 * within the longest delay. No jitter: it is one client of a local socket.
 */
const RECONNECT: BackoffPolicy = { first: millis(10), max: millis(500) };

export interface Http2ClientInit {
  /** A unix socket need not exist yet. */
  readonly address: ServerAddress;
  readonly readBuffer: Buffer | undefined;
  /** Bounds the time from connecting to the other side's SETTINGS. */
  readonly connectTimeoutMs: number;
}

interface Waiter {
  readonly resolve: (connection: Http2Connection) => void;
  readonly reject: (error: PicoletError) => void;
}

/**
 * One connection to one socket, made when it is first needed and made again after it was lost. A call for it fails
 * quickly while the socket is dead; the next call tries again.
 */
export class Http2Client implements Disposable {
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #init: Http2ClientInit;
  #current: Http2Connection | undefined;
  /** Connections that received GOAWAY, and still have calls that run. */
  readonly #draining = new Set<Http2Connection>();
  readonly #waiters = new Set<Waiter>();
  /** Called once when the connection breaks. */
  readonly #losses = new Set<() => void>();
  #failures = 0;
  #refusal: { readonly untilMs: number; readonly error: PicoletError } | undefined;
  #disposed = false;

  constructor(components: { readonly clock: Clock; readonly deadlines: Deadlines }, init: Http2ClientInit) {
    this.#clock = components.clock;
    this.#deadlines = components.deadlines;
    this.#init = init;
  }

  /** The open connection when there is one: most calls need not wait. */
  get open(): Http2Connection | undefined {
    return this.#current?.state.kind === "open" ? this.#current : undefined;
  }

  /** @throws `unavailable` or `permission_denied` when there is no connection to be had now. */
  connection(): Promise<Http2Connection> {
    return new Promise((resolve, reject) => {
      const { open } = this;
      if (open !== undefined) return resolve(open);
      if (this.#disposed) return reject(this.#disposedError());
      if (this.#current === undefined) {
        if (this.#refusal !== undefined && this.#clock.monotonic() < this.#refusal.untilMs) {
          return reject(this.#refusal.error);
        }
        this.#connect();
      }
      this.#waiters.add({ resolve, reject });
    });
  }

  /** Resolves when a connection breaks that was open, or the other side says that it will; or `signal` aborts. */
  disconnected(signal: AbortSignal): Promise<void> {
    if (this.#disposed) return Promise.resolve();
    return wokenOrAborted(signal, (wake) => {
      this.#losses.add(wake);
      return () => this.#losses.delete(wake);
    });
  }

  [Symbol.dispose](): void {
    this.#disposed = true;
    const error = this.#disposedError();
    for (const connection of [this.#current, ...this.#draining]) connection?.close(error);
  }

  #disposedError(): PicoletError {
    return new PicoletError(
      "unavailable",
      `cannot talk to ${nameOf(this.#init.address)}: this client has been disposed of`,
    );
  }

  #connect(): void {
    const { address, readBuffer, connectTimeoutMs } = this.#init;
    const connection = new Http2Connection(address, readBuffer, () => this.#changed(connection, deadline));
    const deadline = this.#deadlines.add(connectTimeoutMs, () => {
      const message = `cannot connect to ${nameOf(address)}: no answer within ${connectTimeoutMs} ms`;
      connection.close(new PicoletError("unavailable", message, { retryable: true }));
    });
    this.#current = connection;
  }

  #changed(connection: Http2Connection, deadline: Disposable): void {
    const { state } = connection;
    if (state.kind !== "handshaking") deadline[Symbol.dispose]();
    switch (state.kind) {
      case "handshaking":
        return;
      case "open":
        this.#failures = 0;
        this.#refusal = undefined;
        for (const waiter of this.#takeWaiters()) waiter.resolve(connection);
        return;
      case "draining":
        this.#draining.add(connection);
        if (this.#current === connection) this.#current = undefined;
        this.#reportLoss();
        return;
      case "closed":
        this.#draining.delete(connection);
        if (this.#current === connection) this.#lost(state.error);
    }
  }

  #reportLoss(): void {
    for (const settle of [...this.#losses]) settle();
  }

  #lost(error: PicoletError): void {
    this.#current = undefined;
    const waiters = this.#takeWaiters();
    // No call waits for it, so it had been open.
    if (waiters.length === 0) this.#reportLoss();
    else {
      this.#failures += 1;
      // The second attempt comes at once.
      const untilMs = this.#clock.monotonic() + backoffDelay(RECONNECT, this.#failures - 1);
      this.#refusal = { untilMs, error };
    }
    for (const waiter of waiters) waiter.reject(error);
  }

  #takeWaiters(): readonly Waiter[] {
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    return waiters;
  }
}
