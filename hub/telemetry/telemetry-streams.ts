import { describeError, isCancelled, isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { Log } from "../../protocol/ports.ts";
import { decodeBatch, type TelemetryBatch } from "../../protocol/telemetry/batch.ts";
import type { IncomingStream, TunnelStream } from "../../protocol/tunnel/stream.ts";
import {
  decodeDelivery,
  encodeTelemetryAck,
  LengthPrefixedReader,
  readTelemetryParams,
  type TelemetryDelivery,
} from "../../protocol/tunnel/telemetry-stream.ts";
import type { TelemetryReceiver } from "../core/telemetry.ts";
import type { TelemetryStore } from "./telemetry-store.ts";

export interface TelemetryStreamsComponents {
  readonly store: TelemetryStore;
  readonly log: Log;
}

/** Takes what boards send. What has come is put in the store before more is read: a store that waits holds up the board. */
export class TelemetryStreams implements TelemetryReceiver {
  readonly #components: TelemetryStreamsComponents;

  constructor(components: TelemetryStreamsComponents) {
    this.#components = components;
  }

  receive(incoming: IncomingStream, node: string): void {
    let queue: string;
    try {
      ({ queue } = readTelemetryParams(incoming.params));
    } catch (error) {
      incoming.reject({ code: "invalid", message: describeError(error) });
      return;
    }
    const stream = incoming.accept({ received: this.#components.store.received(node, queue) });
    this.#follow(stream, node, queue).catch((error: unknown) => {
      if (stream.closed.aborted || isCancelled(error)) return;
      const code = isPicoletError(error) ? error.code : "internal";
      this.#components.log.warn("telemetry of a board was not taken", { node, error: describeError(error) });
      stream.reset({ code, message: describeError(error) });
    });
  }

  async #follow(stream: TunnelStream, node: string, queue: string): Promise<void> {
    const { store, log } = this.#components;
    const { closed } = stream;
    const reader = new LengthPrefixedReader();
    let last = 0;
    for (let bytes = await stream.read(closed); bytes !== undefined; bytes = await stream.read(closed)) {
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
          // It would never be any better: whoever sent it is to go on with the next.
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
