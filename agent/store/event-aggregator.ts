import type { Clock, MonotonicMs } from "@picolet/protocol/ports.ts";
import type { EventInput } from "../core/store/store-ports.ts";

/**
 * As Kubernetes' EventAggregator: the tenth event that differs in nothing but its message, each within 10 minutes of
 * the last.
 */
const MAX_SIMILAR = 10;
const INTERVAL_MS = 10 * 60 * 1000;
/** Bounds the counted kinds of events; the least recent one is dropped and starts at 0. About 200 bytes each. */
const MAX_KINDS = 256;

/** Begins the message of an event that stands for several. */
export const COMBINED = "(combined from similar events): ";

interface Kind {
  /** Hashes of the messages that were seen, the oldest first. Two messages with one hash do no harm. */
  readonly messages: number[];
  lastAt: MonotonicMs;
}

/** Makes one event of many that differ in their messages alone, so that they do not fill what is kept. */
export class EventAggregator {
  readonly #clock: Clock;
  /**
   * By hash: two kinds that have the same would at worst be combined earlier. As text they took three times as much.
   */
  readonly #kinds = new Map<number, Kind>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * @returns the event itself, or the one that stands for it: that has the same object, type and reason, and its
   * message
   */
  aggregate(event: EventInput): EventInput {
    const message = hashOf(event.message);
    const { messages } = this.#kindOf(event, message);
    if (!messages.includes(message)) messages.push(message);
    if (messages.length < MAX_SIMILAR) return event;
    messages.shift();
    return { ...event, message: `${COMBINED}${event.message}` };
  }

  #kindOf({ regarding: { kind, namespace, name, uid }, type, reason }: EventInput, message: number): Kind {
    const now = this.#clock.monotonic();
    const key = hashOf(`${kind}/${namespace}/${name}/${uid}/${type}/${reason}`);
    const before = this.#kinds.get(key);
    const isOld = before === undefined || now - before.lastAt > INTERVAL_MS;
    const known = isOld ? { messages: [message], lastAt: now } : before;
    known.lastAt = now;
    this.#kinds.delete(key);
    this.#kinds.set(key, known);
    const [leastRecent] = this.#kinds.keys();
    if (this.#kinds.size > MAX_KINDS && leastRecent !== undefined) this.#kinds.delete(leastRecent);
    return known;
  }
}

/** FNV-1a, 32 bits. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return hash;
}
