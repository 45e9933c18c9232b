/** A network between a node's tunnel and a hub, on virtual time. */

import type { HubAddress } from "@picolet/agent/core/hub/hub-address.ts";
import type { NodeCredentials } from "@picolet/agent/core/hub/identity.ts";
import type { Connection, ConnectionListener, Dialer } from "@picolet/agent/tunnel/dialing/dialer.ts";
import type { NetworkChanges } from "@picolet/agent/tunnel/dialing/network-changes.ts";
import { TunnelError } from "@picolet/agent/tunnel/dialing/tunnel-error.ts";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis } from "@picolet/protocol/ports.ts";
import type { Link } from "@picolet/protocol/tunnel/mux.ts";
import type { TestHub } from "./tunnel-hub.ts";

const DIAL_LIMIT_MS = 30_000;

/** One end. What is sent is with the other end after the latency, in order; closing too. */
class Pipe implements Connection, Link {
  readonly #network: VirtualNetwork;
  readonly #life: AbortSignal;
  readonly localAddress = "10.0.0.2";
  readonly bufferedBytes = 0;
  bytesSent = 0;
  bytesReceived = 0;
  messagesSent = 0;
  peer: Pipe | undefined;
  #listener: ConnectionListener | undefined;
  #isClosed = false;
  #lastAt = -1;
  #tasks: (() => void)[] = [];

  constructor(network: VirtualNetwork, life: AbortSignal) {
    this.#network = network;
    this.#life = life;
  }

  attach(listener: ConnectionListener): void {
    this.#listener = listener;
  }

  send(bytes: Uint8Array): void {
    if (this.#isClosed) return;
    this.bytesSent += bytes.length;
    this.messagesSent += 1;
    const copy = bytes.slice();
    this.#later(() => this.peer?.arrive(copy));
  }

  close(code: number, reason: string): void {
    if (this.#isClosed) return;
    this.#later(() => this.peer?.closeWith(`the connection was closed: ${code} ${reason}`));
    this.closeWith("closed here");
  }

  arrive(bytes: Uint8Array): void {
    if (this.#isClosed) return;
    this.bytesReceived += bytes.length;
    this.#listener?.onMessage(bytes);
  }

  closeWith(message: string): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#listener?.onClosed(new PicoletError("unavailable", message, { retryable: true }));
  }

  /** What is sent in one moment arrives in one piece, as over TCP. */
  #later(task: () => void): void {
    const { clock, latencyMs, isSilent } = this.#network;
    if (isSilent) return;
    const at = Math.max(this.#lastAt, clock.monotonic() + latencyMs);
    if (at === this.#lastAt && this.#tasks.length > 0) {
      this.#tasks.push(task);
      return;
    }
    this.#lastAt = at;
    const tasks: (() => void)[] = [task];
    this.#tasks = tasks;
    clock.sleep(millis(at - clock.monotonic()), this.#life).then(
      () => {
        if (this.#tasks === tasks) this.#tasks = [];
        if (!this.#network.isSilent) for (const each of tasks) each();
      },
      () => undefined,
    );
  }
}

export class VirtualNetwork implements Dialer, NetworkChanges, Disposable {
  readonly clock: Clock;
  readonly #log: Log;
  /** By host name. */
  readonly hubs = new Map<string, TestHub>();
  latencyMs = 5;
  /** Nothing arrives and no peer is notified: half open. */
  isSilent = false;
  /** Dials fail at once with this. */
  problem: string | undefined;
  /** The hub does not take the node's certificate. */
  refuses = false;
  readonly dials: { readonly atMs: number; readonly host: string }[] = [];
  readonly connections: Pipe[] = [];
  readonly #life = new AbortController();
  #changed = Promise.withResolvers<void>();
  #lost = Promise.withResolvers<void>();

  constructor(ports: { readonly clock: Clock; readonly log: Log }) {
    this.clock = ports.clock;
    this.#log = ports.log;
  }

  async dial({ host }: HubAddress, _credentials: NodeCredentials, signal: AbortSignal): Promise<Connection> {
    this.dials.push({ atMs: this.clock.monotonic(), host });
    const hub = this.hubs.get(host);
    if (this.refuses) throw new TunnelError("permission_denied", "cannot open a tunnel", { isRefusal: true });
    if (this.problem !== undefined || hub === undefined) {
      throw new TunnelError("unavailable", "cannot connect", { cause: new Error(this.problem ?? `no host ${host}`) });
    }
    await this.clock.sleep(millis(this.isSilent ? DIAL_LIMIT_MS : 4 * this.latencyMs), signal);
    if (this.isSilent) throw new TunnelError("deadline_exceeded", "cannot connect", { cause: new Error("silence") });
    const [agent, end] = [new Pipe(this, this.#life.signal), new Pipe(this, this.#life.signal)];
    agent.peer = end;
    end.peer = agent;
    const { mux } = hub.accept(end, { clock: this.clock, log: this.#log });
    end.attach({
      onMessage: (bytes) => mux.receive(bytes),
      onDrain: () => mux.drained(),
      onClosed: (error) => mux.close(new PicoletError("unavailable", error.message)),
    });
    this.connections.push(agent);
    return agent;
  }

  /** Every connection breaks, as with a reset. */
  cut(): void {
    for (const each of this.connections.splice(0)) {
      each.peer?.closeWith("cut");
      each.closeWith("the connection broke");
    }
  }

  change(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  loseAddress(): void {
    this.#lost.resolve();
    this.#lost = Promise.withResolvers();
  }

  changed = (signal: AbortSignal): Promise<void> => either(this.#changed.promise, signal);
  lost = (_address: string, signal: AbortSignal): Promise<void> => either(this.#lost.promise, signal);

  [Symbol.dispose](): void {
    this.#life.abort();
  }
}

function either(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const give = (): void => reject(cancelled("the wait"));
    if (signal.aborted) give();
    signal.addEventListener("abort", give, { once: true });
    promise.then(resolve, reject);
  });
}
