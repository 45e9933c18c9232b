/**
 * The messages of a stream of kind `telemetry`, which an agent opens to a hub that announced it: batches up, each
 * `[sequence, base, estimated, batch]`, and acks down, each `[sequence]`: cumulative, for batches that the hub will not
 * lose. Every message is preceded by its length in four bytes, big-endian. PROTOCOL.md has the rest.
 */
import { PicoletError } from "../errors.ts";
import { decodeCbor, encodeCbor } from "../tunnel/encoding/cbor.ts";
import { ListReader } from "../tunnel/encoding/list-reader.ts";
import { MAX_BATCH_BYTES } from "./batch.ts";
import { MAX_TIME_US } from "./records.ts";

/** Params of `telemetry`. Lane `bulk`. */
export interface TelemetryParams {
  /**
   * 16 hexadecimal digits of the board's queue: sequences count within it. A board that lost its queue has another one.
   */
  readonly queue: string;
}

/** Reply: the last sequence of that queue that the hub has; 0: it has none. */
export interface TelemetryReply {
  readonly received: number;
}

export interface TelemetryDelivery {
  /** Grows from batch to batch, not always by one. */
  readonly sequence: number;
  /** The time that the records' stamps are relative to: microseconds since 1970. */
  readonly baseUs: number;
  /** The board never knew what time it was: `baseUs` is a guess. */
  readonly isEstimated: boolean;
  /** A batch of `encodeBatch`, stored unchanged. */
  readonly batch: Uint8Array;
}

/** Batches, or samples, that an agent may have sent without an ack. Of one that sends more the hub reads no further. */
export const MAX_UNACKNOWLEDGED_BATCHES = 16;

const LENGTH_BYTES = 4;
/** Around a batch: array, sequence, base, flag, byte string's head. */
const MAX_MESSAGE_BYTES = MAX_BATCH_BYTES + 64;

export function encodeDelivery({ sequence, baseUs, isEstimated, batch }: TelemetryDelivery): Uint8Array {
  return framed(encodeCbor([sequence, baseUs, isEstimated, batch]));
}

export const encodeTelemetryAck = (sequence: number): Uint8Array => framed(encodeCbor([sequence]));

/** A message with its length before it, as `LengthPrefixedReader` reads it. */
export function framed(message: Uint8Array): Uint8Array {
  const frame = new Uint8Array(LENGTH_BYTES + message.length);
  new DataView(frame.buffer).setUint32(0, message.length);
  frame.set(message, LENGTH_BYTES);
  return frame;
}

/** @throws `invalid`. The batch itself is not decoded. */
export function decodeDelivery(message: Uint8Array): TelemetryDelivery {
  const fields = readerOf("telemetry", message);
  const delivery = { sequence: fields.count("sequence"), baseUs: fields.count("base") };
  if (delivery.sequence === 0 || delivery.baseUs > MAX_TIME_US) throw fields.wrong("sequence", "is out of range");
  const isEstimated = fields.flag("estimated");
  return { ...delivery, isEstimated, batch: Uint8Array.from(fields.view("batch", MAX_BATCH_BYTES)) };
}

/** @throws `invalid` */
export const decodeTelemetryAck = (message: Uint8Array): number => readerOf("ack", message).count("sequence");

function readerOf(what: string, message: Uint8Array): ListReader {
  const list = decodeCbor(message);
  if (!Array.isArray(list)) throw new PicoletError("invalid", `cannot read ${what}: it is no list`);
  return new ListReader(what, list);
}

/** @throws `invalid` */
export function readTelemetryParams(params: unknown): TelemetryParams {
  const { queue } = (params ?? {}) as Partial<Record<keyof TelemetryParams, unknown>>;
  if (typeof queue === "string" && /^[0-9a-f]{16}$/.test(queue)) return { queue };
  throw new PicoletError("invalid", "cannot read the parameters of telemetry: queue is no 16 hexadecimal digits");
}

/** @throws `invalid` */
export function readTelemetryReply(reply: unknown): TelemetryReply {
  const { received } = (reply ?? {}) as Partial<Record<keyof TelemetryReply, unknown>>;
  if (Number.isSafeInteger(received) && (received as number) >= 0) return { received: received as number };
  throw new PicoletError("invalid", "cannot read the hub's answer to telemetry: received is no sequence");
}

/** Cuts a stream's bytes into messages. Keeps one message at most. */
export class LengthPrefixedReader {
  #kept = new Uint8Array();

  /** @returns the messages that are whole now. @throws `invalid` for one that is longer than any may be */
  push(bytes: Uint8Array): Uint8Array[] {
    const all = new Uint8Array(this.#kept.length + bytes.length);
    all.set(this.#kept);
    all.set(bytes, this.#kept.length);
    const view = new DataView(all.buffer);
    const messages: Uint8Array[] = [];
    let at = 0;
    while (all.length - at >= LENGTH_BYTES) {
      const length = view.getUint32(at);
      if (length > MAX_MESSAGE_BYTES) {
        throw new PicoletError("invalid", `cannot read telemetry: a message of ${length} bytes`);
      }
      if (all.length - at - LENGTH_BYTES < length) break;
      messages.push(all.subarray(at + LENGTH_BYTES, at + LENGTH_BYTES + length));
      at += LENGTH_BYTES + length;
    }
    this.#kept = all.slice(at);
    return messages;
  }
}
