/** A tunnel on virtual time, with what it needs on both sides. */

import type { StreamHandlers } from "@picolet/agent/core/hub/tunnel-ports.ts";
import { Tunnel, type TunnelInit } from "@picolet/agent/tunnel/tunnel.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "../ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "../ports/recorders.ts";
import { seededRandom } from "../ports/seeded-random.ts";
import { VirtualClock } from "../ports/virtual-clock.ts";
import { TestHub } from "./tunnel-hub.ts";
import { VirtualNetwork } from "./tunnel-network.ts";
import { NodeDisk, RecordedIdentity, TunnelNodePorts } from "./tunnel-node.ts";

export interface TunnelBenchInit {
  readonly seed?: number;
  readonly identity?: RecordedIdentity;
  /** Host names. */
  readonly hubs?: readonly string[];
  readonly handlers?: StreamHandlers;
  readonly heartbeatInterval?: TunnelInit["heartbeatInterval"];
}

export class TunnelBench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly events = new RecordedEvents();
  readonly disk = new NodeDisk();
  readonly hub = new TestHub();
  readonly network: VirtualNetwork;
  readonly identity: RecordedIdentity;
  node: TunnelNodePorts;
  tunnel: Tunnel;
  readonly #init: TunnelBenchInit;
  #stop = new AbortController();
  #running: Promise<void> | undefined;

  constructor(init: TunnelBenchInit = {}) {
    this.#init = init;
    this.identity = init.identity ?? new RecordedIdentity();
    this.network = new VirtualNetwork(this);
    this.network.hubs.set("hub.example", this.hub);
    this.node = new TunnelNodePorts(this.disk);
    this.tunnel = this.#make();
  }

  #make(): Tunnel {
    const { clock, log, events, network, identity, node } = this;
    const { seed = 1, handlers = {}, hubs = ["hub.example"], heartbeatInterval = seconds(30) } = this.#init;
    const random = seededRandom(seed);
    return new Tunnel(
      { clock, log, events, network, dialer: network, identity, node, handlers, random },
      {
        nodeName: "edge-1",
        hubs: hubs.map((host) => ({ host, port: 443, url: `https://${host}` })),
        heartbeatInterval,
        reconnectBackoff: { initial: seconds(1), max: seconds(60) },
      },
    );
  }

  /** Runs, and lets the first session come about. */
  async start(): Promise<void> {
    this.#running = endOfRun(this.tunnel.run(this.#stop.signal));
    await this.pass(200);
  }

  /** The agent is gone from one moment to the next; what is on disk stays. */
  async kill(): Promise<void> {
    this.network.cut();
    this.#stop.abort();
    await this.#running;
  }

  /** A fresh agent over the same disk. */
  async restart(): Promise<void> {
    await this.kill();
    this.#stop = new AbortController();
    this.node = new TunnelNodePorts(this.disk);
    this.tunnel = this.#make();
    await this.start();
  }

  pass(durationMs: number): Promise<void> {
    return this.clock.advance(millis(durationMs));
  }

  /** Goes on until it is connected; at most for `limitMs`. */
  async connected(limitMs = 120_000): Promise<void> {
    const end = this.clock.monotonic() + limitMs;
    await this.pass(1);
    while (this.tunnel.report().state !== "connected" && this.clock.monotonic() < end) await this.pass(100);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.network[Symbol.dispose]();
  }
}
