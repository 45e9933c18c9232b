/**
 * OpenAPI 2.0 of `metrics.k8s.io/v1beta1`, which a cluster's API server merges into its own: for `kubectl explain`. An
 * API server that finds none logs an error once a minute. It keeps the definitions that a path refers to.
 */
import { METRICS_GROUP, METRICS_VERSION } from "@picolet/hub-core/usage-objects.ts";

const BASE = `/apis/${METRICS_GROUP}/${METRICS_VERSION}`;
/** The names of Kubernetes' own document. */
const PACKAGE = "io.k8s.metrics.pkg.apis.metrics.v1beta1";

type Schema = Readonly<Record<string, unknown>>;

const text = (description: string): Schema => ({ description, type: "string" });
const refTo = (name: string): Schema => ({ $ref: `#/definitions/${PACKAGE}.${name}` });
const listOf = (description: string, name: string): Schema => ({ description, type: "array", items: refTo(name) });

const USAGE: Schema = {
  description: "CPU in cores, an average over the window, and memory in bytes (working set).",
  type: "object",
  additionalProperties: { type: "string" },
};
const TYPE_META = {
  apiVersion: text("The version of this object's schema."),
  kind: text("The kind of this object."),
};
const OBJECT = {
  ...TYPE_META,
  metadata: { description: "Name, labels and, of a pod, the namespace.", type: "object" },
  timestamp: { ...text("The end of the window."), format: "date-time" },
  window: text("The time over which the usage was measured, such as 30s."),
};

const kindOf = (kind: string, description: string, properties: Schema): Readonly<Record<string, Schema>> => ({
  [`${PACKAGE}.${kind}`]: {
    ...{ description, type: "object", properties },
    "x-kubernetes-group-version-kind": [{ group: METRICS_GROUP, version: METRICS_VERSION, kind }],
  },
  [`${PACKAGE}.${kind}List`]: {
    description: `A list of ${kind}.`,
    type: "object",
    required: ["items"],
    properties: { ...TYPE_META, metadata: { type: "object" }, items: listOf("The objects.", kind) },
    "x-kubernetes-group-version-kind": [{ group: METRICS_GROUP, version: METRICS_VERSION, kind: `${kind}List` }],
  },
});

const parameter = (name: string): Schema => ({ name, in: "path", required: true, type: "string" });

function pathOf(path: string, kind: string, action: "get" | "list"): Readonly<Record<string, Schema>> {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name);
  const operation = {
    description: `${action} ${kind}`,
    operationId: `${action}${kind}${action === "list" && names.length > 0 ? "OfNamespace" : ""}`,
    produces: ["application/json"],
    schemes: ["https"],
    responses: { 200: { description: "OK", schema: refTo(action === "list" ? `${kind}List` : kind) } },
    "x-kubernetes-action": action,
    "x-kubernetes-group-version-kind": { group: METRICS_GROUP, version: METRICS_VERSION, kind },
  };
  return { [`${BASE}${path}`]: { get: operation, parameters: names.map(parameter) } };
}

export const usageOpenApi = (): Schema => ({
  swagger: "2.0",
  info: { title: "picolet-hub", version: METRICS_VERSION },
  paths: {
    ...pathOf("/nodes", "NodeMetrics", "list"),
    ...pathOf("/nodes/{name}", "NodeMetrics", "get"),
    ...pathOf("/pods", "PodMetrics", "list"),
    ...pathOf("/namespaces/{namespace}/pods", "PodMetrics", "list"),
    ...pathOf("/namespaces/{namespace}/pods/{name}", "PodMetrics", "get"),
  },
  definitions: {
    ...kindOf("NodeMetrics", "The usage of one node.", { ...OBJECT, usage: USAGE }),
    ...kindOf("PodMetrics", "The usage of one pod.", {
      ...OBJECT,
      containers: listOf("The containers that run.", "ContainerMetrics"),
    }),
    [`${PACKAGE}.ContainerMetrics`]: {
      description: "The usage of one container.",
      type: "object",
      properties: { name: text("The container's name."), usage: USAGE },
    },
  },
});
