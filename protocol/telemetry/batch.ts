/**
 * A batch of records of one container, in CBOR as the tunnel uses it: on the board's disk, in the tunnel and in the
 * hub's store alike. Texts that come again are written once, times are offsets: a point takes some 25 bytes.
 *
 *     [namespace, pod, uid, container, [label, value …], [text …], [record …]]
 *     point: [0, stamp, time, measurement, number of tags, tag, value …, field, type, value …]
 *     event: [1, stamp, time, name, severity, message, attribute, value …]
 *
 * Names, and the values of tags and attributes, are indexes into the texts. Stamps are microseconds after the batch's
 * base, which is not in it: the board learns late what time it was. A time of the component's own is microseconds since
 * 1970, or `[microseconds, nanoseconds]`, else null.
 */
import { PicoletError } from "../errors.ts";
import { decodeCbor, encodeCbor } from "../tunnel/encoding/cbor.ts";
import { ListReader } from "../tunnel/encoding/list-reader.ts";
import { KIBIBYTE } from "../units.ts";
import {
  hasControlCharacters,
  MAX_FIELDS,
  MAX_LABELS,
  MAX_TAGS,
  MAX_TIME_US,
  recordProblem,
  SEVERITIES,
  type StampedRecord,
  type Tags,
  type TelemetryEvent,
  type TelemetryOrigin,
  type TelemetryPoint,
  type TelemetryRecord,
  type TelemetryValue,
} from "./records.ts";

/** Bounds one encoded batch: four of them fill a stream's window. */
export const MAX_BATCH_BYTES = 64 * KIBIBYTE;
export const MAX_BATCH_RECORDS = 2048;
/** Each has a head of a byte at least: more do not fit. */
const MAX_TEXTS = MAX_BATCH_BYTES;
/** Bounds one text. Names are shorter; their own limits are checked with the record. */
const MAX_TEXT = 4096;
const MAX_NAMESPACE = 63;
const MAX_POD = 253;
const MAX_UID = 128;
/** Prefix of 253, slash, name of 63. */
const MAX_LABEL = 317;
/** A batch is closed long before; one that was not is no batch of ours. */
const MAX_STAMP_US = 2 ** 48;

export interface TelemetryBatch {
  readonly origin: TelemetryOrigin;
  /** `stampUs` is relative to the batch's base. */
  readonly records: readonly StampedRecord[];
}

const POINT = 0;
const EVENT = 1;
const FLOAT = 0;
const INTEGER = 1;
const FLAG = 2;
const TEXT = 3;

/** @param baseUs what the records' stamps are written relative to; none is smaller */
export function encodeBatch(origin: TelemetryOrigin, records: readonly StampedRecord[], baseUs: number): Uint8Array {
  const texts = new Map<string, number>();
  const index = (text: string): number => {
    const known = texts.get(text);
    if (known !== undefined) return known;
    texts.set(text, texts.size);
    return texts.size - 1;
  };
  const rows = records.map(({ record, stampUs }) => rowOf(record, stampUs - baseUs, index));
  const { namespace, pod, uid, container, labels } = origin;
  const named = labels.slice(0, MAX_LABELS).flat();
  return encodeCbor([namespace, pod, uid, container, named, [...texts.keys()], rows]);
}

function rowOf(record: TelemetryRecord, stamp: number, index: (text: string) => number): unknown[] {
  const paired = (tags: Tags): number[] => tags.flatMap(([name, value]) => [index(name), index(value)]);
  const time = packTime(record.timeNs);
  if (record.kind === "event") {
    const { name, severity, message, attributes } = record;
    return [EVENT, stamp, time, index(name), SEVERITIES.indexOf(severity), message, ...paired(attributes)];
  }
  const { measurement, tags, fields } = record;
  const values = fields.flatMap(([name, value]) => [index(name), ...packValue(value)]);
  return [POINT, stamp, time, index(measurement), tags.length, ...paired(tags), ...values];
}

function packTime(timeNs: bigint | undefined): number | [number, number] | null {
  if (timeNs === undefined) return null;
  const [us, ns] = [Number(timeNs / 1000n), Number(timeNs % 1000n)];
  return ns === 0 ? us : [us, ns];
}

function packValue(value: TelemetryValue): [type: number, value: unknown] {
  switch (typeof value) {
    case "bigint": {
      const number = Number(value);
      // CBOR here has no numbers above 2^53.
      return [INTEGER, Number.isSafeInteger(number) ? number : String(value)];
    }
    case "boolean":
      return [FLAG, value];
    case "string":
      return [TEXT, value];
    case "number":
      return [FLOAT, value];
  }
}

/** @throws `invalid` for bytes that are not a batch */
export function decodeBatch(bytes: Uint8Array): TelemetryBatch {
  if (bytes.length > MAX_BATCH_BYTES) {
    throw new PicoletError("invalid", `cannot read a batch of more than ${MAX_BATCH_BYTES} bytes`);
  }
  const list = decodeCbor(bytes);
  if (!Array.isArray(list)) throw new PicoletError("invalid", "cannot read a batch: it is no list");
  const fields = new ListReader("batch", list);
  const origin: TelemetryOrigin = {
    namespace: nameText(fields, "namespace", MAX_NAMESPACE),
    pod: nameText(fields, "pod", MAX_POD),
    uid: nameText(fields, "uid", MAX_UID),
    container: nameText(fields, "container", MAX_NAMESPACE),
    labels: pairs(plainTexts(fields.list("labels", 2 * MAX_LABELS), MAX_LABEL)),
  };
  const texts = plainTexts(fields.list("texts", MAX_TEXTS), MAX_TEXT);
  const records = fields.lists("records", MAX_BATCH_RECORDS).map((row) => recordOf(row, texts));
  return { origin, records };
}

/** Reads a text without `ListReader.text`, which takes short byte strings for words; batches have none. */
function plainText(fields: ListReader, name: string, max: number): string {
  const value = fields.value();
  if (typeof value !== "string" || value.length > max) throw fields.wrong(name, `is no text of ${max} characters`);
  return value;
}

/** It becomes a tag of every point. */
function nameText(fields: ListReader, name: string, max: number): string {
  const value = plainText(fields, name, max);
  if (hasControlCharacters(value)) throw fields.wrong(name, "has control characters");
  return value;
}

function plainTexts(fields: ListReader, max: number): string[] {
  const texts: string[] = [];
  while (!fields.isAtEnd) texts.push(plainText(fields, String(texts.length), max));
  return texts;
}

function pairs(texts: readonly string[]): Tags {
  const list: [string, string][] = [];
  for (let at = 0; at + 1 < texts.length; at += 2) list.push([texts[at] ?? "", texts[at + 1] ?? ""]);
  return list;
}

function recordOf(row: ListReader, texts: readonly string[]): StampedRecord {
  const kind = row.oneOf("kind", [POINT, EVENT]);
  const stampUs = row.count("stamp");
  if (stampUs > MAX_STAMP_US) throw row.wrong("stamp", "is too far from the batch's base");
  const timeNs = readTime(row);
  const record = kind === POINT ? readPoint(row, texts, timeNs) : readEvent(row, texts, timeNs);
  const problem = recordProblem(record);
  if (problem !== undefined) throw row.wrong("record", problem);
  return { record, stampUs };
}

function readPoint(row: ListReader, texts: readonly string[], timeNs: bigint | undefined): TelemetryPoint {
  const measurement = row.oneOf("measurement", texts);
  const count = row.count("number of tags");
  if (count > MAX_TAGS) throw row.wrong("number of tags", `is above ${MAX_TAGS}`);
  const tags = Array.from({ length: count }, () => readPair(row, texts));
  const fields: [string, TelemetryValue][] = [];
  while (!row.isAtEnd && fields.length <= MAX_FIELDS) fields.push([row.oneOf("field", texts), readValue(row)]);
  return { kind: "point", measurement, tags, fields, timeNs };
}

function readEvent(row: ListReader, texts: readonly string[], timeNs: bigint | undefined): TelemetryEvent {
  const name = row.oneOf("name", texts);
  const severity = row.oneOf("severity", SEVERITIES);
  const message = plainText(row, "message", MAX_TEXT);
  const attributes: [string, string][] = [];
  while (!row.isAtEnd && attributes.length <= MAX_TAGS) attributes.push(readPair(row, texts));
  return { kind: "event", name, severity, message, attributes, timeNs };
}

const readPair = (row: ListReader, texts: readonly string[]): [string, string] => [
  row.oneOf("name of a tag", texts),
  row.oneOf("value of a tag", texts),
];

function readTime(row: ListReader): bigint | undefined {
  const time = row.value();
  if (time === null) return undefined;
  const [us, ns] = Array.isArray(time) ? (time as unknown[]) : [time, 0];
  const isTime = typeof us === "number" && Number.isSafeInteger(us) && us >= 0 && us <= MAX_TIME_US;
  if (!isTime || typeof ns !== "number" || !Number.isSafeInteger(ns) || ns < 0 || ns > 999) {
    throw row.wrong("time", "is no time");
  }
  return BigInt(us) * 1000n + BigInt(ns);
}

function readValue(row: ListReader): TelemetryValue {
  const type = row.oneOf("value type", [FLOAT, INTEGER, FLAG, TEXT]);
  const value = row.value();
  if (type === FLOAT && typeof value === "number") return value;
  if (type === FLAG && typeof value === "boolean") return value;
  if (type === TEXT && typeof value === "string") return value;
  if (type === INTEGER && Number.isSafeInteger(value)) return BigInt(value as number);
  if (type === INTEGER && typeof value === "string" && /^-?[0-9]{1,19}$/.test(value)) return BigInt(value);
  throw row.wrong("value", "is not of its type");
}
