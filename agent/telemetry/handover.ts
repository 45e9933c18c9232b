import type { StampedRecord, TelemetryOrigin } from "@picolet/protocol/telemetry/records.ts";

/**
 * Records that a run of a container hands over in one call. The sender outlives the agent: it remembers each handover
 * until the agent acknowledges it as kept, and repeats to a new agent those that the agent does not have.
 */
export interface TelemetryHandover {
  readonly origin: TelemetryOrigin;
  /** Names the sender: one run of one container. At most 128 characters. */
  readonly run: string;
  /** The sender numbers its handovers from 1. 0: it only asks for its position. */
  readonly number: number;
  /** The first handover that the sender does not know to be kept. */
  readonly firstUnkept: number;
  readonly records: readonly StampedRecord[];
  /** True when the sender waits until it is kept. */
  readonly isUrgent: boolean;
}
