/**
 * InfluxDB line protocol (https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/):
 * `measurement,tag=value field=value 1769860800000000000`. Pure.
 *
 * It has no way to write some characters: a tag value that ends with a backslash would swallow what follows, a
 * measurement that begins with `#` would be a comment, and a line break ends the line. They become look-alikes (＼ ＃)
 * and `\n`.
 */
import type { Tags, TelemetryValue } from "@picolet/protocol/telemetry/records.ts";
import { ownTags, type RecordRow } from "./record-rows.ts";

/** Events are points of this measurement: name, severity and attributes are tags, the message its field. */
const EVENTS = "event";

/** One line, without its end. */
export function lineOf({ node, origin, record, timeNs, isEstimated }: RecordRow): string {
  const { namespace, pod, container, labels } = origin;
  const tags: (readonly [string, string])[] = [
    ["node", node],
    ["namespace", namespace],
    ["pod", pod],
    ["container", container],
    ...labels.map(([name, value]): [string, string] => [`label_${name}`, value]),
    // Nothing is written of a tag without a value.
    ["time_estimated", isEstimated ? "true" : ""],
  ];
  if (record.kind === "point") {
    const fields = record.fields.map(([name, value]) => `${escapeKey(name)}=${fieldValue(value)}`);
    return line(record.measurement, [...tags, ...ownTags(record.tags)], fields, timeNs);
  }
  const own = record.attributes.filter(([name]) => name !== "name" && name !== "severity");
  tags.push(["name", record.name], ["severity", record.severity], ...ownTags(own));
  return line(EVENTS, tags, [`message=${fieldValue(record.message)}`], timeNs);
}

function line(measurement: string, tags: Tags, fields: string[], timeNs: bigint): string {
  const written = new Map<string, string>();
  for (const [name, value] of tags) if (value !== "" && !written.has(name)) written.set(name, value);
  // Sorted, as those who read it do it faster then.
  const sorted = [...written].toSorted(([a], [b]) => (a < b ? -1 : 1));
  const head = [
    escapeMeasurement(measurement),
    ...sorted.map(([name, value]) => `${escapeKey(name)}=${escapeKey(value)}`),
  ];
  return `${head.join(",")} ${fields.join(",")} ${timeNs}`;
}

const withoutLineBreaks = (text: string): string => text.replaceAll("\r", "\\r").replaceAll("\n", "\\n");

function unambiguous(text: string): string {
  const plain = withoutLineBreaks(text);
  return plain.endsWith("\\") ? `${plain.slice(0, -1)}＼` : plain;
}

const escapeMeasurement = (text: string): string =>
  unambiguous(text)
    .replace(/^#/, "＃")
    .replaceAll(/[, ]/g, (each) => `\\${each}`);

/** Tags' names and values, fields' names. */
const escapeKey = (text: string): string => unambiguous(text).replaceAll(/[,= ]/g, (each) => `\\${each}`);

function fieldValue(value: TelemetryValue): string {
  switch (typeof value) {
    case "bigint":
      return `${value}i`;
    case "boolean":
      return value ? "true" : "false";
    case "number":
      return String(value);
    case "string":
      return `"${withoutLineBreaks(value).replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
  }
}
