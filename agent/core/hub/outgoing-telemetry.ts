/** Between what the node keeps for its hub (`agent/telemetry`, `agent/samples`) and the tunnel, which sends it. */
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { TelemetryDelivery } from "@picolet/protocol/telemetry/stream-messages.ts";
import type { UsageSample } from "@picolet/protocol/telemetry/usage-sample.ts";

/** An item that a lane sends in order, and again until the hub acknowledges it. */
export interface Delivery {
  /** Its place on this node; grows. */
  readonly id: number;
  /** Names the run of the agent within which `sequence` counts. */
  readonly queue: string;
  readonly sequence: number;
}

export interface OutgoingBatch extends Delivery, TelemetryDelivery {}

export interface OutgoingSample extends Delivery {
  readonly sample: UsageSample;
}

export type OutgoingTelemetry = Outgoing<OutgoingBatch>;
export type OutgoingSamples = Outgoing<OutgoingSample>;

export interface Outgoing<Item extends Delivery> {
  /**
   * The highest id there is to send, or of the first batch while that is gathered; 0: nothing has come yet. Changes
   * with every batch.
   */
  readonly latest: Watch<number>;
  /** The oldest after the one with the id `after`, all of one queue. */
  pending(after: number, limit: number): readonly Item[];
  /** The hub has all up to this id, and keeps it. */
  ack(id: number): void;
  /**
   * The hub takes none at all: it is older, or has none of it. Called in each session in which there is something to
   * send.
   */
  untaken(reason: string): void;
  /**
   * Reports whether a session sends telemetry, oldest first. While one does, records go to the disk only when the hub
   * does not acknowledge them in time.
   */
  forwarding(isForwarding: boolean): void;
}

/** Samples of this board's usage. Nothing is sampled, and nothing of it loaded, before a hub asks for them. */
export interface SampleSource {
  /** A hub's welcome has asked for a sample so often, or for none. */
  want(everySeconds: number | undefined): void;
  /** @throws what keeps it from being loaded */
  outgoing(): Promise<OutgoingSamples>;
}
