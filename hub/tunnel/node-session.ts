import type { Duplex } from "node:stream";
import type { WriteSlots } from "@picolet/hub-core/fairness/write-slots.ts";
import type { DesiredSet, NodeBackend } from "@picolet/hub-core/fleet.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import type { SampleReceiver, TelemetryReceiver } from "@picolet/hub-core/telemetry-ports.ts";
import type { TimerWheel, WheelTimer } from "@picolet/hub-core/timer-wheel.ts";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import type { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import { describeError, ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, type Random } from "@picolet/protocol/ports.ts";
import { statusHash } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { FleetIdentity, Hello, Refusal, TunnelMessage, Welcome } from "@picolet/protocol/tunnel/messages.ts";
import { Mux } from "@picolet/protocol/tunnel/mux.ts";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { WebSocket } from "ws";
import type { NodeMemory } from "./desired-memory.ts";
import { Downlink } from "./downlink.ts";
import { answerAgentStream, type NodeSlots } from "./token-stream.ts";
import type { TunnelCounts } from "./tunnel-counts.ts";
import { Uplink } from "./uplink.ts";
import { WebSocketLink } from "./web-socket-link.ts";

export interface SessionComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly wheel: TimerWheel;
  readonly slots: WriteSlots;
  readonly limits: NodeLimits;
  readonly host: SessionHost;
  readonly telemetry: TelemetryReceiver | undefined;
  readonly samples: SampleReceiver | undefined;
  readonly counts: TunnelCounts;
}

export interface SessionInit {
  readonly node: string;
  /** Address of the agent's end, for logs. */
  readonly address: string;
  readonly hubVersion: string;
  /** 8 bytes. */
  readonly epoch: Uint8Array;
  readonly fleet: FleetIdentity | undefined;
  /** The agent's interval: a silence of two of them and some slack ends the session. */
  readonly heartbeat: Millis;
}

/** The parts of a session that belong to its node, passed from one session of the node to the next. */
export interface SessionLease {
  readonly backend: NodeBackend;
  readonly memory: NodeMemory;
}

/** The rates of each node, by name, over all its sessions; a node that does more is served more slowly. */
export interface NodeLimits {
  /** Objects that it writes, events besides. */
  readonly writes: RateLimits;
  readonly events: RateLimits;
  /** Questions about clients of its own port. One above it is refused. */
  readonly reviews: RateLimits;
  /** Bytes of messages that it sends: what streams carry is held back by their credit. */
  readonly messageBytes: RateLimits;
}

/** The owner of the sessions: at most one of each node. */
export interface SessionHost {
  /** @throws SessionRefused: the agent must get the refusal, and the session must end */
  admit(session: NodeSession): Promise<SessionLease>;
  /** It was welcomed. */
  live(session: NodeSession): void;
  /** Called once, when the session is over for any reason. */
  ended(session: NodeSession): void;
}

/** The refusal that the agent gets, with the time to come again. */
export class SessionRefused extends Error {
  readonly refusal: Refusal;

  constructor(code: string, message: string, retryAfterMs: number) {
    super(message);
    this.refusal = { kind: "refusal", code, message, retryAfterMs };
  }
}

type SessionState =
  | { readonly kind: "awaitingHello" }
  /** Covers the end of another session of the node, and the start of the hub's watches. */
  | { readonly kind: "starting" }
  | { readonly kind: "live"; readonly downlink: Downlink; readonly uplink: Uplink }
  /** The agent has been asked to go; everything else goes on. */
  | { readonly kind: "draining"; readonly downlink: Downlink; readonly uplink: Uplink }
  | { readonly kind: "closed"; readonly uplink: Uplink | undefined };

/** From the end of the TLS handshake to one message. */
const HELLO_DEADLINE = millis(10_000);
/** A hub that has just started lists its watches within this time. */
const SYNC_DEADLINE = millis(30_000);
/** Added to two heartbeats: an agent's own deadline for an answer. */
const SILENCE_SLACK_MS = 15_000;
/**
 * Messages of a node at once and in the long run, without its streams. A full inventory, the statuses of 110 pods and a
 * report are some 2 MiB; the busiest board of `npm run soak` sends 2 KiB a second.
 */
export const MESSAGE_BYTES = { burst: 4 * MEBIBYTE, perSecond: 128 * KIBIBYTE };
/** Cost of a frame in bytes, even of a small one: 200 pings a second and no more. */
const FRAME_COST = 640;
/** Cost of a stream's data at least: 1,000 frames of a few bytes a second. Larger ones are held back by credit alone. */
const DATA_FRAME_COST = 128;
/** An agent that was refused for what may be over soon comes again after one to five seconds. */
const SOON_MS = 1000;
const SPREAD_MS = 4000;

/** One agent's session. It has no timer of its own, and nothing that is not needed yet. */
export class NodeSession {
  readonly #components: SessionComponents;
  readonly #init: SessionInit;
  readonly #socket: WebSocket;
  readonly #mux: Mux;
  readonly #timer: WheelTimer = { slot: undefined, onDue: () => this.#onTimer() };
  #state: SessionState = { kind: "awaitingHello" };
  /** Until the welcome. */
  #hello: Hello | undefined;
  #lease: SessionLease | undefined;
  #wasPaused = false;

  /** @param stream what `socket` is over */
  constructor(components: SessionComponents, socket: WebSocket, stream: Duplex, init: SessionInit) {
    this.#components = components;
    this.#init = init;
    this.#socket = socket;
    const { clock, log, wheel } = components;
    const link = new WebSocketLink(socket, stream, components.counts);
    const onMessage = (message: TunnelMessage): void => this.#onMessage(message);
    const onStream = (stream: IncomingStream): void => this.#onStream(stream);
    const onClosed = (error: PicoletError): void => this.#onClosed(error);
    this.#mux = new Mux({ clock, log, link }, { role: "hub", onMessage, onStream, onClosed });
    link.onDrained = () => this.#mux.drained();
    socket.on("message", (data: Buffer, isBinary: boolean) => this.#onData(data, isBinary));
    socket.on("close", () => this.close(new PicoletError("unavailable", "the agent's connection is closed")));
    // `close` follows.
    socket.on("error", (error: Error) =>
      this.close(new PicoletError("unavailable", "the agent's connection broke", { cause: error })),
    );
    wheel.set(this.#timer, HELLO_DEADLINE);
  }

  get node(): string {
    return this.#init.node;
  }

  get address(): string {
    return this.#init.address;
  }

  get mux(): Mux {
    return this.#mux;
  }

  /** Nothing has come from the agent yet. */
  get isAwaitingHello(): boolean {
    return this.#state.kind === "awaitingHello";
  }

  get isClosed(): boolean {
    return this.#state.kind === "closed";
  }

  get isLive(): boolean {
    return this.#state.kind === "live" || this.#state.kind === "draining";
  }

  /** True when the agent still answers. */
  async isAlive(limit: Millis): Promise<boolean> {
    const { clock } = this.#components;
    try {
      await withDeadline(clock, limit, "hear from the agent", (signal) => this.#mux.ping(signal), this.#mux.closed);
      return true;
    } catch {
      return false;
    }
  }

  /** Tells the agent to go elsewhere in `reconnectAfterMs`. */
  drain(reconnectAfterMs: number, reason: string): void {
    if (this.#state.kind !== "live") return;
    this.#transition({ ...this.#state, kind: "draining" });
    this.#send({ kind: "drain", reconnectAfterMs, reason });
  }

  refuse(refusal: Refusal): void {
    this.close(new PicoletError("unavailable", refusal.message), refusal);
  }

  close(error: PicoletError, farewell?: Refusal): void {
    this.#mux.close(error, farewell);
  }

  /** Resolves when nothing that this session began is being written any more. */
  async settled(): Promise<void> {
    if (this.#state.kind === "closed") await this.#state.uplink?.settled();
  }

  #onData(data: Buffer, isBinary: boolean): void {
    if (!isBinary) {
      this.#violate("a text message: frames are binary");
      return;
    }
    this.#components.counts.count("received", data);
    const before = this.#mux.bytesReceivedWithoutCredit;
    this.#mux.receive(data);
    const bytes = this.#mux.bytesReceivedWithoutCredit - before;
    const cost = bytes > 0 ? bytes + FRAME_COST : DATA_FRAME_COST - data.length;
    if (cost > 0) this.#charge(cost);
  }

  /** An agent that has sent more messages than it may is read again when the time for them has passed. */
  #charge(bytes: number): void {
    const { limits, wheel, log } = this.#components;
    limits.messageBytes.spend(this.node, bytes);
    const debt = -limits.messageBytes.left(this.node);
    if (debt <= 0 || this.#socket.isPaused || this.isClosed) return;
    if (!this.#wasPaused) log.warn("an agent sends more than it may; it is read more slowly", { node: this.node });
    this.#wasPaused = true;
    this.#socket.pause();
    const resume = (): void => this.#socket.resume();
    wheel.sleep(millis((debt / MESSAGE_BYTES.perSecond) * 1000), this.#mux.closed).then(resume, resume);
  }

  #violate(what: string): void {
    const error = new PicoletError("invalid", `cannot accept ${what}`);
    this.close(error, { kind: "refusal", code: "protocol", message: error.message, retryAfterMs: 0 });
  }

  #onTimer(): void {
    const { clock, wheel } = this.#components;
    if (this.#state.kind === "closed") return;
    if (this.#state.kind === "awaitingHello") {
      this.#violate(`silence: no hello within ${HELLO_DEADLINE / 1000} s`);
      return;
    }
    const limit = 2 * this.#init.heartbeat + SILENCE_SLACK_MS;
    const silence = clock.monotonic() - this.#mux.lastReceivedAt;
    if (silence < limit) {
      wheel.set(this.#timer, millis(limit - silence));
      return;
    }
    this.close(new PicoletError("unavailable", `the agent was silent for ${Math.round(silence / 1000)} s`));
    // No peer is there to answer a close.
    this.#socket.terminate();
  }

  #onMessage(message: TunnelMessage): void {
    const state = this.#state;
    if (message.kind === "refusal") {
      const { code } = message;
      // The operator has to know: its pods run on, and nothing of this hub reaches it.
      if (code === "fleet")
        this.#components.log.error("a board belongs to another fleet", { node: this.node, ...message });
      this.close(new PicoletError("unavailable", `the agent ended the session (${code}): ${message.message}`));
      return;
    }
    switch (state.kind) {
      case "awaitingHello":
        if (message.kind !== "hello") throw outOfOrder(message, "before the hello");
        this.#hello = message;
        this.#transition({ kind: "starting" });
        this.#start(message).catch((error: unknown) => this.#onFailure(error));
        return;
      case "starting":
        throw outOfOrder(message, "before the welcome");
      case "live":
      case "draining":
        handle(message, state.downlink, state.uplink);
        return;
      case "closed":
        return;
    }
  }

  #onStream(stream: IncomingStream): void {
    if (this.#lease === undefined || !this.isLive) {
      throw new PicoletError("invalid", "cannot accept a stream before the welcome");
    }
    const { slots, telemetry, samples, limits } = this.#components;
    const { node } = this;
    if (stream.kind === "telemetry" && telemetry !== undefined) telemetry.receive(stream, node);
    else if (stream.kind === "samples" && samples !== undefined) samples.receive(stream, node);
    else {
      const nodeSlots: NodeSlots = { run: (write, until) => slots.run(node, write, until) };
      const reviewLimit = (): number => limits.reviews.take(node);
      answerAgentStream(stream, this.#lease.backend, { slots: nodeSlots, reviewLimit });
    }
  }

  async #start(hello: Hello): Promise<void> {
    const { host, wheel } = this.#components;
    const lease = await host.admit(this);
    if (this.isClosed) return;
    this.#lease = lease;
    const set = await this.#synced(lease.backend);
    if (this.isClosed) return;
    const signal = this.#mux.closed;
    const downlink = this.#makeDownlink(lease, signal);
    const uplink = this.#makeUplink(lease, signal);
    const stand = downlink.standOf(hello.cursor.digest, set);
    this.#transition({ kind: "live", downlink, uplink });
    wheel.set(this.#timer, millis(2 * this.#init.heartbeat + SILENCE_SLACK_MS));
    host.live(this);
    this.#components.counts.sessions += 1;
    this.#send(this.#welcome(lease, set, stand));
    this.#hello = undefined;
    downlink.run({ digest: hello.cursor.digest, set, stand });
  }

  #onFailure(error: unknown): void {
    if (isCancelled(error) || this.isClosed) return;
    if (error instanceof SessionRefused) {
      this.refuse(error.refusal);
      return;
    }
    this.#components.log.error("a session failed", { node: this.node, error: describeError(error) });
    const message = "the hub failed to serve the session";
    this.refuse({ kind: "refusal", code: "overloaded", message, retryAfterMs: this.#soon() });
  }

  #soon(): number {
    return SOON_MS + Math.floor(this.#components.random.next() * SPREAD_MS);
  }

  /** The first set of which it is known that nothing is missing. */
  async #synced(backend: NodeBackend): Promise<DesiredSet> {
    if (backend.desired.current.synced) return backend.desired.current;
    using waiting = joinSignals(this.#mux.closed);
    this.#components.wheel
      .sleep(SYNC_DEADLINE, waiting.signal)
      .then(() => waiting.abort(), ignore("it was synced in time"));
    try {
      for await (const set of backend.desired.changes(waiting.signal)) if (set.synced) return set;
    } finally {
      waiting.abort();
    }
    throw new SessionRefused("overloaded", "the hub does not know yet what its nodes are to have", this.#soon());
  }

  #makeDownlink({ backend, memory }: SessionLease, signal: AbortSignal): Downlink {
    const { clock, log, wheel, counts } = this.#components;
    const send = (message: TunnelMessage): void => this.#send(message);
    const flushed = (until: AbortSignal): Promise<void> => this.#mux.flushed("control", until);
    const welcome = (): void => {
      if (this.#lease !== undefined) this.#send(this.#welcome(this.#lease, backend.desired.current, "inventory"));
    };
    const failed = (error: unknown): void => this.#onFailure(error);
    const { node } = this;
    const parts = { clock, log, wheel, counts, backend, memory };
    return new Downlink({ ...parts, node, send, flushed, welcome, failed }, signal);
  }

  #makeUplink({ backend }: SessionLease, signal: AbortSignal): Uplink {
    const { clock, random, log, wheel, slots, limits, counts } = this.#components;
    const send = (message: TunnelMessage): void => this.#send(message);
    const sendWithNext = (message: TunnelMessage): void => this.#mux.sendWithNext(message);
    const sendWaiting = (): void => this.#mux.sendRiders();
    const maxAckDelay = millis(this.#init.heartbeat + SILENCE_SLACK_MS);
    const sending = { send, sendWithNext, sendWaiting, maxAckDelay };
    const shared = { clock, random, log, wheel, slots, limits, counts };
    return new Uplink({ ...shared, node: this.node, backend, ...sending }, signal);
  }

  #welcome({ backend }: SessionLease, set: DesiredSet, desired: Welcome["desired"]): Welcome {
    const { hubVersion, epoch, fleet } = this.#init;
    const mirrors = backend.mirrorsDigest();
    const report = this.#hello === undefined ? undefined : backend.nodeReport();
    const reportHash = report === undefined ? undefined : statusHash(sha256, report);
    const has = (mine: Uint8Array | undefined, theirs: Uint8Array | undefined): boolean =>
      // A second welcome of a session asks for nothing that is on its way already.
      theirs === undefined || (mine !== undefined && equalBytes(mine, theirs));
    return {
      kind: "welcome",
      hubVersion,
      epoch,
      revision: set.revision,
      timeMs: this.#components.clock.wall().getTime(),
      desired,
      wantsMirrors: !has(mirrors, this.#hello?.mirrorsDigest),
      wantsNode: !has(reportHash, this.#hello?.nodeHash),
      takesTelemetry: this.#components.telemetry !== undefined,
      ...(fleet === undefined
        ? {}
        : { fleet, takesCompactStatuses: true, samplesEverySeconds: this.#components.samples?.everySeconds }),
    };
  }

  /** Sends nothing in a session that is over; ends one whose peer takes nothing. */
  #send(message: TunnelMessage): void {
    if (this.#mux.closed.aborted) return;
    try {
      this.#mux.send(message);
    } catch (error) {
      if (!(error instanceof PicoletError)) throw error;
      this.close(error, { kind: "refusal", code: "limit", message: describeError(error), retryAfterMs: 0 });
    }
  }

  #onClosed(reason: PicoletError): void {
    const uplink = this.#state.kind === "live" || this.#state.kind === "draining" ? this.#state.uplink : undefined;
    this.#components.wheel.clear(this.#timer);
    this.#transition({ kind: "closed", uplink });
    const { bytesSent, bytesReceived } = this.#mux;
    const fields = { node: this.node, address: this.address, reason: describeError(reason), bytesSent, bytesReceived };
    if (reason.code === "invalid") {
      this.#components.log.warn("an agent broke the protocol", fields);
    } else this.#components.log.info("a session ended", fields);
    this.#components.counts.ends.add([reason.code]);
    this.#components.host.ended(this);
  }

  #transition(next: SessionState): void {
    this.#state = next;
  }
}

const outOfOrder = ({ kind }: TunnelMessage, when: string): PicoletError =>
  new PicoletError("invalid", `cannot accept ${kind} ${when}`);

/** A message of a session that was welcomed. @throws `invalid` */
function handle(message: TunnelMessage, downlink: Downlink, uplink: Uplink): void {
  switch (message.kind) {
    case "inventory":
      downlink.onInventory(message);
      return;
    case "desiredAck":
      downlink.onAck(message.revision);
      return;
    case "resync":
      downlink.onResync();
      return;
    case "statuses":
      uplink.onStatuses(message);
      return;
    case "events":
      uplink.onEvents(message);
      return;
    case "node":
      uplink.onNode(message);
      return;
    case "mirrors":
      uplink.onMirrors(message);
      return;
    default:
      throw outOfOrder(message, "from an agent that was welcomed");
  }
}
