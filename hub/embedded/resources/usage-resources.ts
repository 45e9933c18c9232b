import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { METRICS_GROUP, METRICS_VERSION, type UsageObjects } from "@picolet/hub-core/usage-objects.ts";
import { mappingAt } from "../api/object-fields.ts";
import type { ApiObject, PrinterColumn, ResourceDefinition } from "../api/resource-definition.ts";
import { column, nameColumn } from "../printing/columns.ts";

const apiObject = (object: KubeObject): ApiObject => object as ApiObject;

function* apiObjects(objects: Iterable<KubeObject>): Generator<ApiObject> {
  for (const object of objects) yield apiObject(object);
}

const shared = {
  group: METRICS_GROUP,
  version: METRICS_VERSION,
  singular: "",
  verbs: ["get", "list"],
  strategy: {},
} as const;

/** As metrics-server prints them. */
const usageColumns = (
  usageOf: (object: ApiObject) => readonly Readonly<Record<string, unknown>>[],
): PrinterColumn[] => [
  nameColumn,
  ...(["cpu", "memory"] as const).map((resource) =>
    column(resource, (object) =>
      sumOf(
        resource,
        usageOf(object).map((usage) => String(usage[resource])),
      ),
    ),
  ),
  column("Window", ({ window }) => String(window)),
];

/** Quantities of one unit: `n` of CPU, `Ki` of memory. */
const sumOf = (resource: "cpu" | "memory", quantities: readonly string[]): string =>
  `${quantities.reduce((sum, quantity) => sum + Number.parseInt(quantity, 10), 0)}${resource === "cpu" ? "n" : "Ki"}`;

/** `metrics.k8s.io/v1beta1`, for `kubectl top`. */
export const usageResources = (usage: UsageObjects): readonly ResourceDefinition[] => [
  {
    ...shared,
    plural: "nodes",
    kind: "NodeMetrics",
    namespaced: false,
    model: "V1beta1NodeMetrics",
    columns: usageColumns((object) => [mappingAt(object, "usage")]),
    live: {
      get: (_namespace, name) => {
        const object = usage.node(name);
        return object === undefined ? undefined : apiObject(object);
      },
      list: () => apiObjects(usage.nodes()),
    },
  },
  {
    ...shared,
    plural: "pods",
    kind: "PodMetrics",
    namespaced: true,
    model: "V1beta1PodMetrics",
    columns: usageColumns(({ containers }) =>
      (containers as readonly { readonly usage: Readonly<Record<string, unknown>> }[]).map((each) => each.usage),
    ),
    live: {
      get: (namespace, name) => {
        const object = usage.pod(namespace, name);
        return object === undefined ? undefined : apiObject(object);
      },
      list: (namespace) => apiObjects(usage.pods(namespace)),
    },
  },
];
