import { MAX_EVENT_ITEMS, MAX_IN_FLIGHT_MESSAGES } from "@picolet/protocol/tunnel/message-codec.ts";
import type { AgentMessage, EventsAck } from "@picolet/protocol/tunnel/messages.ts";
import type { OutgoingEvents } from "../../core/hub/tunnel-ports.ts";
import { Violation } from "./violation.ts";

/** Bounds batches on their way, as the hub does. The store keeps the others. */
const MAX_EVENT_BATCHES = MAX_IN_FLIGHT_MESSAGES;
/** Events can wait: with two full batches under way the next waits, while the hub writes the first. */
const MAX_UNDER_WAY_EVENTS = 2 * MAX_EVENT_ITEMS;
/** As of statuses, see `status-lane.ts`. */
const SPARE_BATCHES = 2;

interface Batch {
  readonly number: number;
  readonly upTo: number;
  readonly items: number;
}

interface EventLaneComponents {
  readonly events: OutgoingEvents;
  readonly send: (message: AgentMessage) => void;
}

/** The way up for events, of one session: batches, numbered from 1 and acknowledged cumulatively. */
export class EventLane {
  readonly #components: EventLaneComponents;
  readonly #underWay: Batch[] = [];
  #number = 0;
  #sentUpTo = 0;

  constructor(components: EventLaneComponents) {
    this.#components = components;
  }

  /** Sends what there is and may be sent. @returns whether there was anything */
  flush(): boolean {
    const before = this.#number;
    const { events, send } = this.#components;
    while (this.#underWay.length < MAX_EVENT_BATCHES) {
      const underWay = this.#underWay.reduce((sum, { items }) => sum + items, 0);
      if (underWay >= MAX_UNDER_WAY_EVENTS) break;
      const pending = events.pending(underWay + MAX_EVENT_ITEMS).filter(({ sequence }) => sequence > this.#sentUpTo);
      const batch = pending.slice(0, MAX_EVENT_ITEMS);
      const last = batch.at(-1);
      if (last === undefined) break;
      this.#number += 1;
      this.#sentUpTo = last.sequence;
      this.#underWay.push({ number: this.#number, upTo: last.sequence, items: batch.length });
      const ackMayWait = MAX_EVENT_BATCHES - this.#underWay.length >= SPARE_BATCHES;
      send({ kind: "events", sequence: this.#number, items: batch.map(({ value }) => value), ackMayWait });
    }
    return this.#number > before;
  }

  onAck({ sequence }: EventsAck): void {
    if (sequence > this.#number)
      throw new Violation("protocol", `events ${sequence} acknowledged, ${this.#number} sent`);
    let last: Batch | undefined;
    while (this.#underWay[0] !== undefined && this.#underWay[0].number <= sequence) last = this.#underWay.shift();
    if (last !== undefined) this.#components.events.ack(last.upTo);
  }
}
