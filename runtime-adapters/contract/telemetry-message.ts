/**
 * `telemetry.put`, from a runner to the agent: what a component has written, or a question (number 0, no records). The
 * runner keeps what it handed over until it hears that it is kept, for it outlives the agent.
 *
 *     {run, number, firstUnkept, isUrgent, records: [record …]}  ->  {taken, kept}
 *     point: [stamp, time | null, measurement, [tag, value …], [field, type, value …]]
 *     event: [stamp, time | null, name, severity, message, [attribute, value …]]
 *
 * Times and whole numbers are texts, for they have 64 bits.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import {
  SEVERITIES,
  type StampedRecord,
  type Tags,
  type TelemetryRecord,
  type TelemetryValue,
} from "@picolet/protocol/telemetry/records.ts";
import type { Plain } from "./board-services.ts";

export interface TelemetryPut {
  /** 16 hexadecimal digits, of one run of one container. */
  readonly run: string;
  /** The number of the message, from 1; 0 only asks. */
  readonly number: number;
  /** The first that the runner does not know to be kept. */
  readonly firstUnkept: number;
  /** The answer is sent when all records up to here are kept. */
  readonly isUrgent: boolean;
  readonly records: readonly Plain[];
}

export interface TelemetryPutAnswer {
  /** Less than the number: this one was not taken, for those after `taken` are to come again first. */
  readonly taken: number;
  /** On the disk, or with the hub. */
  readonly kept: number;
}

/** Bounds one `put`: `write` takes as many points. */
const MAX_RECORDS = 1000;

const FLOAT = 0;
const INTEGER = 1;
const FLAG = 2;
const TEXT = 3;

export function packRecord({ record, stampUs }: StampedRecord): Plain {
  const time = record.timeNs === undefined ? null : String(record.timeNs);
  if (record.kind === "event") {
    const { name, severity, message, attributes } = record;
    return [stampUs, time, name, severity, message, attributes.flat()];
  }
  const values = record.fields.flatMap(([name, value]): Plain[] => [name, ...packValue(value)]);
  return [stampUs, time, record.measurement, record.tags.flat(), values];
}

function packValue(value: TelemetryValue): [number, Plain] {
  if (typeof value === "bigint") return [INTEGER, String(value)];
  if (typeof value === "number") return [FLOAT, value];
  return typeof value === "boolean" ? [FLAG, value] : [TEXT, value];
}

const wrong = (what: string): PicoletError => new PicoletError("invalid", `cannot read telemetry: ${what}`);

/** @throws `invalid` for any other structure; the records themselves are not validated */
export function readTelemetryPut(value: Plain): TelemetryPut & { readonly stamped: readonly StampedRecord[] } {
  const { run, number, firstUnkept, isUrgent, records } = (value ?? {}) as Partial<Record<keyof TelemetryPut, unknown>>;
  if (typeof run !== "string" || !/^[0-9a-f]{16}$/.test(run)) throw wrong("run");
  if (!isCount(number) || !isCount(firstUnkept)) throw wrong("number");
  if (!Array.isArray(records) || records.length > MAX_RECORDS) throw wrong("records");
  const stamped = records.map(unpackRecord);
  return { run, number, firstUnkept, isUrgent: isUrgent === true, records, stamped };
}

const isCount = (each: unknown): each is number => Number.isSafeInteger(each) && Number(each) >= 0;

function unpackRecord(packed: unknown): StampedRecord {
  if (!Array.isArray(packed)) throw wrong("a record");
  const [stampUs, time, ...rest] = packed as unknown[];
  if (!isCount(stampUs)) throw wrong("a stamp");
  const timeNs = time === null ? undefined : wholeNumber(time);
  return { stampUs, record: rest.length === 4 ? unpackEvent(rest, timeNs) : unpackPoint(rest, timeNs) };
}

function unpackPoint([measurement, tags, values]: readonly unknown[], timeNs: bigint | undefined): TelemetryRecord {
  if (!Array.isArray(values) || values.length % 3 !== 0) throw wrong("fields");
  const fields: [string, TelemetryValue][] = [];
  for (let at = 0; at < values.length; at += 3) {
    fields.push([text(values[at]), unpackValue(values[at + 1], values[at + 2])]);
  }
  return { kind: "point", measurement: text(measurement), tags: unpackTags(tags), fields, timeNs };
}

function unpackEvent(event: readonly unknown[], timeNs: bigint | undefined): TelemetryRecord {
  const [name, severity, message, attributes] = event;
  const known = SEVERITIES.find((each) => each === severity);
  if (known === undefined) throw wrong("a severity");
  const texts = { name: text(name), message: text(message) };
  return { kind: "event", ...texts, severity: known, attributes: unpackTags(attributes), timeNs };
}

function unpackTags(flat: unknown): Tags {
  if (!Array.isArray(flat) || flat.length % 2 !== 0) throw wrong("tags");
  const tags: [string, string][] = [];
  for (let at = 0; at < flat.length; at += 2) tags.push([text(flat[at]), text(flat[at + 1])]);
  return tags;
}

function unpackValue(type: unknown, value: unknown): TelemetryValue {
  if (type === FLOAT && typeof value === "number") return value;
  if (type === FLAG && typeof value === "boolean") return value;
  if (type === TEXT && typeof value === "string") return value;
  if (type === INTEGER) return wholeNumber(value);
  throw wrong("a value");
}

function text(value: unknown): string {
  if (typeof value !== "string") throw wrong("a text");
  return value;
}

function wholeNumber(value: unknown): bigint {
  if (typeof value === "string" && /^-?[0-9]{1,20}$/.test(value)) return BigInt(value);
  throw wrong("a whole number");
}

/** @throws `invalid` */
export function readTelemetryPutAnswer(value: Plain): TelemetryPutAnswer {
  const { taken, kept } = (value ?? {}) as Partial<Record<keyof TelemetryPutAnswer, unknown>>;
  if (!isCount(taken) || !isCount(kept)) throw wrong("the answer");
  return { taken, kept };
}
