/**
 * `limitranges`, and what they do to new pods: Kubernetes' LimitRanger, in its words. Limits of whole pods and claims
 * are stored alone.
 */
import { compareQuantities, quantityOf } from "@picolet/protocol/kubernetes/quantity.ts";
import { type FieldError, notSupportedValue } from "../../api/field-errors.ts";
import { listAt, mappingAt, section, textAt } from "../../api/object-fields.ts";
import type { ApiObject, ResourceDefinition, StrategyContext } from "../../api/resource-definition.ts";
import { column, nameColumn } from "../../printing/columns.ts";

type Amounts = Readonly<Record<string, unknown>>;

const TYPES = ["Container", "PersistentVolumeClaim", "Pod"];
const ANNOTATION = "kubernetes.io/limit-ranger";

/** A limit's default is its maximum, a request's the limit's, or else the minimum. */
function defaultItem(item: Record<string, unknown>): void {
  if (item.type !== "Container") return;
  item.default = { ...mappingAt(item, "max"), ...mappingAt(item, "default") };
  item.defaultRequest = {
    ...mappingAt(item, "min"),
    ...mappingAt(item, "default"),
    ...mappingAt(item, "defaultRequest"),
  };
}

export const limitRangeResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "limitranges",
  singular: "limitrange",
  kind: "LimitRange",
  namespaced: true,
  shortNames: ["limits"],
  model: "V1LimitRange",
  columns: [nameColumn, column("Created At", ({ metadata }) => metadata.creationTimestamp ?? "", "date")],
  strategy: {
    default(range) {
      for (const item of listAt(range, "spec", "limits")) defaultItem(item as Record<string, unknown>);
    },
    validate: (range) =>
      listAt(range, "spec", "limits").flatMap((item, index): FieldError[] => {
        const type = textAt(item, "type");
        return TYPES.includes(type) ? [] : [notSupportedValue(`spec.limits[${index}].type`, type, TYPES)];
      }),
  },
};

/** @param refuse with why, as the plugin says it */
export function admitLimits(pod: ApiObject, { lookup }: StrategyContext, refuse: (why: string) => never): void {
  const ranges = lookup.list("limitranges", pod.metadata.namespace ?? "");
  const items = ranges
    .flatMap((range) => listAt(range, "spec", "limits"))
    .filter((item) => textAt(item, "type") === "Container");
  if (items.length === 0) return;
  const changes = items.flatMap((item) => [
    ...applyDefaults(pod, "containers", "container", item),
    ...applyDefaults(pod, "initContainers", "init container", item),
  ]);
  if (changes.length > 0) {
    pod.metadata.annotations = {
      ...pod.metadata.annotations,
      [ANNOTATION]: `LimitRanger plugin set: ${changes.join("; ")}`,
    };
  }
  const problems = [...listAt(pod, "spec", "containers"), ...listAt(pod, "spec", "initContainers")].flatMap(
    (container) => items.flatMap((item) => problemsOf(container, item)),
  );
  if (problems.length > 0) refuse(problems.length === 1 ? String(problems[0]) : `[${problems.join(", ")}]`);
}

function applyDefaults(pod: ApiObject, list: string, what: string, item: unknown): readonly string[] {
  return listAt(pod, "spec", list).flatMap((container) => {
    const resources = section(container as object, "resources");
    return (
      [
        ["requests", "defaultRequest", "request"],
        ["limits", "default", "limit"],
      ] as const
    ).flatMap(([kind, field, word]) => {
      const missing = Object.entries(mappingAt(item, field)).filter(
        ([name]) => !Object.hasOwn(mappingAt(resources, kind), name),
      );
      if (missing.length === 0) return [];
      resources[kind] = { ...mappingAt(resources, kind), ...Object.fromEntries(missing) };
      const names = missing.map(([name]) => name).sort();
      return [`${names.join(", ")} ${word} for ${what} ${textAt(container, "name")}`];
    });
  });
}

const compare = (left: unknown, right: unknown): number =>
  compareQuantities(quantityOf(String(left)), quantityOf(String(right)));

function problemsOf(container: unknown, item: unknown): readonly string[] {
  const [requests, limits] = ["requests", "limits"].map((kind): Amounts => mappingAt(container, "resources", kind));
  const atLeast = ([name, least]: [string, unknown]): readonly string[] => {
    const start = `minimum ${name} usage per Container is ${String(least)}`;
    const [request, limit] = [requests?.[name], limits?.[name]];
    if (request === undefined) return [`${start}.  No request is specified`];
    if (compare(request, least) < 0) return [`${start}, but request is ${String(request)}`];
    return limit !== undefined && compare(limit, least) < 0 ? [`${start}, but limit is ${String(limit)}`] : [];
  };
  const atMost = ([name, most]: [string, unknown]): readonly string[] => {
    const start = `maximum ${name} usage per Container is ${String(most)}`;
    const [request, limit] = [requests?.[name], limits?.[name]];
    if (limit === undefined) return [`${start}.  No limit is specified`];
    if (compare(limit, most) > 0) return [`${start}, but limit is ${String(limit)}`];
    return request !== undefined && compare(request, most) > 0 ? [`${start}, but request is ${String(request)}`] : [];
  };
  return [
    ...Object.entries(mappingAt(item, "min")).flatMap(atLeast),
    ...Object.entries(mappingAt(item, "max")).flatMap(atMost),
  ];
}
