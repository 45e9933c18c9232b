import { LabelledCounts, LabelledLatencies, Latencies } from "@picolet/hub-core/counts.ts";
import { FRAME_TYPES } from "@picolet/protocol/tunnel/frames.ts";
import { MESSAGE_KINDS } from "@picolet/protocol/tunnel/message-codec.ts";

const DIRECTIONS = ["received", "sent"] as const;
type Direction = (typeof DIRECTIONS)[number];

/** Frames that are no message by their type, then messages by their kind. */
const KINDS: readonly string[] = [...FRAME_TYPES, ...MESSAGE_KINDS];
const MESSAGE = FRAME_TYPES.indexOf("message");

/** The place in `KINDS` of an encoded frame; -1: the session ends for it. A frame is `[type, …]` in CBOR. */
function kindOf(frame: Uint8Array): number {
  const type = frame[1] ?? FRAME_TYPES.length;
  if (type >= FRAME_TYPES.length) return -1;
  const kind = frame[2] ?? MESSAGE_KINDS.length;
  return type === MESSAGE && kind < MESSAGE_KINDS.length ? FRAME_TYPES.length + kind : type;
}

interface Traffic {
  readonly bytes: Float64Array;
  readonly frames: Float64Array;
}

const noTraffic = (): Traffic => ({ bytes: new Float64Array(KINDS.length), frames: new Float64Array(KINDS.length) });

/** Counts what all sessions of a hub have done since it started. */
export class TunnelCounts {
  readonly #traffic: Readonly<Record<Direction, Traffic>> = { received: noTraffic(), sent: noTraffic() };
  /** Sessions that were welcomed. */
  sessions = 0;
  /** Ends of sessions by the code of their reason. */
  readonly ends = new LabelledCounts();
  /** Upgrades that were refused, by the status of the answer. */
  readonly refusals = new LabelledCounts();
  /** From the arrival of statuses to their being in the API server. */
  readonly statusWrites = new Latencies();
  /** From the first piece of a revision of a desired set to its acknowledgement. */
  readonly desiredAcks = new Latencies();
  /** Streams that the hub opened, by kind, until the board had accepted them. */
  readonly opened = new LabelledLatencies();
  /** Those that it could not open, by kind and code. */
  readonly notOpened = new LabelledCounts();

  count(direction: Direction, frame: Uint8Array): void {
    const kind = kindOf(frame);
    if (kind < 0) return;
    const { bytes, frames } = this.#traffic[direction];
    bytes[kind] = (bytes[kind] ?? 0) + frame.length;
    frames[kind] = (frames[kind] ?? 0) + 1;
  }

  /** By direction and kind; kinds of which there was none are left out. */
  *traffic(of: keyof Traffic) {
    for (const direction of DIRECTIONS) {
      for (const [index, kind] of KINDS.entries()) {
        const value = this.#traffic[direction][of][index] ?? 0;
        if (value > 0) yield { labels: [direction, kind], value };
      }
    }
  }
}
