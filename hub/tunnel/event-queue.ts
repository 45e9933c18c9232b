import type { NodeBackend } from "@picolet/hub-core/fleet.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MAX_IN_FLIGHT_MESSAGES } from "@picolet/protocol/tunnel/message-codec.ts";
import type { Events, EventsAck } from "@picolet/protocol/tunnel/messages.ts";
import type { Acknowledge, UpstreamQueue } from "./upstream-writer.ts";

/** Events on their way to the API server, one message at a time: a slot of the fleet is soon given back. */
export class EventQueue implements UpstreamQueue<Events> {
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
