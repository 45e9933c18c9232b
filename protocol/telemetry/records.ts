/**
 * The telemetry of components: points and events as `wit/board/telemetry.wit` defines them, with their origin. They
 * travel from a component's runner through the agent's queue and the tunnel to the hub; `batch.ts` gives them their
 * compact form. Pure.
 */
import { PicoletError } from "../errors.ts";
import { KIBIBYTE } from "../units.ts";

/** A number is a float of 64 bits, a bigint a whole number of 64 bits with a sign. */
export type TelemetryValue = number | bigint | boolean | string;

export const SEVERITIES = ["debug", "info", "warning", "error"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** Tags in the order given; names are unique. */
export type Tags = readonly (readonly [name: string, value: string])[];

export interface TelemetryPoint {
  readonly kind: "point";
  readonly measurement: string;
  readonly tags: Tags;
  /** One at least; names are unique. */
  readonly fields: readonly (readonly [name: string, value: TelemetryValue])[];
  /** When, by the component's own word: nanoseconds since 1970. Undefined: when it was handed over. */
  readonly timeNs: bigint | undefined;
}

export interface TelemetryEvent {
  readonly kind: "event";
  readonly name: string;
  readonly severity: Severity;
  readonly message: string;
  readonly attributes: Tags;
  /** The time, as a point's. */
  readonly timeNs: bigint | undefined;
}

export type TelemetryRecord = TelemetryPoint | TelemetryEvent;

/** `stampUs`: microseconds of the machine's monotonic clock, since its boot, when it was handed over. */
export interface StampedRecord {
  readonly record: TelemetryRecord;
  readonly stampUs: number;
}

/** The container and pod that a record comes from. */
export interface TelemetryOrigin {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  readonly container: string;
  /** The pod's. */
  readonly labels: Tags;
}

/** Bounds a name in UTF-8: time-series stores index each. */
export const MAX_NAME_BYTES = 128;
export const MAX_TAGS = 16;
export const MAX_FIELDS = 64;
/** Bounds a text value and an event's message in UTF-8. */
export const MAX_TEXT_BYTES = 4096;
/** Bounds one record, as `recordSize` counts. A batch holds at least one. */
export const MAX_RECORD_BYTES = 48 * KIBIBYTE;
/** Kubernetes limits labels and annotations to 256 KiB together; of more labels than these the rest is left out. */
export const MAX_LABELS = 64;
/** Bounds the times here: microseconds beyond the year 2255 are not exact. */
export const MAX_TIME_US = Number.MAX_SAFE_INTEGER;

const MAX_TIME_NS = BigInt(MAX_TIME_US) * 1000n;
const MIN_INTEGER = -(2n ** 63n);
const MAX_INTEGER = 2n ** 63n - 1n;

const CONTROL = /\p{Cc}/u;

export const hasControlCharacters = (text: string): boolean => CONTROL.test(text);

/** UTF-8. An unpaired surrogate, of which there are none in a well-formed text, counts as its replacement. */
function byteLength(text: string): number {
  let bytes = text.length;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    // Two units of a pair are four bytes.
    if (code > 0x7f) bytes += code > 0x7ff && (code & 0xf800) !== 0xd800 ? 2 : 1;
  }
  return bytes;
}

const isText = (text: string, max: number): boolean => text.isWellFormed() && byteLength(text) <= max;

/** What is wrong with a record; undefined: nothing. The end of a sentence: `the point x: <problem>`. */
export function recordProblem(record: TelemetryRecord): string | undefined {
  const { timeNs } = record;
  if (timeNs !== undefined && (timeNs < 0n || timeNs > MAX_TIME_NS)) return "its time is after the year 2255";
  return record.kind === "point" ? pointProblem(record) : eventProblem(record);
}

function pointProblem({ measurement, tags, fields }: TelemetryPoint): string | undefined {
  const problem = nameProblem("its measurement", measurement) ?? tagsProblem("tag", tags);
  if (problem !== undefined) return problem;
  if (fields.length === 0 || fields.length > MAX_FIELDS)
    return `it has ${fields.length} fields, not 1 to ${MAX_FIELDS}`;
  const names = new Set<string>();
  for (const [name, value] of fields) {
    const wrong = nameProblem("a field's name", name) ?? valueProblem(name, value);
    if (wrong !== undefined) return wrong;
    if (names.has(name)) return `field ${name} is given twice`;
    names.add(name);
  }
  return undefined;
}

function eventProblem({ name, message, attributes }: TelemetryEvent): string | undefined {
  if (!isText(message, MAX_TEXT_BYTES)) return `its message is longer than ${MAX_TEXT_BYTES} bytes, or no text`;
  return nameProblem("its name", name) ?? tagsProblem("attribute", attributes);
}

/** Line protocol cannot write a line break in one. */
function nameProblem(what: string, text: string): string | undefined {
  const isName = text !== "" && isText(text, MAX_NAME_BYTES) && !hasControlCharacters(text);
  return isName ? undefined : `${what} is not of 1 to ${MAX_NAME_BYTES} bytes without control characters`;
}

function valueProblem(name: string, value: TelemetryValue): string | undefined {
  if (typeof value === "number" && !Number.isFinite(value)) return `field ${name} is not a finite number`;
  if (typeof value === "bigint" && (value < MIN_INTEGER || value > MAX_INTEGER))
    return `field ${name} has over 64 bits`;
  if (typeof value !== "string" || isText(value, MAX_TEXT_BYTES)) return undefined;
  return `field ${name} is longer than ${MAX_TEXT_BYTES} bytes, or no text`;
}

function tagsProblem(what: string, tags: Tags): string | undefined {
  if (tags.length > MAX_TAGS) return `it has more than ${MAX_TAGS} ${what}s`;
  const names = new Set<string>();
  for (const [name, value] of tags) {
    const wrong = nameProblem(`the name of a ${what}`, name) ?? nameProblem(`${what} ${name}`, value);
    if (wrong !== undefined) return wrong;
    if (names.has(name)) return `${what} ${name} is given twice`;
    names.add(name);
  }
  return undefined;
}

/** A record's list, kind, stamp and time. */
const FIXED_BYTES = 40;
/** A text's head, and the index that stands for it. */
const TEXT_HEAD = 6;
const NUMBER_BYTES = 24;

const textSize = (text: string): number => TEXT_HEAD + byteLength(text);

/** @returns an upper bound of its bytes in a batch */
export function recordSize(record: TelemetryRecord): number {
  let size = FIXED_BYTES;
  for (const [name, value] of record.kind === "point" ? record.tags : record.attributes) {
    size += textSize(name) + textSize(value);
  }
  if (record.kind === "event") return size + textSize(record.name) + textSize(record.message);
  for (const [name, value] of record.fields) {
    size += textSize(name) + (typeof value === "string" ? textSize(value) : NUMBER_BYTES);
  }
  return size + textSize(record.measurement);
}

/** @throws `invalid` with what is wrong with the first that is; `resource_exhausted` for one that is too large */
export function checkRecords(records: readonly TelemetryRecord[]): void {
  for (const record of records) {
    const what = record.kind === "point" ? `the point ${record.measurement}` : `the event ${record.name}`;
    const problem = recordProblem(record);
    if (problem !== undefined) throw new PicoletError("invalid", `${what.slice(0, MAX_NAME_BYTES)}: ${problem}`);
    if (recordSize(record) > MAX_RECORD_BYTES) {
      throw new PicoletError("resource_exhausted", `${what} is larger than ${MAX_RECORD_BYTES} bytes`);
    }
  }
}
