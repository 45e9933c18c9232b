import { cancelled, ignoreCancelled, joinSignals, onAbort } from "@picolet/protocol/async/abort.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isCancelled, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { AgentMessage, Drain, Refusal, TunnelMessage, Welcome } from "@picolet/protocol/tunnel/messages.ts";
import { Mux } from "@picolet/protocol/tunnel/mux.ts";
import type { IncomingStream, Lane, OpenedStream, StreamKind, StreamOpener } from "@picolet/protocol/tunnel/stream.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { OutgoingSample } from "../core/hub/outgoing-telemetry.ts";
import type { TunnelPorts } from "../core/hub/tunnel-ports.ts";
import { DesiredSync } from "./desired-sync.ts";
import type { Connection } from "./dialing/dialer.ts";
import type { NetworkChanges } from "./dialing/network-changes.ts";
import { TunnelError } from "./dialing/tunnel-error.ts";
import { Heartbeat, type Pulse } from "./heartbeat.ts";
import { judgeFleet } from "./known-fleet.ts";
import type { AcknowledgedReport } from "./lanes/node-lane.ts";
import type { SentStatuses } from "./lanes/sent-statuses.ts";
import { Uplink } from "./lanes/uplink.ts";
import { Violation } from "./lanes/violation.ts";
import type { StreamDispatch } from "./stream-dispatch.ts";

/** A hub answers from memory; on a slow link the hello takes a second. */
const GREETING_LIMIT = seconds(30);

export interface SessionComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly connection: Connection;
  readonly network: NetworkChanges;
  readonly node: TunnelPorts;
  readonly streams: StreamDispatch;
  /** Outlive the session. */
  readonly sent: SentStatuses;
  readonly acknowledged: AcknowledgedReport;
  readonly onDrain: () => void;
  readonly onMeasured: (rttMs: number) => void;
}

export interface Greeting {
  readonly welcome: Welcome;
  readonly rttMs: number;
}

/** One session with one hub, from the hello on. It never throws into the connection: every error ends in `closed`. */
export class Session implements StreamOpener {
  readonly #components: SessionComponents;
  readonly #heartbeatInterval: Millis;
  readonly #mux: Mux;
  readonly #down: DesiredSync;
  readonly #up: Uplink;
  readonly #retired = new AbortController();
  readonly #welcome = Promise.withResolvers<Welcome>();
  #drain: Drain | undefined;
  #phase: "greeting" | "live" | "retired" = "greeting";

  constructor(components: SessionComponents, init: { readonly heartbeatInterval: Millis }) {
    const { clock, log, connection, node, sent, acknowledged } = components;
    this.#components = components;
    this.#heartbeatInterval = init.heartbeatInterval;
    this.#mux = new Mux(
      { clock, log, link: connection },
      {
        role: "agent",
        onMessage: (message) => this.#guard(() => this.#onMessage(message)),
        onStream: (incoming) => this.#guard(() => this.#onStream(incoming)),
      },
    );
    const send = (message: AgentMessage): void => this.#mux.send(message);
    const flushed = (signal: AbortSignal): Promise<void> => this.#mux.flushed("status", signal);
    const retryIn = (delay: Millis): void => void this.#retryDown(delay);
    this.#down = new DesiredSync({ objects: node.objects, log, send, retryIn });
    this.#up = new Uplink({ clock, log, node, sent, acknowledged, send, flushed });
    connection.attach({
      onMessage: (bytes) => this.#guard(() => this.#mux.receive(bytes)),
      onDrain: () => this.#guard(() => this.#mux.drained()),
      onClosed: (error) => this.#mux.close(toPicoletError(error, "unavailable", "the session has ended")),
    });
  }

  /** Aborts when the session is over; the reason says why. */
  get closed(): AbortSignal {
    return this.#mux.closed;
  }

  /** Set when the hub has asked to go elsewhere. */
  get drain(): Drain | undefined {
    return this.#drain;
  }

  /** @throws why there is no session, which is over then; `cancelled` */
  async greet(signal: AbortSignal): Promise<Greeting> {
    const { clock, node } = this.#components;
    using _closed = onAbort(this.closed, () => this.#welcome.reject(this.closed.reason));
    try {
      const start = clock.monotonic();
      this.#mux.send({
        kind: "hello",
        agentVersion: VERSION,
        cursor: node.objects.cursor,
        timeMs: Math.max(0, Math.floor(clock.wall().getTime())),
        ...this.#up.hello,
      });
      const answer = (): Promise<Welcome> => this.#welcome.promise;
      const welcome = await withDeadline(clock, GREETING_LIMIT, "be welcomed by the hub", answer, signal);
      return { welcome, rttMs: clock.monotonic() - start };
    } catch (error) {
      this.close(toPicoletError(error, "unavailable", "the greeting has failed"));
      throw error;
    }
  }

  /** From the welcome until it ends. @returns why */
  async run({ welcome, rttMs }: Greeting, signal: AbortSignal): Promise<PicoletError> {
    const { clock, connection, onMeasured } = this.#components;
    using life = joinSignals(signal, this.closed);
    using syncing = joinSignals(life.signal, this.#retired.signal);
    const init = { interval: this.#heartbeatInterval, firstRttMs: rttMs };
    const heartbeat = new Heartbeat({ clock, pulse: new SessionPulse(this.#mux, connection), onMeasured }, init);
    const end = (error: unknown): void => {
      if (!isCancelled(error)) this.#fail(error);
    };
    await Promise.all([
      heartbeat.run(life.signal).catch(end),
      this.#watchAddress(life.signal).catch(end),
      this.#up.run(syncing.signal).catch(end),
      this.#sendTelemetry(welcome, syncing.signal).catch(end),
      this.#sendSamples(welcome, syncing.signal).catch(end),
    ]);
    this.#up.end();
    this.close(cancelled("the session"));
    return this.closed.reason as PicoletError;
  }

  /** From here on nothing is synced through it: another session takes over. Its streams go on. */
  retire(): void {
    if (this.#phase === "retired") return;
    this.#phase = "retired";
    this.#retired.abort();
    this.#up.end();
  }

  get isRetired(): boolean {
    return this.#phase === "retired";
  }

  close(error: PicoletError): void {
    this.#mux.close(error);
  }

  open(kind: StreamKind, params: unknown, lane: Lane, signal: AbortSignal): Promise<OpenedStream> {
    return this.#mux.open(kind, params, lane, signal);
  }

  /** Nothing of it is loaded before there is something to be sent. */
  async #sendTelemetry({ takesTelemetry }: Welcome, signal: AbortSignal): Promise<void> {
    const { clock, log, node } = this.#components;
    const { telemetry } = node;
    if (telemetry === undefined) return;
    for await (const latest of telemetry.latest.changes(signal)) {
      if (latest === 0) continue;
      if (!takesTelemetry) return telemetry.untaken("it says that it takes none");
      const { TelemetryLane } = await import("./lanes/telemetry-lane.ts");
      const { encodeDelivery } = await import("@picolet/protocol/telemetry/stream-messages.ts");
      const lane = { kind: "telemetry", encoder: () => encodeDelivery } as const;
      return await new TelemetryLane({ clock, log, outgoing: telemetry, opener: this }, lane).run(signal);
    }
  }

  /** Nothing of it is loaded for a hub that wants none. */
  async #sendSamples({ samplesEverySeconds }: Welcome, signal: AbortSignal): Promise<void> {
    const { clock, log, node } = this.#components;
    node.samples?.want(samplesEverySeconds);
    if (node.samples === undefined || samplesEverySeconds === undefined) return;
    const outgoing = await node.samples.outgoing();
    const { TelemetryLane } = await import("./lanes/telemetry-lane.ts");
    const { SampleEncoder } = await import("@picolet/protocol/telemetry/sample-codec.ts");
    const encoder = (): ((item: OutgoingSample) => Uint8Array) => {
      const samples = new SampleEncoder();
      return ({ sequence, sample }) => samples.encode(sequence, sample);
    };
    await new TelemetryLane({ clock, log, outgoing, opener: this }, { kind: "samples", encoder }).run(signal);
  }

  async #watchAddress(signal: AbortSignal): Promise<never> {
    const { connection, network } = this.#components;
    await network.lost(connection.localAddress, signal);
    throw new PicoletError("unavailable", `this node has lost its address ${connection.localAddress}`, {
      retryable: true,
    });
  }

  async #retryDown(delay: Millis): Promise<void> {
    using life = joinSignals(this.closed, this.#retired.signal);
    try {
      await this.#components.clock.sleep(delay, life.signal);
      this.#guard(() => this.#down.retry());
    } catch (error) {
      ignoreCancelled(error);
    }
  }

  #onStream(incoming: IncomingStream): void {
    if (this.#phase === "greeting") throw new Violation("protocol", "a stream before the welcome");
    this.#components.streams.handle(incoming);
  }

  #onMessage(message: TunnelMessage): void {
    if (this.#phase === "retired") return;
    switch (message.kind) {
      case "refusal":
        this.close(refusedBy(message));
        return;
      case "drain":
        this.#onDrain(message);
        return;
      case "welcome":
        this.#onWelcome(message);
        return;
      default:
        if (this.#phase === "greeting") throw new Violation("protocol", `a message ${message.kind} before the welcome`);
        this.#onSyncMessage(message);
    }
  }

  #onWelcome(welcome: Welcome): void {
    const isFirst = this.#phase === "greeting";
    if (!this.#isOfOwnFleet(welcome)) return;
    this.#down.onWelcome(welcome);
    this.#phase = "live";
    this.#up.onWelcome(welcome, isFirst);
    if (isFirst) this.#welcome.resolve(welcome);
  }

  /** Before anything of a welcome counts: a hub of another fleet would have the node end all of its pods. */
  #isOfOwnFleet({ fleet }: Welcome): boolean {
    const { node, log } = this.#components;
    const known = node.fleet.id;
    const verdict = judgeFleet(known, fleet);
    if (verdict.kind === "foreign") {
      const { problem: message } = verdict;
      const farewell = { kind: "refusal", code: "fleet", message, retryAfterMs: 0 } as const;
      this.#mux.close(new TunnelError("conflict", message), farewell);
      return false;
    }
    if (verdict.fleet === known) return true;
    log.info(known === "" ? "the node belongs to a fleet" : "the node's fleet has another id", {
      fleet: verdict.fleet,
      ...(known === "" ? {} : { before: known }),
    });
    node.fleet.set(verdict.fleet);
    return true;
  }

  #onDrain(drain: Drain): void {
    if (this.#phase === "greeting") {
      this.close(new TunnelError("unavailable", `the hub is about to go: ${drain.reason}`));
      return;
    }
    this.#drain ??= drain;
    this.#components.onDrain();
  }

  #onSyncMessage(message: Exclude<TunnelMessage, Welcome | Drain | Refusal>): void {
    switch (message.kind) {
      case "desired":
        this.#down.onDesired(message);
        return;
      case "statusesAck":
        this.#up.onStatusesAck(message);
        return;
      case "eventsAck":
        this.#up.onEventsAck(message);
        return;
      case "nodeAck":
        this.#up.onNodeAck(message);
        return;
      default:
        throw new Violation("protocol", `a message ${message.kind}, which is an agent's`);
    }
  }

  /** Called by the connection, which is no place for errors. */
  #guard(task: () => void): void {
    try {
      task();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    if (this.closed.aborted) return;
    if (error instanceof Violation) {
      const message = describeError(error);
      this.#components.log.error("the hub broke the protocol", { error: message });
      this.#mux.close(error, { kind: "refusal", code: error.refusal, message, retryAfterMs: 0 });
      return;
    }
    if (!(error instanceof PicoletError)) {
      this.#components.log.error("the tunnel's session failed", { error: describeError(error) });
    }
    this.close(error instanceof PicoletError ? error : toPicoletError(error, "internal", "the session failed"));
  }
}

/** The others pass: `superseded`, `limit`, `overloaded`. */
const LASTING_REFUSALS: ReadonlySet<string> = new Set(["version", "protocol", "fleet"]);

const refusedBy = ({ code, message, retryAfterMs }: Refusal): TunnelError =>
  new TunnelError(
    LASTING_REFUSALS.has(code) ? "conflict" : "failed",
    `the hub ended the session: ${code}: ${message}`,
    { retryAfter: millis(retryAfterMs) },
  );

class SessionPulse implements Pulse {
  readonly #mux: Mux;
  readonly #connection: Connection;

  constructor(mux: Mux, connection: Connection) {
    this.#mux = mux;
    this.#connection = connection;
  }

  get lastReceivedAt(): number {
    return this.#mux.lastReceivedAt;
  }

  get bufferedBytes(): number {
    return this.#connection.bufferedBytes;
  }

  get flushedBytes(): number {
    return this.#connection.bytesSent - this.#connection.bufferedBytes;
  }

  ping(signal: AbortSignal): Promise<number> {
    return this.#mux.ping(signal);
  }
}
