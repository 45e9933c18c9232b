/** Two ends of a tunnel in one process: a line with a rate and a latency, on virtual time. */
import { type Clock, type Log, millis } from "@picolet/protocol/ports.ts";
import { type Link, Mux, type MuxInit } from "@picolet/protocol/tunnel/mux.ts";

export interface LineInit {
  /** One way. */
  readonly latencyMs: () => number;
  readonly bytesPerMs: number;
}

/** One direction: what is sent is with the peer after it went through the line, in order. */
export class MemoryLink implements Link {
  readonly #clock: Clock;
  readonly #line: LineInit;
  readonly #signal: AbortSignal;
  #waiting: Uint8Array[] = [];
  #bytes = 0;
  #isRunning = false;
  readonly #travelling: { readonly bytes: Uint8Array; readonly at: number }[] = [];
  maxBufferedBytes = 0;
  closedWith: { readonly code: number; readonly reason: string } | undefined;
  onArrival: (bytes: Uint8Array) => void = () => undefined;
  onDrained: () => void = () => undefined;

  constructor(clock: Clock, line: LineInit, signal: AbortSignal) {
    this.#clock = clock;
    this.#line = line;
    this.#signal = signal;
  }

  get bufferedBytes(): number {
    return this.#bytes;
  }

  send(bytes: Uint8Array): void {
    // As a socket: what was sent is not the sender's any more.
    this.#waiting.push(bytes.slice());
    this.#bytes += bytes.length;
    this.maxBufferedBytes = Math.max(this.maxBufferedBytes, this.#bytes);
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#run().catch(() => undefined);
  }

  close(code: number, reason: string): void {
    this.closedWith ??= { code, reason };
  }

  async #run(): Promise<void> {
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      await this.#clock.sleep(millis(next.length / this.#line.bytesPerMs), this.#signal);
      this.#bytes -= next.length;
      this.#travel(next);
      this.onDrained();
    }
    this.#isRunning = false;
  }

  #travel(bytes: Uint8Array): void {
    const at = this.#clock.monotonic() + this.#line.latencyMs();
    this.#travelling.push({ bytes, at });
    if (this.#travelling.length === 1) this.#arrive().catch(() => undefined);
  }

  /** Delivers in order, even if latencies differ. */
  async #arrive(): Promise<void> {
    for (let next = this.#travelling[0]; next !== undefined; next = this.#travelling[0]) {
      await this.#clock.sleep(millis(Math.max(0, next.at - this.#clock.monotonic())), this.#signal);
      this.#travelling.shift();
      this.onArrival(next.bytes);
    }
  }
}

export interface JoinedMuxes {
  readonly agent: Mux;
  readonly hub: Mux;
  readonly agentLink: MemoryLink;
  readonly hubLink: MemoryLink;
}

export type Ends = Readonly<Record<"agent" | "hub", Pick<MuxInit, "onMessage" | "onStream">>>;

export function joinMuxes(clock: Clock, log: Log, line: LineInit, ends: Ends, signal: AbortSignal): JoinedMuxes {
  const agentLink = new MemoryLink(clock, line, signal);
  const hubLink = new MemoryLink(clock, line, signal);
  const agent = new Mux({ clock, log, link: agentLink }, { role: "agent", ...ends.agent });
  const hub = new Mux({ clock, log, link: hubLink }, { role: "hub", ...ends.hub });
  agentLink.onArrival = (bytes) => hub.receive(bytes);
  agentLink.onDrained = () => agent.drained();
  hubLink.onArrival = (bytes) => agent.receive(bytes);
  hubLink.onDrained = () => hub.drained();
  return { agent, hub, agentLink, hubLink };
}
