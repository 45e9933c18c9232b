import assert from "node:assert/strict";
import { test } from "node:test";
import type { TelemetryRecord } from "@picolet/protocol/telemetry/records.ts";
import { anyRecord, event, point, SAMPLE_ORIGIN } from "@picolet/test/support/unit/tunnel/telemetry-samples.ts";
import { parseLine, parseOtlpLogs, parseOtlpMetrics } from "@picolet/test/support/unit/tunnel/time-series-store.ts";
import fc from "fast-check";
import { lineOf } from "./line-protocol.ts";
import { otlpOf } from "./otlp.ts";
import type { RecordRow } from "./record-rows.ts";

const TIME = 1_769_860_800_000_000_007n;
const rowOf = (record: TelemetryRecord): RecordRow => ({
  ...{ node: "edge-1", origin: SAMPLE_ORIGIN, record, timeNs: TIME, isEstimated: false },
});
const PLACE = ["node", "namespace", "pod", "container", "name", "severity", "label_app", "label_site"];
/** Replaces what line protocol cannot express. */
const said = (text: string): string => text.replace(/\\$/, "＼");

test("line protocol says where, when and what, and its own reader reads the same", () => {
  const line = lineOf(rowOf({ ...point("room climate", 21.5), tags: [["bed", "a, b=c"]] }));
  assert.equal(
    line,
    "room\\ climate,bed=a\\,\\ b\\=c,container=sensor,label_app=greenhouse,label_site=north\\,\\ bed\\ 3," +
      "namespace=default,node=edge-1,pod=greenhouse value=21.5 1769860800000000007",
  );
  assert.equal(
    lineOf(rowOf(event("door.opened", 'by "hand"\nagain', "warning"))).split(" message=")[1],
    '"by \\"hand\\"\\\\nagain" 1769860800000000007',
  );
});

test("line protocol marks a time that was estimated", () => {
  const row = rowOf(point("room climate", 21.5));
  assert.equal(parseLine(lineOf({ ...row, isEstimated: true })).tags.time_estimated, "true");
  assert.equal(parseLine(lineOf(row)).tags.time_estimated, undefined);
});

test("any record of a component comes back from line protocol", () => {
  fc.assert(
    fc.property(anyRecord, (record) => {
      const text = lineOf(rowOf(record));
      assert.doesNotMatch(text, /\n/);
      const { measurement, tags, fields, timeNs } = parseLine(text);
      assert.equal(timeNs, TIME);
      const own = (record.kind === "point" ? record.tags : record.attributes).filter(([name]) => !PLACE.includes(name));
      for (const [name, value] of own) assert.equal(tags[said(name)], said(value));
      assert.equal(tags.node, "edge-1");
      if (record.kind === "event") {
        assert.deepEqual([measurement, tags.severity, tags.name], ["event", record.severity, said(record.name)]);
        return;
      }
      assert.equal(measurement, said(record.measurement).replace(/^#/, "＃"));
      for (const [name, value] of record.fields) {
        const wanted = typeof value === "string" ? value.replaceAll("\n", "\\n").replaceAll("\r", "\\r") : value;
        assert.equal(fields[said(name)], wanted);
      }
    }),
    { numRuns: 1000 },
  );
});

test("any record of a component comes back from OTLP", () => {
  fc.assert(
    fc.property(fc.array(anyRecord, { minLength: 1, maxLength: 5 }), (records) => {
      const { metrics, logs } = otlpOf(records.map(rowOf));
      const points = metrics === undefined ? [] : parseOtlpMetrics(JSON.stringify(metrics));
      const told = logs === undefined ? [] : parseOtlpLogs(JSON.stringify(logs));
      const values = records.flatMap((each) => (each.kind === "point" ? each.fields.map(([, value]) => value) : []));
      const numbers = values.filter((value) => typeof value !== "string");
      const sorted = (list: readonly unknown[]): unknown[] => list.map(String).toSorted();
      assert.deepEqual(
        sorted(points.map(({ value }) => value)),
        sorted(numbers.map((value) => (typeof value === "boolean" ? BigInt(value) : value))),
      );
      const events = records.flatMap((each) => (each.kind === "event" ? [each.message] : []));
      assert.deepEqual(
        sorted(told.map(({ body }) => body)),
        sorted([...events, ...values.filter((value) => typeof value === "string")]),
      );
      for (const { resource, timeNs } of [...points, ...told]) {
        assert.equal(timeNs, TIME);
        assert.equal(resource["k8s.pod.name"], "greenhouse");
        assert.equal(resource["k8s.pod.label.site"], "north, bed 3");
      }
    }),
    { numRuns: 500 },
  );
});

test("a component cannot say that it is on another node", () => {
  const record = { ...point("x", 1), tags: [["node", "edge-2"] as const, ["pod", "other"] as const] };
  const { tags } = parseLine(lineOf(rowOf(record)));
  assert.deepEqual([tags.node, tags.pod], ["edge-1", "greenhouse"]);
});

test("OTLP says of a time that it is a guess", () => {
  const rows = [point("temperature", 21.5), point("state", "idle"), event("door", "opened")].map(rowOf);
  const told = (isEstimated: boolean): unknown[] => {
    const { metrics, logs } = otlpOf(rows.map((row) => ({ ...row, isEstimated })));
    const all = [...parseOtlpMetrics(JSON.stringify(metrics)), ...parseOtlpLogs(JSON.stringify(logs))];
    return all.map(({ attributes }) => attributes["time.estimated"]);
  };
  assert.deepEqual(told(true), [true, true, true]);
  assert.deepEqual(told(false), [undefined, undefined, undefined]);
});
