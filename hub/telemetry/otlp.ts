/**
 * OTLP/HTTP in JSON (https://opentelemetry.io/docs/specs/otlp/): `resourceMetrics` for points, `resourceLogs` for
 * events and for fields that are texts, which no metric can be. 64-bit numbers are texts, names are in lowerCamelCase.
 * Pure.
 */
import type {
  Severity,
  Tags,
  TelemetryEvent,
  TelemetryPoint,
  TelemetryValue,
} from "@picolet/protocol/telemetry/records.ts";
import { ownTags, type RecordRow } from "./record-rows.ts";

const SCOPE = { name: "picolet" };
/** Numbers of the logs' data model: the first of each range. */
const SEVERITY_NUMBERS: Readonly<Record<Severity, number>> = { debug: 5, info: 9, warning: 13, error: 17 };
/** A point's only field, of which the measurement alone is the metric's name. */
const PLAIN_FIELD = "value";

export interface OtlpRequests {
  /** For `/v1/metrics`; undefined: there is nothing for it. */
  readonly metrics: unknown;
  /** For `/v1/logs`. */
  readonly logs: unknown;
}

interface Resource {
  readonly attributes: readonly unknown[];
  /** By name. */
  readonly metrics: Map<string, { readonly isCounter: boolean; readonly dataPoints: unknown[] }>;
  readonly logs: unknown[];
}

const CUMULATIVE = 2;

export function otlpOf(rows: readonly RecordRow[]): OtlpRequests {
  const resources = new Map<string, Resource>();
  for (const row of rows) {
    const { node, origin } = row;
    const key = JSON.stringify([node, origin]);
    const resource = resources.get(key) ?? resourceOf(row);
    resources.set(key, resource);
    if (row.record.kind === "event") resource.logs.push(logOf(row, row.record));
    else addPoint(resource, row, row.record);
  }
  const all = [...resources.values()];
  const metrics = all.filter((each) => each.metrics.size > 0).map(resourceMetricsOf);
  const logs = all.filter((each) => each.logs.length > 0).map(resourceLogsOf);
  return {
    metrics: metrics.length === 0 ? undefined : { resourceMetrics: metrics },
    logs: logs.length === 0 ? undefined : { resourceLogs: logs },
  };
}

const resourceOf = (row: RecordRow): Resource => ({
  attributes: resourceAttributes(row),
  metrics: new Map(),
  logs: [],
});

const resourceMetricsOf = ({ attributes, metrics }: Resource): unknown => ({
  resource: { attributes },
  scopeMetrics: [
    {
      scope: SCOPE,
      metrics: [...metrics].map(([name, { isCounter, dataPoints }]) =>
        isCounter
          ? { name, sum: { dataPoints, aggregationTemporality: CUMULATIVE, isMonotonic: true } }
          : { name, gauge: { dataPoints } },
      ),
    },
  ],
});

const resourceLogsOf = ({ attributes, logs }: Resource): unknown => ({
  resource: { attributes },
  scopeLogs: [{ scope: SCOPE, logRecords: logs }],
});

/** By the semantic conventions of Kubernetes' resources. */
function resourceAttributes({ node, origin }: RecordRow): unknown[] {
  const { namespace, pod, uid, container, labels } = origin;
  const place = [
    ["k8s.node.name", node],
    ["k8s.namespace.name", namespace],
    ["k8s.pod.name", pod],
    ["k8s.pod.uid", uid],
    ["k8s.container.name", container],
    ["service.name", new Map(labels).get("app.kubernetes.io/name") ?? pod],
  ] as const;
  return [
    // A figure of the node itself has no pod, one of a pod no container.
    ...place.flatMap(([key, value]) => (value === "" ? [] : [textAttribute(key, value)])),
    ...labels.map(([name, value]) => textAttribute(`k8s.pod.label.${name}`, value)),
  ];
}

const textAttribute = (key: string, value: string): unknown => ({ key, value: { stringValue: value } });

function attributesOf(tags: Tags, { isEstimated }: RecordRow): unknown[] {
  const attributes = ownTags(tags).map(([name, value]) => textAttribute(name, value));
  return isEstimated ? [...attributes, { key: "time.estimated", value: { boolValue: true } }] : attributes;
}

function addPoint({ metrics, logs }: Resource, row: RecordRow, { measurement, tags, fields }: TelemetryPoint): void {
  for (const [field, value] of fields) {
    const name = field === PLAIN_FIELD ? measurement : `${measurement}.${field}`;
    const attributes = attributesOf(tags, row);
    const timeUnixNano = String(row.timeNs);
    if (typeof value === "string") {
      logs.push({ timeUnixNano, body: { stringValue: value }, eventName: name, attributes });
      continue;
    }
    const { sinceNs } = row;
    const points = metrics.get(name) ?? { isCounter: sinceNs !== undefined, dataPoints: [] };
    metrics.set(name, points);
    const began = sinceNs === undefined ? {} : { startTimeUnixNano: String(sinceNs) };
    points.dataPoints.push({ attributes, ...began, timeUnixNano, ...numberOf(value) });
  }
}

function numberOf(value: Exclude<TelemetryValue, string>): { asDouble: number } | { asInt: string } {
  if (typeof value === "number") return { asDouble: value };
  return { asInt: String(typeof value === "boolean" ? Number(value) : value) };
}

const logOf = (row: RecordRow, { name, severity, message, attributes }: TelemetryEvent): unknown => ({
  timeUnixNano: String(row.timeNs),
  severityNumber: SEVERITY_NUMBERS[severity],
  severityText: severity.toUpperCase(),
  body: { stringValue: message },
  eventName: name,
  attributes: attributesOf(attributes, row),
});
