import type { SampleReceiver } from "@picolet/hub-core/telemetry-ports.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { SampleDecoder } from "@picolet/protocol/telemetry/sample-codec.ts";
import type { UsageSample } from "@picolet/protocol/telemetry/usage-sample.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { BoardStreams, type StreamTaker } from "../telemetry/telemetry-streams.ts";
import type { BoardSamples } from "./board-samples.ts";

/** Samples that count, on their way to a time-series store. */
export interface SampleExport {
  /** The last sequence of a board's queue that is here. */
  received(node: string, queue: string): number;
  /** Resolves when they will not be lost. */
  put(
    node: string,
    queue: string,
    samples: readonly { readonly sequence: number; readonly sample: UsageSample }[],
    signal: AbortSignal,
  ): Promise<void>;
}

export interface SampleStreamsComponents {
  readonly samples: BoardSamples;
  /** Undefined: the newest samples are kept, and no others. */
  readonly exported: SampleExport | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** Some days of a board that was away (a sample has 300 bytes) at once; then ten times what a full board sends. */
const NODE_BYTES = { burst: MEBIBYTE, perSecond: 16 * KIBIBYTE };

/** Takes boards' samples of usage. */
export class SampleStreams extends BoardStreams implements SampleReceiver {
  readonly everySeconds: number;

  constructor({ samples, exported, clock, log }: SampleStreamsComponents) {
    const begin = (node: string, queue: string): StreamTaker => {
      const decoder = new SampleDecoder();
      const received = exported?.received(node, queue) ?? samples.sequenceOf(node, queue);
      let last = received;
      return {
        received,
        take: async (messages, signal) => {
          const taken: { sequence: number; sample: UsageSample }[] = [];
          for (const message of messages) {
            const { sequence, sample } = decode(decoder, message, samples);
            if (sequence <= last) continue;
            last = sequence;
            const counted = samples.put(node, sample, { queue, sequence });
            if (counted !== undefined) taken.push({ sequence, sample: counted });
          }
          if (taken.length > 0) await exported?.put(node, queue, taken, signal);
          return last;
        },
      };
    };
    super({ taking: { what: "samples", nodeBytes: NODE_BYTES, begin }, clock, log });
    this.everySeconds = samples.everySeconds;
  }
}

function decode(decoder: SampleDecoder, message: Uint8Array, samples: BoardSamples) {
  try {
    return decoder.decode(message);
  } catch (error) {
    samples.refused += 1;
    throw error;
  }
}
