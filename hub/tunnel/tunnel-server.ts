import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import { aborted, joinSignals } from "../../protocol/async/abort.ts";
import type { Component } from "../../protocol/async/component.ts";
import { type Watch, WatchSource } from "../../protocol/async/watch.ts";
import { describeError, isCancelled, PicoletError } from "../../protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, type Random } from "../../protocol/ports.ts";
import { MAX_FRAME_BYTES } from "../../protocol/tunnel/frames.ts";
import { TUNNEL_SUBPROTOCOL } from "../../protocol/tunnel/messages.ts";
import type { Lane, OpenedStream, StreamKind } from "../../protocol/tunnel/stream.ts";
import type { Fleet, FleetBackend } from "../core/fleet.ts";
import type { TelemetryReceiver } from "../core/telemetry.ts";
import { NodeRegistry } from "./node-registry.ts";
import { NodeSession, type SessionComponents, type SessionInit } from "./node-session.ts";
import { TimerWheel } from "./timer-wheel.ts";
import { WriteSlots } from "./write-slots.ts";

export interface TunnelServerComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly backend: FleetBackend;
  /** Undefined: agents are told that no telemetry is taken here. */
  readonly telemetry?: TelemetryReceiver;
}

export interface TunnelServerInit {
  readonly hubVersion: string;
  /** How often agents ping at least. A session that is silent for two of them and 15 s ends. Default 30 s. */
  readonly heartbeat?: Millis;
  /** Sessions at a time; further agents are told to come back later. Default 10,000: 660 MB. */
  readonly maxSessions?: number;
  /**
   * Sessions at a time that were not welcomed yet. Default 4,000: what a core greets in ten seconds, a hello's deadline.
   * Whoever is refused costs another TLS handshake when it comes again, so that fewer would make a storm longer.
   */
  readonly maxGreeting?: number;
  /** Writes to the API server at a time, of the whole fleet. Default 64. */
  readonly maxWrites?: number;
}

const HEARTBEAT = millis(30_000);
const MAX_SESSIONS = 10_000;
const MAX_GREETING = 4000;
const MAX_WRITES = 64;

const EPOCH_BYTES = 8;
/** What `ws` waits for the other end's close frame before it destroys the socket. */
const CLOSE_TIMEOUT_MS = 5000;
/** Whoever listens to `nodes` hears of a storm of reconnects ten times a second, not five thousand times. */
const PUBLISH_PERIOD_MS = 100;
/** Seconds that an agent is asked to stay away when there is no room; it adds its own jitter. */
const RETRY_FULL_S = 30;
const RETRY_GREETING_S = 2;

/** Options of `ws` that its type declarations do not know yet. */
interface WebSocketServerLimits {
  readonly closeTimeout: number;
  readonly maxBufferedChunks: number;
  readonly maxFragments: number;
}

const LIMITS: WebSocketServerLimits = { closeTimeout: CLOSE_TIMEOUT_MS, maxBufferedChunks: 32_768, maxFragments: 16 };

/** The hub's end of all tunnels. Sessions begin with `handleUpgrade`; `run` turns the clock that all of them share. */
export class TunnelServer implements Fleet, Component {
  readonly name = "tunnel server";
  readonly #components: TunnelServerComponents;
  readonly #init: Required<TunnelServerInit>;
  readonly #epoch: Uint8Array;
  readonly #sockets: WebSocketServer;
  readonly #wheel: TimerWheel;
  readonly #sessionComponents: SessionComponents;
  readonly #registry: NodeRegistry;
  readonly #sessions = new Set<NodeSession>();
  readonly #live = new Map<string, NodeSession>();
  readonly #nodes = new WatchSource<ReadonlySet<string>>(new Set());
  readonly #publishing = { slot: undefined as number | undefined, onDue: () => this.#publish() };
  #publishedAt = Number.NEGATIVE_INFINITY;
  #draining: string | undefined;
  #greeting = 0;
  readonly #life = joinSignals();

  constructor(components: TunnelServerComponents, init: TunnelServerInit) {
    const { clock, random, log, backend, telemetry } = components;
    this.#components = components;
    this.#init = {
      heartbeat: HEARTBEAT,
      maxSessions: MAX_SESSIONS,
      maxGreeting: MAX_GREETING,
      maxWrites: MAX_WRITES,
      ...init,
    };
    this.#epoch = Uint8Array.from({ length: EPOCH_BYTES }, () => Math.floor(random.next() * 256));
    this.#sockets = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      maxPayload: MAX_FRAME_BYTES,
      handleProtocols: () => TUNNEL_SUBPROTOCOL,
      ...LIMITS,
    });
    this.#wheel = new TimerWheel(clock);
    this.#registry = new NodeRegistry({ clock, random, log, backend }, { maxRemembered: this.#init.maxSessions * 2 });
    const slots = new WriteSlots(this.#init.maxWrites);
    const host = {
      admit: (session: NodeSession) => this.#registry.admit(session),
      live: (session: NodeSession) => this.#onLive(session),
      ended: (session: NodeSession) => this.#onEnded(session),
    };
    this.#sessionComponents = { clock, random, log, wheel: this.#wheel, slots, host, telemetry };
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal, this.#life.signal);
    await this.#wheel.run(life.signal);
    await aborted(life.signal);
  }

  /**
   * An upgrade to `TUNNEL_PATH` of a client whose certificate says that it is `nodeName`. Answers it, whatever comes of it.
   */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer, nodeName: string): void {
    const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((each) => each.trim());
    if (!offered.includes(TUNNEL_SUBPROTOCOL)) {
      const message = `this hub speaks ${TUNNEL_SUBPROTOCOL}, not ${offered.join(", ") || "no subprotocol at all"}\n`;
      const headers = ["Upgrade: websocket", `Sec-WebSocket-Protocol: ${TUNNEL_SUBPROTOCOL}`];
      answer(socket, "426 Upgrade Required", headers, message);
      return;
    }
    const busy = this.#problem();
    if (busy !== undefined) {
      answer(socket, "503 Service Unavailable", [`Retry-After: ${busy.retryAfterS}`], `${busy.message}\n`);
      return;
    }
    const address = "remoteAddress" in socket ? String(socket.remoteAddress) : "";
    this.#sockets.handleUpgrade(request, socket, head, (webSocket) => this.#begin(webSocket, nodeName, address));
  }

  #problem(): { readonly message: string; readonly retryAfterS: number } | undefined {
    if (this.#draining !== undefined) return { message: this.#draining, retryAfterS: RETRY_GREETING_S };
    const { maxSessions, maxGreeting } = this.#init;
    if (this.#sessions.size >= maxSessions) {
      return { message: `this hub serves ${maxSessions} agents and no more`, retryAfterS: RETRY_FULL_S };
    }
    if (this.#greeting >= maxGreeting) {
      return { message: `this hub is greeting ${maxGreeting} agents already`, retryAfterS: RETRY_GREETING_S };
    }
    const problem = this.#components.backend.problem.current;
    return problem === "" ? undefined : { message: problem, retryAfterS: RETRY_GREETING_S };
  }

  #begin(socket: WebSocket, node: string, address: string): void {
    const { hubVersion, heartbeat } = this.#init;
    const init: SessionInit = { node, address, hubVersion, heartbeat, epoch: this.#epoch };
    this.#greeting += 1;
    this.#sessions.add(new NodeSession(this.#sessionComponents, socket, init));
  }

  #onLive(session: NodeSession): void {
    this.#greeting -= 1;
    this.#live.set(session.node, session);
    this.#changed();
  }

  #onEnded(session: NodeSession): void {
    this.#sessions.delete(session);
    const wasLive = session.wasLive;
    if (!wasLive) this.#greeting -= 1;
    if (this.#live.get(session.node) === session) {
      this.#live.delete(session.node);
      this.#changed();
    }
    this.#registry.ended(session);
  }

  #changed(): void {
    const wait = this.#publishedAt + PUBLISH_PERIOD_MS - this.#components.clock.monotonic();
    if (wait <= 0) this.#publish();
    else if (this.#publishing.slot === undefined) this.#wheel.set(this.#publishing, millis(wait));
  }

  #publish(): void {
    this.#publishedAt = this.#components.clock.monotonic();
    this.#nodes.set(new Set(this.#live.keys()));
  }

  has(node: string): boolean {
    return this.#live.has(node);
  }

  /** Told at most ten times a second; `has` knows at once. */
  get nodes(): Watch<ReadonlySet<string>> {
    return this.#nodes;
  }

  async open(node: string, kind: StreamKind, params: unknown, lane: Lane, signal: AbortSignal): Promise<OpenedStream> {
    const session = this.#live.get(node);
    if (session === undefined) {
      throw new PicoletError("unavailable", `cannot reach node ${node}: it is not connected`, { retryable: true });
    }
    return await session.mux.open(kind, params, lane, signal);
  }

  /** Sessions now, welcomed or not. */
  get sessionCount(): number {
    return this.#sessions.size;
  }

  /**
   * Tells every agent to go elsewhere, spread over `spread`, and takes no new one. Resolves when all have gone, or after
   * `spread` and `grace`, when those that are left are cut off.
   */
  async drain(reason: string, spread: Millis, grace: Millis, signal: AbortSignal): Promise<void> {
    const { random, log } = this.#components;
    this.#draining = reason;
    log.info("telling all agents to go elsewhere", { agents: this.#live.size, spreadMs: spread });
    for (const session of this.#sessions) {
      if (session.isLive) session.drain(Math.floor(random.next() * spread), reason);
      else session.refuse({ kind: "refusal", code: "overloaded", message: reason, retryAfterMs: 1 });
    }
    try {
      if (this.#sessions.size > 0) await this.#waitUntilEmpty(millis(spread + grace), signal);
    } catch (error) {
      if (!isCancelled(error)) throw error;
    }
    this.#closeAll(reason);
  }

  async #waitUntilEmpty(limit: Millis, signal: AbortSignal): Promise<void> {
    using waiting = joinSignals(signal);
    const timeout = this.#wheel.sleep(limit, waiting.signal).then(
      () => waiting.abort(),
      () => undefined,
    );
    for await (const nodes of this.#nodes.changes(waiting.signal)) if (nodes.size === 0) break;
    waiting.abort();
    await timeout;
  }

  #closeAll(reason: string): void {
    for (const session of [...this.#sessions]) session.close(new PicoletError("unavailable", reason));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#draining ??= "the hub is ending";
    this.#closeAll(this.#draining);
    this.#life.abort();
    try {
      await this.#registry[Symbol.asyncDispose]();
    } catch (error) {
      this.#components.log.warn("cannot let go of all nodes", { error: describeError(error) });
    }
  }
}

/** An HTTP answer instead of the upgrade; the connection ends with it. */
function answer(socket: Duplex, status: string, headers: readonly string[], body: string): void {
  const head = [
    `HTTP/1.1 ${status}`,
    "Connection: close",
    "Content-Type: text/plain; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
  ];
  socket.once("error", () => socket.destroy());
  socket.end(`${[...head, ...headers].join("\r\n")}\r\n\r\n${body}`);
}
