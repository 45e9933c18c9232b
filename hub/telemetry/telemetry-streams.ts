import type { TelemetryReceiver } from "@picolet/hub-core/telemetry-ports.ts";
import { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis } from "@picolet/protocol/ports.ts";
import { decodeBatch, type TelemetryBatch } from "@picolet/protocol/telemetry/batch.ts";
import {
  decodeDelivery,
  encodeTelemetryAck,
  LengthPrefixedReader,
  readTelemetryParams,
  type TelemetryDelivery,
} from "@picolet/protocol/telemetry/stream-messages.ts";
import type { IncomingStream, TunnelStream } from "@picolet/protocol/tunnel/stream.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { TelemetryStore } from "./telemetry-store.ts";

/** Takes the content of one kind of streams from boards. */
export interface StreamTaking {
  /** For the log and refusals: "telemetry". */
  readonly what: string;
  /** Bytes that are read of a board: at once, and in the long run. A board that sends more is read more slowly. */
  readonly nodeBytes: { readonly burst: number; readonly perSecond: number };
  begin(node: string, queue: string): StreamTaker;
}

/** One stream. */
export interface StreamTaker {
  /** The last sequence of the queue that the hub has. */
  readonly received: number;
  /**
   * Resolves when these messages need not be sent again.
   * @returns the sequence to acknowledge. @throws what the stream is reset with
   */
  take(messages: readonly Uint8Array[], signal: AbortSignal): Promise<number>;
}

interface BoardStreamsComponents {
  readonly taking: StreamTaking;
  readonly clock: Clock;
  readonly log: Log;
}

/** Streams of one board at a time: its agent has one, and perhaps one of before that has not ended yet. */
const MAX_NODE_STREAMS = 4;

/**
 * Takes what boards send in streams of messages with their length before them, and acknowledges it. What has come is
 * taken before more is read: a taker that waits holds up its board.
 */
export class BoardStreams implements TelemetryReceiver {
  readonly #components: BoardStreamsComponents;
  readonly #bytes: RateLimits;
  readonly #streams = new Map<string, number>();

  constructor(components: BoardStreamsComponents) {
    this.#components = components;
    this.#bytes = new RateLimits(components, components.taking.nodeBytes);
  }

  receive(incoming: IncomingStream, node: string): void {
    const { taking, log } = this.#components;
    let queue: string;
    try {
      ({ queue } = readTelemetryParams(incoming.params));
    } catch (error) {
      incoming.reject({ code: "invalid", message: describeError(error) });
      return;
    }
    const open = this.#streams.get(node) ?? 0;
    if (open >= MAX_NODE_STREAMS) {
      incoming.reject({ code: "resource_exhausted", message: `there are ${open} streams of ${taking.what} already` });
      return;
    }
    this.#streams.set(node, open + 1);
    incoming.closed.addEventListener("abort", () => this.#ended(node), { once: true });
    const taker = taking.begin(node, queue);
    const stream = incoming.accept({ received: taker.received });
    this.#follow(stream, node, taker).catch((error: unknown) => {
      if (stream.closed.aborted || isCancelled(error)) return;
      const code = isPicoletError(error) ? error.code : "internal";
      log.warn(`${taking.what} of a board was not taken`, { node, error: describeError(error) });
      stream.reset({ code, message: describeError(error) });
    });
  }

  #ended(node: string): void {
    const left = (this.#streams.get(node) ?? 1) - 1;
    if (left > 0) this.#streams.set(node, left);
    else this.#streams.delete(node);
  }

  async #pace(node: string, bytes: number, signal: AbortSignal): Promise<void> {
    const { clock, taking } = this.#components;
    this.#bytes.spend(node, bytes);
    const debt = -this.#bytes.left(node);
    if (debt > 0) await clock.sleep(millis((debt / taking.nodeBytes.perSecond) * 1000), signal);
  }

  async #follow(stream: TunnelStream, node: string, taker: StreamTaker): Promise<void> {
    const { closed } = stream;
    const reader = new LengthPrefixedReader();
    for (let bytes = await stream.read(closed); bytes !== undefined; bytes = await stream.read(closed)) {
      await this.#pace(node, bytes.length, closed);
      const messages = reader.push(bytes);
      if (messages.length === 0) continue;
      await stream.write(encodeTelemetryAck(await taker.take(messages, closed)), closed);
    }
    stream.end();
  }
}

export interface TelemetryStreamsComponents {
  readonly store: TelemetryStore;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * What is read of a board: a queue of some days at once, then five thousand points a second. A board that sends more is
 * read more slowly and keeps the rest; what others have stored is not pushed out by it in a night.
 */
const NODE_BYTES = { burst: 4 * MEBIBYTE, perSecond: 128 * KIBIBYTE };

/** Takes components' telemetry into the store. */
export class TelemetryStreams extends BoardStreams {
  constructor({ store, clock, log }: TelemetryStreamsComponents) {
    const begin = (node: string, queue: string): StreamTaker => {
      let last = 0;
      return {
        received: store.received(node, queue),
        take: async (messages, signal) => {
          const deliveries = messages.map(decodeDelivery);
          for (const { sequence } of deliveries) {
            if (sequence <= last) throw new PicoletError("invalid", `telemetry ${sequence} after ${last}`);
            last = sequence;
          }
          const readable = deliveries.flatMap((delivery): (TelemetryDelivery & { decoded: TelemetryBatch })[] => {
            try {
              return [{ ...delivery, decoded: decodeBatch(delivery.batch) }];
            } catch (error) {
              // A repetition would not mend it: the sender must go on with the next.
              log.warn("a batch of telemetry cannot be read", { node, error: describeError(error) });
              return [];
            }
          });
          await store.put(node, queue, readable, signal);
          return last;
        },
      };
    };
    super({ taking: { what: "telemetry", nodeBytes: NODE_BYTES, begin }, clock, log });
  }
}
