/** JSON schemas of the resources' types, made from the models; versions 2 and 3 of OpenAPI differ in how they refer. */

import type { ResourceDefinition } from "../api/resource-definition.ts";
import { isAtomicObject, type ListRule, listRuleOf } from "../schema/merge-keys.ts";
import { type FieldType, type Model, type ModelField, type ModelSource, reachableModels } from "../schema/models.ts";

export type Schema = Record<string, unknown>;

export type OpenApiVersion = "v2" | "v3";

const META: ReadonlySet<string> = new Set([
  "V1Condition",
  "V1DeleteOptions",
  "V1LabelSelector",
  "V1LabelSelectorRequirement",
  "V1ListMeta",
  "V1ManagedFieldsEntry",
  "V1ObjectMeta",
  "V1OwnerReference",
  "V1Preconditions",
]);

/** `io.k8s.api.apps.v1.DaemonSet`, unique for each model: those that several groups use are core's. */
export function schemaNames(
  source: ModelSource,
  definitions: readonly ResourceDefinition[],
): ReadonlyMap<string, string> {
  const names = new Map<string, string>();
  const byCoreFirst = definitions.toSorted((a, b) => Number(a.group !== "") - Number(b.group !== ""));
  for (const { group, version, model: root } of byCoreFirst) {
    const packageName = group === "" ? "core" : (group.split(".")[0] ?? group);
    for (const { name } of reachableModels(source, [root])) {
      if (names.has(name)) continue;
      const kind = name.replace(/^[A-Za-z]*?V\d+((alpha|beta)\d+)?/, "");
      names.set(
        name,
        META.has(name)
          ? `io.k8s.apimachinery.pkg.apis.meta.v1.${kind}`
          : `io.k8s.api.${packageName}.${version}.${kind}`,
      );
    }
  }
  return names;
}

export class SchemaWriter {
  readonly #source: ModelSource;
  readonly #names: ReadonlyMap<string, string>;
  readonly #version: OpenApiVersion;

  constructor(source: ModelSource, names: ReadonlyMap<string, string>, version: OpenApiVersion) {
    this.#source = source;
    this.#names = names;
    this.#version = version;
  }

  nameOf(model: string): string {
    return this.#names.get(model) ?? model;
  }

  /** @param kinds that the model is, for what is a resource of its own */
  model(model: Model, kinds: readonly ResourceDefinition[]): Schema {
    const required = [...model.fields.values()].filter(({ isRequired }) => isRequired).map(({ name }) => name);
    return {
      ...(model.description === "" ? {} : { description: model.description }),
      type: "object",
      ...(required.length === 0 ? {} : { required }),
      ...(model.fields.size === 0
        ? {}
        : {
            properties: Object.fromEntries(
              [...model.fields.values()].map((field) => [field.name, this.#property(model, field)]),
            ),
          }),
      ...(isAtomicObject(model.name) ? { "x-kubernetes-map-type": "atomic" } : {}),
      ...(kinds.length === 0
        ? {}
        : { "x-kubernetes-group-version-kind": kinds.map(({ group, version, kind }) => ({ group, version, kind })) }),
    };
  }

  reference(model: string): string {
    const folder = this.#version === "v2" ? "#/definitions/" : "#/components/schemas/";
    return `${folder}${this.nameOf(model)}`;
  }

  #property(model: Model, { name, type, description }: ModelField): Schema {
    if (type.kind === "object") {
      // The models say nothing of a field that is an object; its type does.
      const said = description === "" ? this.#source.get(type.model).description : description;
      const text = said === "" ? {} : { description: said };
      const target = { $ref: this.reference(type.model) };
      // A reference takes no neighbours in version 3.
      return this.#version === "v2" || said === "" ? { ...text, ...target } : { ...text, allOf: [target] };
    }
    const text = description === "" ? {} : { description };
    return { ...text, ...this.#type(type), ...extensionsOf(listRuleOf(model.name, name), type) };
  }

  #type(type: FieldType): Schema {
    switch (type.kind) {
      case "string":
      case "boolean":
        return { type: type.kind };
      case "integer":
        return { type: "integer", format: type.format };
      case "number":
        return { type: "number", format: "double" };
      case "bytes":
        return { type: "string", format: "byte" };
      case "date-time":
      case "micro-time":
        return { type: "string", format: "date-time" };
      case "quantity":
        return this.#version === "v2" ? { type: "string" } : { oneOf: [{ type: "string" }, { type: "number" }] };
      case "int-or-string":
        return this.#version === "v2"
          ? { type: "string", format: "int-or-string" }
          : { format: "int-or-string", oneOf: [{ type: "integer" }, { type: "string" }] };
      case "any":
        return { type: "object" };
      case "array":
        return { type: "array", items: this.#type(type.items) };
      case "map":
        return { type: "object", additionalProperties: this.#type(type.values) };
      case "object":
        return { $ref: this.reference(type.model) };
    }
  }
}

function extensionsOf(rule: ListRule | undefined, type: FieldType): Schema {
  if (type.kind !== "array") return {};
  if (rule === undefined) return { "x-kubernetes-list-type": "atomic" };
  const forApply: Schema =
    rule.only === "strategic"
      ? { "x-kubernetes-list-type": "atomic" }
      : {
          "x-kubernetes-list-type": rule.type,
          ...(rule.type === "map" ? { "x-kubernetes-list-map-keys": rule.keys } : {}),
        };
  if (rule.only === "apply") return forApply;
  const [key] = rule.keys;
  return {
    ...forApply,
    ...(key === undefined ? {} : { "x-kubernetes-patch-merge-key": key }),
    "x-kubernetes-patch-strategy": "merge",
  };
}
