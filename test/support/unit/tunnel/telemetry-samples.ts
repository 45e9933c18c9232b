/** One of every kind of record, for goldens, as seeds of fuzzing and for random batches. */

import {
  SEVERITIES,
  type Severity,
  type StampedRecord,
  type Tags,
  type TelemetryEvent,
  type TelemetryOrigin,
  type TelemetryPoint,
  type TelemetryRecord,
  type TelemetryValue,
} from "@picolet/protocol/telemetry/records.ts";
import fc from "fast-check";

export const SAMPLE_ORIGIN: TelemetryOrigin = {
  namespace: "default",
  pod: "greenhouse",
  uid: "0b5a7b3e-1f52-4d0e-9d55-d8f0a3c7e111",
  container: "sensor",
  labels: [
    ["app", "greenhouse"],
    ["site", "north, bed 3"],
  ],
};

export const point = (measurement: string, value: TelemetryValue): TelemetryPoint => ({
  ...{ kind: "point", measurement, tags: [], fields: [["value", value]], timeNs: undefined },
});

export const event = (name: string, message: string, severity: Severity = "info"): TelemetryEvent => ({
  ...{ kind: "event", name, severity, message, attributes: [], timeNs: undefined },
});

/** Stamps from 1,000,000 µs on. */
export const SAMPLE_RECORDS: readonly StampedRecord[] = [
  { stampUs: 1_000_000, record: { ...point("climate", 21.5), tags: [["bed", "3"]] } },
  {
    stampUs: 1_000_250,
    record: {
      ...{ kind: "point", measurement: "water", tags: [["bed", "3"]], timeNs: 1_769_860_800_000_000_007n },
      fields: [
        ["litres", 12n],
        ["pressure", -0.25],
        ["open", true],
      ],
    },
  },
  { stampUs: 1_000_251, record: point("largest", 2n ** 63n - 1n) },
  { stampUs: 1_000_253, record: point("state", 'idle "é"\n') },
  { stampUs: 2_000_000, record: { ...event("door.opened", "by hand", "warning"), attributes: [["door", "1"]] } },
];

const text = (maxLength: number) => fc.string({ unit: "grapheme", maxLength }).filter((each) => each.isWellFormed());
const name = text(20).filter((each) => each !== "" && Buffer.byteLength(each) <= 128 && !/\p{Cc}/u.test(each));
const tags = fc
  .uniqueArray(fc.tuple(name, name), { maxLength: 4, selector: ([key]) => key })
  .map((list) => list as Tags);
const timeNs = fc.option(fc.bigInt({ min: 0n, max: BigInt(Number.MAX_SAFE_INTEGER) * 1000n }), { nil: undefined });
const value: fc.Arbitrary<TelemetryValue> = fc.oneof(
  // CBOR here writes whole floats as whole numbers, of which there is one zero.
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((each) => each + 0),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.boolean(),
  text(60),
);
const fields = fc.uniqueArray(fc.tuple(name, value), { minLength: 1, maxLength: 4, selector: ([key]) => key });

/** Any record that a component may hand over. */
export const anyRecord: fc.Arbitrary<TelemetryRecord> = fc.oneof(
  fc
    .tuple(name, tags, fields, timeNs)
    .map(([measurement, t, f, at]): TelemetryPoint => ({ kind: "point", measurement, tags: t, fields: f, timeNs: at })),
  fc
    .tuple(name, fc.constantFrom(...SEVERITIES), text(200), tags, timeNs)
    .map(([n, severity, message, attributes, at]): TelemetryEvent => {
      return { kind: "event", name: n, severity, message, attributes, timeNs: at };
    }),
);
