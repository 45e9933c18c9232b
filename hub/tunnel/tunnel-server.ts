import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { WriteSlots } from "@picolet/hub-core/fairness/write-slots.ts";
import type { Fleet, FleetBackend } from "@picolet/hub-core/fleet.ts";
import type { SampleReceiver, TelemetryReceiver } from "@picolet/hub-core/telemetry-ports.ts";
import { TimerWheel } from "@picolet/hub-core/timer-wheel.ts";
import { aborted, ignoreCancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, ignore, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, type Random } from "@picolet/protocol/ports.ts";
import { MAX_FRAME_BYTES } from "@picolet/protocol/tunnel/frames.ts";
import { type FleetIdentity, TUNNEL_SUBPROTOCOL } from "@picolet/protocol/tunnel/messages.ts";
import type { Lane, OpenedStream, StreamKind } from "@picolet/protocol/tunnel/stream.ts";
import { type WebSocket, WebSocketServer } from "ws";
import { NodeRegistry } from "./node-registry.ts";
import { MESSAGE_BYTES, NodeSession, type SessionComponents, type SessionInit } from "./node-session.ts";
import { TunnelCounts } from "./tunnel-counts.ts";

export interface TunnelServerComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly backend: FleetBackend;
  /** Undefined: the welcome announces no telemetry. */
  readonly telemetry?: TelemetryReceiver;
  /** Undefined: boards are asked for no samples of usage. */
  readonly samples?: SampleReceiver | undefined;
}

export interface TunnelServerInit {
  readonly hubVersion: string;
  /** In every welcome; undefined: agents that know their fleet do not take this hub for theirs. */
  readonly fleet?: FleetIdentity | undefined;
  /** How often agents ping at least. A session that is silent for two of them and 15 s ends. Default 30 s. */
  readonly heartbeat?: Millis;
  /** Sessions at a time; further agents are refused with a time to come back. Default 10,000: 660 MB. */
  readonly maxSessions?: number;
  /**
   * Sessions at a time that were not welcomed yet. Default 4,000: what a core greets in ten seconds, a hello's
   * deadline. A refused agent costs another TLS handshake when it comes again, so a lower limit would make a storm
   * longer.
   */
  readonly maxGreeting?: number;
  /** Writes to the API server at a time, of the whole fleet. Default 64. */
  readonly maxWrites?: number;
}

const HEARTBEAT = millis(30_000);
export const MAX_SESSIONS = 10_000;
export const MAX_GREETING = 4000;
const MAX_WRITES = 64;

/**
 * Sessions of one node at a time that were not welcomed yet. An agent has one; on a bad link one or two of before may
 * not have ended here.
 */
export const MAX_GREETING_PER_NODE = 4;
/** Sessions that a node may begin: an agent that flaps backs off to one in some seconds after a few. */
export const SESSION_ATTEMPTS = { burst: 30, perSecond: 0.5 };
/**
 * Objects that a node writes: the statuses and mirror pods of a full node several times over, then one pod in 50 ms.
 */
export const NODE_WRITES = { burst: 2000, perSecond: 20 };
/** Events of a node: less than the embedded API server's quota, so that a batch of them is never refused for good. */
export const NODE_EVENTS = { burst: 300, perSecond: 10 };
/**
 * Reviews of tokens and rights that a node asks for. It caches answers for minutes, so a busy one asks some times a
 * minute; a stolen board that guesses tokens has 2 guesses a second.
 */
export const NODE_REVIEWS = { burst: 60, perSecond: 2 };

const EPOCH_BYTES = 8;
/** How long `ws` waits for the other end's close frame before it destroys the socket. */
const CLOSE_TIMEOUT_MS = 5000;
/** Listeners to `nodes` are notified ten times a second in a storm of reconnects, not five thousand times. */
const PUBLISH_PERIOD_MS = 100;
/** Seconds that an agent is asked to stay away when there is no room; it adds its own jitter. */
const RETRY_FULL_S = 30;
const RETRY_GREETING_S = 2;

/** For the hub's metrics. */
export interface TunnelLoad {
  /** Sessions of agents that were welcomed, and of those that were not yet. */
  readonly live: number;
  readonly greeting: number;
  /** Writes to the API server that are under way, and that wait. */
  readonly writing: number;
  readonly waiting: number;
}

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
  readonly counts = new TunnelCounts();
  readonly #components: TunnelServerComponents;
  readonly #init: Required<Omit<TunnelServerInit, "fleet">> & Pick<TunnelServerInit, "fleet">;
  readonly #epoch: Uint8Array;
  readonly #sockets: WebSocketServer;
  readonly #wheel: TimerWheel;
  readonly #sessionComponents: SessionComponents;
  readonly #registry: NodeRegistry;
  readonly #slots: WriteSlots;
  readonly #sessions = new Set<NodeSession>();
  readonly #live = new Map<string, NodeSession>();
  readonly #nodes = new WatchSource<ReadonlySet<string>>(new Set());
  readonly #publishing = { slot: undefined as number | undefined, onDue: () => this.#publish() };
  #publishedAt = Number.NEGATIVE_INFINITY;
  #draining: string | undefined;
  #greeting = 0;
  /** By node. */
  readonly #greetingOf = new Map<string, Set<NodeSession>>();
  readonly #attempts: RateLimits;
  readonly #life = joinSignals();

  constructor(components: TunnelServerComponents, init: TunnelServerInit) {
    const { clock, random, log, backend, telemetry, samples } = components;
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
    const slots = new WriteSlots({ clock }, this.#init.maxWrites);
    this.#slots = slots;
    this.#attempts = new RateLimits({ clock }, SESSION_ATTEMPTS);
    const limits = {
      writes: new RateLimits({ clock }, NODE_WRITES),
      events: new RateLimits({ clock }, NODE_EVENTS),
      reviews: new RateLimits({ clock }, NODE_REVIEWS),
      messageBytes: new RateLimits({ clock }, MESSAGE_BYTES),
    };
    const host = {
      admit: (session: NodeSession) => this.#registry.admit(session),
      live: (session: NodeSession) => this.#onLive(session),
      ended: (session: NodeSession) => this.#onEnded(session),
    };
    this.#sessionComponents = {
      clock,
      random,
      log,
      wheel: this.#wheel,
      slots,
      limits,
      host,
      telemetry,
      samples,
      counts: this.counts,
    };
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal, this.#life.signal);
    await this.#wheel.run(life.signal);
    await aborted(life.signal);
  }

  /** Answers an upgrade to `TUNNEL_PATH` of a client whose certificate has the name `nodeName`, also with a refusal. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer, nodeName: string): void {
    const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((each) => each.trim());
    if (!offered.includes(TUNNEL_SUBPROTOCOL)) {
      const message = `this hub speaks ${TUNNEL_SUBPROTOCOL}, not ${offered.join(", ") || "no subprotocol at all"}\n`;
      const headers = ["Upgrade: websocket", `Sec-WebSocket-Protocol: ${TUNNEL_SUBPROTOCOL}`];
      this.#refuse(socket, "426 Upgrade Required", headers, message);
      return;
    }
    const busy = this.#problem();
    if (busy !== undefined) {
      this.#refuse(socket, "503 Service Unavailable", [`Retry-After: ${busy.retryAfterS}`], `${busy.message}\n`);
      return;
    }
    const wait = this.#makeRoom(nodeName);
    if (wait > 0) {
      const message = `node ${nodeName} begins more sessions than one agent needs\n`;
      this.#refuse(socket, "429 Too Many Requests", [`Retry-After: ${Math.ceil(wait / 1000)}`], message);
      return;
    }
    const address = "remoteAddress" in socket ? String(socket.remoteAddress) : "";
    this.#sockets.handleUpgrade(request, socket, head, (webSocket) =>
      this.#begin(webSocket, socket, nodeName, address),
    );
  }

  #refuse(socket: Duplex, status: string, headers: readonly string[], message: string): void {
    this.counts.refusals.add([status.slice(0, 3)]);
    answer(socket, status, headers, message);
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

  /**
   * Ends the oldest session of the node that has said nothing yet when there are too many: the agent has given it up.
   * @returns milliseconds after which the node may begin another session; 0: now
   */
  #makeRoom(node: string): number {
    const wait = this.#attempts.take(node);
    const greeting = [...(this.#greetingOf.get(node) ?? [])];
    if (wait > 0 || greeting.length < MAX_GREETING_PER_NODE) return wait;
    const silent = greeting.find(({ isAwaitingHello }) => isAwaitingHello);
    if (silent === undefined) return RETRY_GREETING_S * 1000;
    const message = `node ${node} has begun another session`;
    silent.refuse({ kind: "refusal", code: "superseded", message, retryAfterMs: RETRY_GREETING_S * 1000 });
    return 0;
  }

  #begin(socket: WebSocket, stream: Duplex, node: string, address: string): void {
    const { hubVersion, heartbeat, fleet } = this.#init;
    const init: SessionInit = { node, address, hubVersion, heartbeat, epoch: this.#epoch, fleet };
    const session = new NodeSession(this.#sessionComponents, socket, stream, init);
    this.#sessions.add(session);
    this.#greeting += 1;
    const greeting = this.#greetingOf.get(node) ?? new Set();
    this.#greetingOf.set(node, greeting.add(session));
  }

  #onLive(session: NodeSession): void {
    this.#greeted(session);
    this.#live.set(session.node, session);
    this.#changed();
  }

  /** It is live, or over. */
  #greeted(session: NodeSession): void {
    const greeting = this.#greetingOf.get(session.node);
    if (greeting?.delete(session) !== true) return;
    this.#greeting -= 1;
    if (greeting.size === 0) this.#greetingOf.delete(session.node);
  }

  #onEnded(session: NodeSession): void {
    this.#sessions.delete(session);
    this.#greeted(session);
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

  /** Updated at most ten times a second; `has` is up to date at once. */
  get nodes(): Watch<ReadonlySet<string>> {
    return this.#nodes;
  }

  async open(node: string, kind: StreamKind, params: unknown, lane: Lane, signal: AbortSignal): Promise<OpenedStream> {
    const { clock } = this.#components;
    const startedAt = clock.monotonic();
    try {
      const session = this.#live.get(node);
      if (session === undefined) {
        throw new PicoletError("unavailable", `cannot reach node ${node}: it is not connected`, { retryable: true });
      }
      const stream = await session.mux.open(kind, params, lane, signal);
      this.counts.opened.observe([kind], clock.monotonic() - startedAt);
      return stream;
    } catch (error) {
      this.counts.notOpened.add([kind, isPicoletError(error) ? error.code : "internal"]);
      throw error;
    }
  }

  get load(): TunnelLoad {
    const { seats: writing, waiting } = this.#slots.load;
    return { live: this.#live.size, greeting: this.#greeting, writing, waiting };
  }

  /** Sessions now, welcomed or not. */
  get sessionCount(): number {
    return this.#sessions.size;
  }

  /**
   * Tells every agent to go elsewhere, spread over `spread`, and takes no new one. Resolves when all have gone, or
   * after `spread` and `grace`, when those that are left are cut off.
   */
  async drain(reason: string, spread: Millis, grace: Millis, signal: AbortSignal): Promise<void> {
    const { random, log } = this.#components;
    this.#draining = reason;
    log.info("sending all agents elsewhere", { agents: this.#live.size, spreadMs: spread });
    for (const session of this.#sessions) {
      if (session.isLive) session.drain(Math.floor(random.next() * spread), reason);
      else session.refuse({ kind: "refusal", code: "overloaded", message: reason, retryAfterMs: 1 });
    }
    try {
      if (this.#sessions.size > 0) await this.#waitUntilEmpty(millis(spread + grace), signal);
    } catch (error) {
      ignoreCancelled(error);
    }
    this.#closeAll(reason);
  }

  async #waitUntilEmpty(limit: Millis, signal: AbortSignal): Promise<void> {
    using waiting = joinSignals(signal);
    const timeout = this.#wheel
      .sleep(limit, waiting.signal)
      .then(() => waiting.abort(), ignore("all sessions have ended"));
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
      this.#components.log.warn("cannot release all nodes", { error: describeError(error) });
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
