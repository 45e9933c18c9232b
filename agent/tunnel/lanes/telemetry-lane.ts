import { joinSignals, wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import { describeError, ignore, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import {
  decodeTelemetryAck,
  LengthPrefixedReader,
  MAX_UNACKNOWLEDGED_BATCHES,
  readTelemetryReply,
} from "@picolet/protocol/telemetry/stream-messages.ts";
import type { OpenedStream, StreamKind, StreamOpener } from "@picolet/protocol/tunnel/stream.ts";
import type { Delivery, Outgoing } from "../../core/hub/outgoing-telemetry.ts";
import { Violation } from "./violation.ts";

export interface TelemetryLaneComponents<Item extends Delivery> {
  readonly clock: Clock;
  readonly log: Log;
  readonly outgoing: Outgoing<Item>;
  readonly opener: StreamOpener;
}

export interface TelemetryLaneInit<Item> {
  readonly kind: StreamKind & ("telemetry" | "samples");
  /** @returns what encodes the items of one stream, with the length before each */
  readonly encoder: () => (item: Item) => Uint8Array;
}

/** A hub that takes none at the moment is asked again, ever more slowly. */
const RETRY: BackoffPolicy = { first: seconds(2), max: seconds(60) };

/**
 * The way up for telemetry or samples, of one session: a stream in the bulk lane, which holds up nothing else, as long
 * as the session lives. What the hub does not acknowledge stays in the queue, and is sent again in the next session.
 */
export class TelemetryLane<Item extends Delivery> {
  readonly #components: TelemetryLaneComponents<Item>;
  readonly #init: TelemetryLaneInit<Item>;
  /** Id of the last item that the hub has acknowledged. */
  #acknowledged = 0;

  constructor(components: TelemetryLaneComponents<Item>, init: TelemetryLaneInit<Item>) {
    this.#components = components;
    this.#init = init;
  }

  /** Until `signal` aborts, or the hub says that it takes none at all. @throws a Violation */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, log, outgoing } = this.#components;
    outgoing.forwarding(true);
    let failures = 0;
    try {
      while (!signal.aborted) {
        const before = this.#acknowledged;
        const error = await this.#attempt(signal);
        if (error === undefined) continue;
        if (error instanceof Violation) throw error;
        if (isPicoletError(error, "unimplemented")) return outgoing.untaken(describeError(error));
        const { kind } = this.#init;
        log.info("the hub takes no telemetry at the moment", { kind, error: describeError(error), failures });
        failures = this.#acknowledged > before ? 1 : failures + 1;
        await clock.sleep(backoffDelay(RETRY, failures), signal);
      }
    } finally {
      outgoing.forwarding(false);
    }
  }

  /** @returns what went wrong; undefined: everything of one queue was sent, or the session is over */
  async #attempt(signal: AbortSignal): Promise<unknown> {
    try {
      const [first] = await this.#next(0, signal);
      if (first !== undefined) await this.#send(first.queue, signal);
      return undefined;
    } catch (error) {
      return isCancelled(error) || signal.aborted ? undefined : error;
    }
  }

  /** @returns the batches after those on their way; waits for one when none are */
  async #next(underWay: number, signal: AbortSignal): Promise<readonly Item[]> {
    const { outgoing } = this.#components;
    for await (const _ of outgoing.latest.changes(signal)) {
      const batches = outgoing.pending(Math.max(underWay, this.#acknowledged), MAX_UNACKNOWLEDGED_BATCHES);
      if (batches.length > 0) return batches;
    }
    return [];
  }

  /** Batches of one queue, until one of another comes. */
  async #send(queue: string, signal: AbortSignal): Promise<void> {
    const stream = await this.#components.opener.open(this.#init.kind, { queue }, "bulk", signal);
    using life = joinSignals(signal, stream.closed);
    const sending = new SentBatches((id) => {
      this.#acknowledged = id;
      this.#components.outgoing.ack(id);
    });
    try {
      const { received } = readTelemetryReply(stream.reply);
      const reading = readAcks(stream, sending, life.signal).finally(() => life.abort());
      reading.catch(ignore("it is awaited below"));
      await this.#write(stream, { queue, received }, sending, life.signal);
      const isOurs = !life.signal.aborted;
      stream.end();
      await reading;
      if (!isOurs && !signal.aborted) throw new PicoletError("unavailable", "the hub has ended the stream");
      if (stream.closed.aborted) throw stream.closed.reason;
    } finally {
      stream.reset({ code: "cancelled", message: "the agent sends no more of it" });
    }
  }

  async #write(
    stream: OpenedStream,
    { queue, received }: { readonly queue: string; readonly received: number },
    sending: SentBatches,
    signal: AbortSignal,
  ): Promise<void> {
    const encode = this.#init.encoder();
    let last = this.#acknowledged;
    while (!signal.aborted) {
      await sending.room(signal);
      const batches = await this.#next(last, signal);
      for (const batch of batches) {
        if (batch.queue !== queue) return;
        if (!sending.hasRoom) break;
        last = batch.id;
        sending.add(batch);
        // The hub had it before this stream: of a session whose ack was lost.
        if (batch.sequence <= received) sending.acknowledge(batch.sequence);
        else await stream.write(encode(batch), signal);
      }
    }
  }
}

async function readAcks(stream: OpenedStream, sending: SentBatches, signal: AbortSignal): Promise<void> {
  const reader = new LengthPrefixedReader();
  for (let bytes = await stream.read(signal); bytes !== undefined; bytes = await stream.read(signal)) {
    for (const message of reader.push(bytes)) sending.acknowledge(decodeTelemetryAck(message));
  }
}

/** Batches sent and not acknowledged, in order. */
class SentBatches {
  readonly #acknowledged: (id: number) => void;
  readonly #batches: { readonly id: number; readonly sequence: number }[] = [];
  #wake: (() => void) | undefined;
  #highest = 0;

  constructor(acknowledged: (id: number) => void) {
    this.#acknowledged = acknowledged;
  }

  get hasRoom(): boolean {
    return this.#batches.length < MAX_UNACKNOWLEDGED_BATCHES;
  }

  add({ id, sequence }: Delivery): void {
    this.#highest = sequence;
    this.#batches.push({ id, sequence });
  }

  /** @throws a Violation for what was not sent */
  acknowledge(sequence: number): void {
    if (sequence > this.#highest) throw new Violation("protocol", `telemetry ${sequence} acknowledged, not sent`);
    let last: number | undefined;
    while (this.#batches[0] !== undefined && this.#batches[0].sequence <= sequence) last = this.#batches.shift()?.id;
    if (last === undefined) return;
    this.#acknowledged(last);
    this.#wake?.();
  }

  async room(signal: AbortSignal): Promise<void> {
    while (!this.hasRoom && !signal.aborted) {
      await wokenOrAborted(signal, (wake) => {
        this.#wake = wake;
        return () => {
          this.#wake = undefined;
        };
      });
    }
  }
}
