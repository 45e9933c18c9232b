import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { type Clock, type Log, type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import type { AgentMessage, EventsAck, NodeAck, StatusesAck, Welcome } from "@picolet/protocol/tunnel/messages.ts";
import type { TunnelPorts } from "../../core/hub/tunnel-ports.ts";
import { EventLane } from "./event-lane.ts";
import { MirrorLane } from "./mirror-lane.ts";
import { type AcknowledgedReport, NodeLane } from "./node-lane.ts";
import type { SentStatuses } from "./sent-statuses.ts";
import { StatusLane } from "./status-lane.ts";

/**
 * Changes after a message are gathered for this long: it covers the steps of a starting pod, and users do not notice
 * it. The first change after a pause is sent at once.
 */
const GATHER = millis(100);
/**
 * Events go with the next status, which most of them are about and which is there a moment later, or by themselves by
 * then.
 */
const EVENT_GATHER = millis(250);
/** The node's own report and the mirror set change rarely, and are large. */
const GATHER_LARGE = millis(1000);

interface UplinkComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly node: Omit<TunnelPorts, "objects">;
  readonly sent: SentStatuses;
  readonly acknowledged: AcknowledgedReport;
  readonly send: (message: AgentMessage) => void;
  readonly flushed: (signal: AbortSignal) => Promise<void>;
}

/** Sends the changes of the node to the hub during one session. */
export class Uplink {
  readonly #clock: Clock;
  readonly #node: Omit<TunnelPorts, "objects">;
  readonly #alarm: Alarm;
  readonly #statuses: StatusLane;
  readonly #events: EventLane;
  readonly #report: NodeLane;
  readonly #mirrors: MirrorLane;
  /** Nothing is sent before these, on the monotonic clock. */
  #nextAt = 0;
  #nextLargeAt = 0;
  #hasEnded = false;

  constructor(components: UplinkComponents) {
    const { clock, log, node, sent, acknowledged, send, flushed } = components;
    this.#clock = clock;
    this.#node = node;
    this.#alarm = new Alarm(clock);
    this.#statuses = new StatusLane({ statuses: node.statuses, sent, log, send });
    this.#events = new EventLane({ events: node.events, send });
    this.#report = new NodeLane({ report: () => node.report.current, acknowledged, send });
    const repeat = (uids: ReadonlySet<string>): void => node.statuses.repeat(uids);
    this.#mirrors = new MirrorLane({ mirrors: () => node.mirrors.current, log, send, repeat, flushed });
  }

  /** The uplink's part of the hello. */
  get hello(): { readonly mirrorsDigest: Uint8Array; readonly nodeHash: Uint8Array; readonly pendingStatuses: number } {
    return {
      mirrorsDigest: this.#mirrors.helloDigest,
      nodeHash: this.#report.helloHash,
      pendingStatuses: this.#node.statuses.pendingCount(),
    };
  }

  /** Another one may come later in a session. */
  onWelcome(welcome: Welcome, isFirst: boolean): void {
    const { wantsMirrors, wantsNode } = welcome;
    this.#statuses.onWelcome(welcome);
    if (isFirst) this.#node.statuses.repeatGone();
    if (isFirst || wantsMirrors) this.#mirrors.onWelcome(wantsMirrors);
    if (isFirst || wantsNode) this.#report.onWelcome(wantsNode);
    this.#wake();
  }

  onStatusesAck(message: StatusesAck): void {
    this.#statuses.onAck(message);
    this.#wake();
  }

  onEventsAck(message: EventsAck): void {
    this.#events.onAck(message);
    this.#wake();
  }

  onNodeAck(message: NodeAck): void {
    this.#report.onAck(message);
    this.#wake();
  }

  /** From the welcome until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { statuses, events, report, mirrors } = this.#node;
    await Promise.all([
      this.#follow(statuses.latest, signal),
      this.#follow(events.latest, signal, EVENT_GATHER),
      this.#follow(report, signal),
      this.#follow(mirrors, signal),
      this.#sendAll(signal),
    ]);
  }

  /** Before another session begins: what was not acknowledged counts as not sent. May be called twice. */
  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#statuses.end();
  }

  async #follow(watch: Watch<unknown>, signal: AbortSignal, delay = millis(0)): Promise<void> {
    for await (const _ of watch.changes(signal)) this.#wake(delay);
  }

  #wake(delay = millis(0)): void {
    this.#alarm.set(millis(Math.max(delay, this.#until(this.#nextAt))));
  }

  #until(at: number): Millis {
    return millis(Math.max(0, at - this.#clock.monotonic()));
  }

  async #sendAll(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#alarm.ring(signal);
      const hasSentStatuses = this.#statuses.flush();
      const hasSentEvents = this.#events.flush();
      if (hasSentStatuses || hasSentEvents) this.#nextAt = this.#later(GATHER);
      const isLargeDue = this.#clock.monotonic() >= this.#nextLargeAt;
      if (!isLargeDue) {
        // Checked again then, changed or not.
        if (this.#report.isDue || this.#mirrors.isDue) this.#alarm.set(this.#until(this.#nextLargeAt));
        continue;
      }
      const hasSentReport = this.#report.flush();
      const hasSentMirrors = await this.#mirrors.flush(signal);
      if (hasSentReport || hasSentMirrors) this.#nextLargeAt = this.#later(GATHER_LARGE);
    }
  }

  #later(duration: Millis): MonotonicMs {
    return (this.#clock.monotonic() + duration) as MonotonicMs;
  }
}
