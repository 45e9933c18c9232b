import { LANES } from "./frames.ts";
import type { Lane } from "./stream.ts";

/**
 * Shares of the link while all lanes have something to send. An interactive stream beside a bulk transfer gets eight
 * times its bytes; a bulk transfer beside everything else still gets a sixty-third of the link.
 */
const WEIGHTS: Readonly<Record<Lane, number>> = { control: 32, status: 16, interactive: 8, logs: 4, bulk: 1 };

/** A source of frames for a lane. */
export interface Sender {
  /** The next frame; undefined when there is nothing more that can be sent now. */
  nextFrame(): Uint8Array | undefined;
}

interface LaneState {
  readonly weight: number;
  /** Senders that take turns, one frame each. Undefined at rest. */
  senders: Set<Sender> | undefined;
  /** Bytes sent, divided by the weight, on a scale that all lanes share. */
  sent: number;
}

/**
 * Weighted fair queueing over lanes (start-time fair queueing with five queues), round robin within a lane. A lane that
 * was empty joins at the time of the others: it neither has to catch up nor may.
 */
export class LaneScheduler {
  readonly #lanes = new Map<Lane, LaneState>();
  #now = 0;

  /** `sender` has something to send in `lane`. Saying so again changes nothing. */
  add(lane: Lane, sender: Sender): void {
    let state = this.#lanes.get(lane);
    if (state === undefined) {
      state = { weight: WEIGHTS[lane], senders: undefined, sent: 0 };
      this.#lanes.set(lane, state);
    }
    if (state.senders === undefined) {
      state.senders = new Set();
      state.sent = Math.max(state.sent, this.#now);
    }
    state.senders.add(sender);
  }

  remove(lane: Lane, sender: Sender): void {
    const state = this.#lanes.get(lane);
    if (state !== undefined) leave(state, sender);
  }

  /** The frame to send next; undefined when no sender has any. */
  next(): Uint8Array | undefined {
    for (let lane = this.#choose(); lane !== undefined; lane = this.#choose()) {
      const [sender] = lane.senders ?? [];
      if (sender === undefined) return undefined;
      const frame = sender.nextFrame();
      if (frame === undefined) {
        leave(lane, sender);
        continue;
      }
      // To the end of the queue, unless that was the last of it.
      if (lane.senders?.delete(sender) === true) lane.senders.add(sender);
      this.#now = lane.sent;
      lane.sent += frame.length / lane.weight;
      return frame;
    }
    return undefined;
  }

  /** Chooses the lane with frames that was served least, relative to its weight; the heavier one among equals. */
  #choose(): LaneState | undefined {
    let best: LaneState | undefined;
    for (const lane of LANES) {
      const state = this.#lanes.get(lane);
      if (state?.senders === undefined) continue;
      if (best === undefined || state.sent < best.sent) best = state;
    }
    return best;
  }
}

function leave(state: LaneState, sender: Sender): void {
  state.senders?.delete(sender);
  if (state.senders?.size === 0) state.senders = undefined;
}
