/** picolet:board/telemetry: checked here, kept by the agent. */

import { isPicoletError } from "@picolet/protocol/errors.ts";
import {
  checkRecords,
  MAX_RECORD_BYTES,
  recordSize,
  type TelemetryEvent,
  type TelemetryPoint,
  type TelemetryRecord,
  type TelemetryValue,
} from "@picolet/protocol/telemetry/records.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import type * as Telemetry from "@picolet/wit/generated/picolet-board-telemetry.js";
import { Failure } from "../../resources/failure.ts";
import type { Poller } from "../../resources/polling.ts";
import type { ServiceClient } from "../../services/service-client.ts";
import { TelemetrySender } from "./sender.ts";

/** The interface's limits for one call. */
const MAX_POINTS = 1000;
const MAX_BYTES = 256 * KIBIBYTE;

const failure = (error: Telemetry.Error): Failure<Telemetry.Error> => new Failure(error);

export function telemetryImports(client: ServiceClient, poller: Poller) {
  const sender = new TelemetrySender({ client, now: () => process.hrtime.bigint(), later });
  /** Changes nothing before a wait, except what `finish` starts. */
  const send = (records: () => readonly TelemetryRecord[], isUrgent: boolean): void => {
    try {
      poller.finish(() => {
        const made = records();
        const bytes = checked(made);
        return sender.send(made, bytes, isUrgent);
      });
    } catch (error) {
      throw error instanceof ServiceRefusal ? failure(errorOf(error)) : error;
    }
  };
  const board: typeof Telemetry = {
    write: (points) => {
      if (points.length > MAX_POINTS) throw failure({ tag: "too-large", val: BigInt(MAX_POINTS) });
      if (points.length > 0) send(() => points.map(pointOf), false);
    },
    emit: (event) => send(() => [eventOf(event)], true),
  };
  return { "picolet:board/telemetry": board };
}

/** @returns bytes, as they are counted */
function checked(records: readonly TelemetryRecord[]): number {
  const bytes = records.reduce((sum, record) => sum + recordSize(record), 0);
  if (bytes > MAX_BYTES) throw failure({ tag: "too-large", val: BigInt(MAX_BYTES) });
  try {
    checkRecords(records);
  } catch (error) {
    if (isPicoletError(error, "invalid")) throw failure({ tag: "invalid", val: error.message });
    if (isPicoletError(error, "resource_exhausted")) throw failure({ tag: "too-large", val: BigInt(MAX_RECORD_BYTES) });
    throw error;
  }
  return bytes;
}

function pointOf({ measurement, tags, fields, timestamp }: Telemetry.Point): TelemetryPoint {
  const values = fields.map(([name, { val }]): readonly [string, TelemetryValue] => [name, val]);
  return { kind: "point", measurement, tags, fields: values, timeNs: timestamp };
}

const eventOf = ({ name, severity, message, attributes, timestamp }: Telemetry.Event): TelemetryEvent => ({
  ...{ kind: "event", name, severity, message, attributes, timeNs: timestamp },
});

function errorOf({ tag, val }: ServiceRefusal): Telemetry.Error {
  if (tag === "full") return { tag, val: BigInt(val ?? 0) };
  if (tag === "invalid" || tag === "refused") return { tag, val: String(val ?? "") };
  return { tag: "unavailable" };
}

function later(milliseconds: number, act: () => void): () => void {
  const timer = setTimeout(act, milliseconds);
  timer.unref();
  return () => clearTimeout(timer);
}
