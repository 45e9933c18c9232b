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
import type { TelemetryStore } from "./telemetry-store.ts";

export interface TelemetryStreamsComponents {
  readonly store: TelemetryStore;
  readonly clock: Clock;
  readonly log: Log;
}

/** Streams of one board at a time: its agent has one, and perhaps one of before that has not ended yet. */
const MAX_NODE_STREAMS = 4;
/**
 * What is read of a board: a queue of some days at once, then five thousand points a second. A board that sends more is
 * read more slowly and keeps the rest; what others have stored is not pushed out by it in a night.
 */
const NODE_BYTES = { burst: 4 * 1024 * 1024, perSecond: 128 * 1024 };

/**
 * Takes what boards send. What has come is put in the store before more is read: a store that waits holds up the board.
 */
export class TelemetryStreams implements TelemetryReceiver {
  readonly #components: TelemetryStreamsComponents;
  readonly #bytes: RateLimits;
  readonly #streams = new Map<string, number>();

  constructor(components: TelemetryStreamsComponents) {
    this.#components = components;
    this.#bytes = new RateLimits(components, NODE_BYTES);
  }

  receive(incoming: IncomingStream, node: string): void {
    let queue: string;
    try {
      ({ queue } = readTelemetryParams(incoming.params));
    } catch (error) {
      incoming.reject({ code: "invalid", message: describeError(error) });
      return;
    }
    const open = this.#streams.get(node) ?? 0;
    if (open >= MAX_NODE_STREAMS) {
      incoming.reject({ code: "resource_exhausted", message: `there are ${open} streams of telemetry already` });
      return;
    }
    this.#streams.set(node, open + 1);
    incoming.closed.addEventListener("abort", () => this.#ended(node), { once: true });
    const stream = incoming.accept({ received: this.#components.store.received(node, queue) });
    this.#follow(stream, node, queue).catch((error: unknown) => {
      if (stream.closed.aborted || isCancelled(error)) return;
      const code = isPicoletError(error) ? error.code : "internal";
      this.#components.log.warn("telemetry of a board was not taken", { node, error: describeError(error) });
      stream.reset({ code, message: describeError(error) });
    });
  }

  #ended(node: string): void {
    const left = (this.#streams.get(node) ?? 1) - 1;
    if (left > 0) this.#streams.set(node, left);
    else this.#streams.delete(node);
  }

  async #pace(node: string, bytes: number, signal: AbortSignal): Promise<void> {
    this.#bytes.spend(node, bytes);
    const debt = -this.#bytes.left(node);
    if (debt > 0) await this.#components.clock.sleep(millis((debt / NODE_BYTES.perSecond) * 1000), signal);
  }

  async #follow(stream: TunnelStream, node: string, queue: string): Promise<void> {
    const { store, log } = this.#components;
    const { closed } = stream;
    const reader = new LengthPrefixedReader();
    let last = 0;
    for (let bytes = await stream.read(closed); bytes !== undefined; bytes = await stream.read(closed)) {
      await this.#pace(node, bytes.length, closed);
      const deliveries = reader.push(bytes).map(decodeDelivery);
      if (deliveries.length === 0) continue;
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
      await store.put(node, queue, readable, closed);
      await stream.write(encodeTelemetryAck(last), closed);
    }
    stream.end();
  }
}
