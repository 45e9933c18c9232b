import { FairQueue } from "@picolet/kubelet-api/fairness/fair-queue.ts";
import type { Clock } from "@picolet/protocol/ports.ts";

/** Slots that one node holds at a time: its statuses, events, report and mirror pods side by side. */
const MAX_NODE_SLOTS = 4;
/** Writes of one node that wait: its four queues write one batch each, the rest are token requests. */
const MAX_NODE_WAITING = 256;
const LEVEL = "writes";

/**
 * How many writes of the whole fleet are under way at once. Nodes take turns, and none has more than a part of the
 * slots: a node that floods the hub, or whose writes hang, leaves the others theirs.
 */
export class WriteSlots {
  readonly #queue: FairQueue;

  constructor(components: { readonly clock: Clock }, slots: number) {
    const flowSeats = Math.max(1, Math.min(MAX_NODE_SLOTS, Math.floor(slots / 2)));
    const level = { name: LEVEL, share: 1, seats: slots, flowSeats, flowQueue: MAX_NODE_WAITING };
    this.#queue = new FairQueue(
      { clock: components.clock, later: setImmediate },
      { levels: [{ ...level, queue: Number.POSITIVE_INFINITY }] },
    );
  }

  /** Slots that are held, and writes that wait for one. */
  get load(): { readonly seats: number; readonly waiting: number } {
    return this.#queue.load;
  }

  /**
   * Runs `write` when there is a slot for `node`.
   * @throws what it throws; QueueRefusal when too many of the node wait; `cancelled` when `signal` aborts before
   */
  async run<T>(node: string, write: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const slot = await this.#queue.take(LEVEL, node, 1, signal);
    try {
      return await write();
    } finally {
      slot.release();
    }
  }
}
