import type { StampedRecord, TelemetryOrigin } from "@picolet/protocol/telemetry/records.ts";

/**
 * What a run of a container hands over at once. Until it hears that a handover is kept it remembers it, for it outlives
 * the agent: one that is new says how far it knows of the run, and the rest comes again.
 */
export interface TelemetryHandover {
  readonly origin: TelemetryOrigin;
  /** Of one run of one container: names the sender. At most 128 characters. */
  readonly run: string;
  /** The sender's handovers are numbered from 1 on. 0: nothing is handed over, only asked. */
  readonly number: number;
  /** The first that the sender does not know to be kept. */
  readonly firstUnkept: number;
  readonly records: readonly StampedRecord[];
  /** Whoever handed it over waits for its being kept. */
  readonly isUrgent: boolean;
}
