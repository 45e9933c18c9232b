/** Between what the node keeps of its components' telemetry (`agent/telemetry`) and the tunnel, which sends it. */
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { TelemetryDelivery } from "@picolet/protocol/telemetry/stream-messages.ts";

export interface OutgoingBatch extends TelemetryDelivery {
  /** Its place on this node; grows. */
  readonly id: number;
  /** Names the run of the agent within which `sequence` counts. */
  readonly queue: string;
}

export interface OutgoingTelemetry {
  /**
   * The highest id there is to send, or of the first batch while that is gathered; 0: nothing has come yet. Changes
   * with every batch.
   */
  readonly latest: Watch<number>;
  /** The oldest after the batch `after`, all of one queue. */
  pending(after: number, limit: number): readonly OutgoingBatch[];
  /** The hub has all up to this batch, and keeps it. */
  ack(id: number): void;
  /**
   * The hub takes none at all: it is older, or has none of it. Told in each session in which there is something to
   * send.
   */
  untaken(reason: string): void;
  /**
   * Reports whether a session sends telemetry, oldest first. While one does, records go to the disk only when the hub
   * does not acknowledge them in time.
   */
  forwarding(isForwarding: boolean): void;
}
