import type { NodeBackend } from "@picolet/hub-core/fleet.ts";
import type { WheelTimer } from "@picolet/hub-core/timer-wheel.ts";
import type { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, millis } from "@picolet/protocol/ports.ts";
import { MAX_IN_FLIGHT_MESSAGES } from "@picolet/protocol/tunnel/message-codec.ts";
import type {
  Events,
  EventsAck,
  HubMessage,
  MirrorItem,
  Mirrors,
  NodeReport,
  Statuses,
} from "@picolet/protocol/tunnel/messages.ts";
import { ReportQueue } from "./report-queue.ts";
import { StatusQueue } from "./status-queue.ts";
import type { TunnelCounts } from "./tunnel-counts.ts";
import { type Acknowledge, type UpstreamComponents, type UpstreamQueue, UpstreamWriter } from "./upstream-writer.ts";

/** Events on their way to the API server, one message at a time: a slot of the fleet is soon given back. */
class EventQueue implements UpstreamQueue<Events> {
  readonly #backend: NodeBackend;
  readonly #ack: Acknowledge<EventsAck>;
  readonly #batches: Events[] = [];
  #lastSequence = 0;

  constructor(backend: NodeBackend, ack: Acknowledge<EventsAck>) {
    this.#backend = backend;
    this.#ack = ack;
  }

  /** @throws `invalid` for what the agent may not send */
  push(events: Events): void {
    const isOld = events.sequence <= this.#lastSequence;
    if (isOld || this.#batches.length >= MAX_IN_FLIGHT_MESSAGES) {
      const problem = isOld
        ? `sequence ${events.sequence} after ${this.#lastSequence}`
        : `more than ${MAX_IN_FLIGHT_MESSAGES} messages without an ack`;
      throw new PicoletError("invalid", `cannot accept events: ${problem}`);
    }
    this.#lastSequence = events.sequence;
    this.#batches.push(events);
  }

  peek(): Events | undefined {
    return this.#batches[0];
  }

  costOf({ items }: Events): number {
    return items.length;
  }

  write({ items }: Events, signal: AbortSignal): Promise<void> {
    return this.#backend.putEvents(items, signal);
  }

  written({ sequence, ackMayWait = false }: Events): void {
    this.#batches.shift();
    this.#ack({ kind: "eventsAck", sequence }, ackMayWait);
  }
}

/** Static pods of one node; the kubelet's own limit of pods is 110. More end the session. */
const MAX_MIRRORS = 1024;

/** The mirror set on its way to the API server: the latest alone. */
class MirrorQueue implements UpstreamQueue<readonly MirrorItem[]> {
  readonly #backend: NodeBackend;
  #gathered: MirrorItem[] = [];
  #pending: readonly MirrorItem[] | undefined;

  constructor(backend: NodeBackend) {
    this.#backend = backend;
  }

  /** @throws `invalid` for what the agent may not send */
  push({ items, last }: Mirrors): void {
    if (this.#gathered.length + items.length > MAX_MIRRORS) {
      throw new PicoletError("invalid", `cannot accept mirrors: there are more than ${MAX_MIRRORS}`);
    }
    this.#gathered.push(...items);
    if (!last) return;
    this.#pending = this.#gathered;
    this.#gathered = [];
  }

  peek(): readonly MirrorItem[] | undefined {
    return this.#pending;
  }

  costOf(items: readonly MirrorItem[]): number {
    return items.length;
  }

  write(items: readonly MirrorItem[], signal: AbortSignal): Promise<void> {
    return this.#backend.putMirrors(items, signal);
  }

  written(items: readonly MirrorItem[]): void {
    if (this.#pending === items) this.#pending = undefined;
  }
}

/** By then the hub's watch has shown what it wrote. Of thousands of sessions at rest none keeps a status. */
const FORGET_AFTER = millis(15_000);

export interface UplinkComponents extends UpstreamComponents {
  /** Objects that each node may write, and events besides. */
  readonly limits: { readonly writes: RateLimits; readonly events: RateLimits };
  readonly backend: NodeBackend;
  readonly clock: Clock;
  readonly counts: TunnelCounts;
  readonly send: (message: HubMessage) => void;
  /** Sends the message with the next one. */
  readonly sendWithNext: (message: HubMessage) => void;
  /** Sends what waits for that now. */
  readonly sendWaiting: () => void;
  /**
   * An agent whose acknowledgement waits has pinged by then, and got it with the pong; if not, it gets it by itself.
   */
  readonly maxAckDelay: Millis;
}

type Channel<Q> = { readonly queue: Q; readonly writer: UpstreamWriter<unknown> };

/**
 * The reports of one agent on their way to the API server. Each kind has a queue: events that cannot be written hold up
 * no status. Nothing is acknowledged before it is written. Each channel is made when it is first used.
 */
export class Uplink {
  readonly #components: UplinkComponents;
  readonly #signal: AbortSignal;
  #statuses: Channel<StatusQueue> | undefined;
  #events: Channel<EventQueue> | undefined;
  #reports: Channel<ReportQueue> | undefined;
  #mirrors: Channel<MirrorQueue> | undefined;
  readonly #forgetting: WheelTimer = { slot: undefined, onDue: () => this.#forget() };
  readonly #acknowledging: WheelTimer = { slot: undefined, onDue: () => this.#components.sendWaiting() };

  /** @param signal of the session: what was not written by then is left to the next one */
  constructor(components: UplinkComponents, signal: AbortSignal) {
    this.#components = components;
    this.#signal = signal;
  }

  /** This and the others throw `invalid` for what the agent may not send. */
  onStatuses(message: Statuses): void {
    const { wheel } = this.#components;
    this.#statuses ??= this.#channel("statuses", new StatusQueue(this.#components, this.#acknowledge));
    this.#statuses.queue.push(message);
    this.#statuses.writer.poke();
    wheel.set(this.#forgetting, FORGET_AFTER);
  }

  onEvents(message: Events): void {
    const { backend, limits } = this.#components;
    this.#events ??= this.#channel("events", new EventQueue(backend, this.#acknowledge), limits.events);
    this.#events.queue.push(message);
    this.#events.writer.poke();
  }

  onNode(message: NodeReport): void {
    const { backend, send, wheel } = this.#components;
    this.#reports ??= this.#channel("the node's report", new ReportQueue(backend, send));
    this.#reports.queue.push(message);
    this.#reports.writer.poke();
    wheel.set(this.#forgetting, FORGET_AFTER);
  }

  onMirrors(message: Mirrors): void {
    this.#mirrors ??= this.#channel("mirror pods", new MirrorQueue(this.#components.backend));
    this.#mirrors.queue.push(message);
    this.#mirrors.writer.poke();
  }

  /** Resolves when nothing is being written: the next session's writes come after those of this one. */
  async settled(): Promise<void> {
    this.#components.wheel.clear(this.#forgetting);
    this.#components.wheel.clear(this.#acknowledging);
    const channels = [this.#statuses, this.#events, this.#reports, this.#mirrors];
    await Promise.all(channels.map((channel) => channel?.writer.settled()));
  }

  readonly #acknowledge = (ack: HubMessage, mayWait: boolean): void => {
    const { send, sendWithNext, wheel, maxAckDelay } = this.#components;
    if (!mayWait || this.#signal.aborted) {
      send(ack);
      return;
    }
    sendWithNext(ack);
    if (this.#acknowledging.slot === undefined) wheel.set(this.#acknowledging, maxAckDelay);
  };

  #forget(): void {
    if (this.#reports?.queue.forget() === true) this.#reports = undefined;
    const isAtRest = (this.#statuses?.queue.forget() ?? true) && this.#reports === undefined;
    if (!isAtRest && !this.#signal.aborted) this.#components.wheel.set(this.#forgetting, FORGET_AFTER);
  }

  #channel<Q extends UpstreamQueue<unknown>>(
    what: string,
    queue: Q,
    pace = this.#components.limits.writes,
  ): Channel<Q> {
    return { queue, writer: new UpstreamWriter(this.#components, what, queue, pace, this.#signal) };
  }
}
