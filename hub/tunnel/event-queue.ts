import { PicoletError } from "../../protocol/errors.ts";
import { MAX_IN_FLIGHT_MESSAGES } from "../../protocol/tunnel/message-codec.ts";
import type { Events, EventsAck } from "../../protocol/tunnel/messages.ts";
import type { NodeBackend } from "../core/fleet.ts";
import type { UpstreamQueue } from "./upstream-writer.ts";

/** Events on their way to the API server. */
export class EventQueue implements UpstreamQueue<readonly Events[]> {
  readonly #backend: NodeBackend;
  readonly #ack: (ack: EventsAck) => void;
  readonly #batches: Events[] = [];
  #lastSequence = 0;

  constructor(backend: NodeBackend, ack: (ack: EventsAck) => void) {
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

  peek(): readonly Events[] | undefined {
    return this.#batches.length === 0 ? undefined : [...this.#batches];
  }

  write(batches: readonly Events[], signal: AbortSignal): Promise<void> {
    return this.#backend.putEvents(
      batches.flatMap(({ items }) => items),
      signal,
    );
  }

  written(batches: readonly Events[]): void {
    this.#batches.splice(0, batches.length);
    this.#ack({ kind: "eventsAck", sequence: batches.at(-1)?.sequence ?? 0 });
  }
}
