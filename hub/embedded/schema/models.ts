import { readFileSync } from "node:fs";
import { join } from "node:path";
import { PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";

export type FieldType =
  | { readonly kind: "string" | "boolean" | "any" | "quantity" | "int-or-string" }
  | { readonly kind: "bytes" | "date-time" | "micro-time" }
  | { readonly kind: "integer"; readonly format: "int32" | "int64" }
  | { readonly kind: "number" }
  | { readonly kind: "array"; readonly items: FieldType }
  | { readonly kind: "map"; readonly values: FieldType }
  | { readonly kind: "object"; readonly model: string };

export interface ModelField {
  readonly name: string;
  readonly type: FieldType;
  readonly isRequired: boolean;
  readonly description: string;
}

/** One of Kubernetes' types, as @kubernetes/client-node has it. */
export interface Model {
  readonly name: string;
  readonly description: string;
  readonly fields: ReadonlyMap<string, ModelField>;
}

const own = (name: string, description: string, fields: readonly ModelField[]): readonly [string, Model] => [
  name,
  { name, description, fields: new Map(fields.map((field) => [field.name, field])) },
];
const ownField = (name: string, type: FieldType, description: string): ModelField => ({
  ...{ name, type, description, isRequired: true },
});
const USAGE_FIELD = ownField(
  "usage",
  { kind: "map", values: { kind: "quantity" } },
  "CPU in cores over the window, and the working set of memory.",
);
const SAMPLED_FIELDS = [
  ownField("metadata", { kind: "object", model: "V1ObjectMeta" }, ""),
  ownField("timestamp", { kind: "date-time" }, "The end of the window over which CPU was averaged."),
  ownField("window", { kind: "string" }, "The length of the window, as Go writes a duration."),
];

/** Types of metrics.k8s.io/v1beta1, which @kubernetes/client-node has no models of. */
const OWN_MODELS: ReadonlyMap<string, Model> = new Map([
  own("V1beta1NodeMetrics", "Resource usage of a node.", [...SAMPLED_FIELDS, USAGE_FIELD]),
  own("V1beta1PodMetrics", "Resource usage of a pod.", [
    ...SAMPLED_FIELDS,
    ownField(
      "containers",
      { kind: "array", items: { kind: "object", model: "V1beta1ContainerMetrics" } },
      "Usage of each container that runs.",
    ),
  ]),
  own("V1beta1ContainerMetrics", "Resource usage of a container.", [
    ownField("name", { kind: "string" }, "Name of the container."),
    USAGE_FIELD,
  ]),
]);

/** Kubernetes' types. Each is read when it is first asked for, and kept. */
export interface ModelSource {
  /** @throws `not_found` for a name that is none */
  get(name: string): Model;
}

/** The generator writes quantities as strings; Kubernetes takes numbers for them too. */
const QUANTITIES: ReadonlySet<string> = new Set([
  "V1ResourceRequirements.limits",
  "V1ResourceRequirements.requests",
  "V1VolumeResourceRequirements.limits",
  "V1VolumeResourceRequirements.requests",
  "V1PodSpec.overhead",
  "V1ContainerStatus.allocatedResources",
  "V1NodeStatus.capacity",
  "V1NodeStatus.allocatable",
  "V1EmptyDirVolumeSource.sizeLimit",
  "V1ResourceFieldSelector.divisor",
  "V1Overhead.podFixed",
  "V1PersistentVolumeSpec.capacity",
  "V1PersistentVolumeClaimStatus.capacity",
  "V1LimitRangeItem.max",
  "V1LimitRangeItem.min",
  "V1LimitRangeItem.default",
  "V1LimitRangeItem.defaultRequest",
  "V1ResourceQuotaSpec.hard",
  "V1CapacityRequestPolicy.default",
  "V1CapacityRequestPolicy.validValues",
  "V1CapacityRequestPolicyRange.max",
  "V1CapacityRequestPolicyRange.min",
  "V1CapacityRequestPolicyRange.step",
  "V1CapacityRequirements.requests",
  "V1Counter.value",
  "V1DeviceCapacity.value",
  "V1DeviceRequestAllocationResult.consumedCapacity",
  "V1NodeAllocatableResourceMapping.allocationMultiplier",
]);

function typeOf(text: string, format: string, isQuantity: boolean): FieldType {
  const array = /^Array<(.*)>$/.exec(text)?.[1];
  if (array !== undefined) return { kind: "array", items: typeOf(array, format, isQuantity) };
  const map = /^\{ \[key: string\]: (.*); \}$/.exec(text)?.[1];
  if (map !== undefined) return { kind: "map", values: typeOf(map, format, isQuantity) };
  if (isQuantity && text === "string") return { kind: "quantity" };
  if (format === "int-or-string") return { kind: "int-or-string" };
  if (format === "date-time-micro") return { kind: "micro-time" };
  switch (text) {
    case "string":
      return format === "byte" ? { kind: "bytes" } : { kind: "string" };
    case "number":
      return format === "double"
        ? { kind: "number" }
        : { kind: "integer", format: format === "int64" ? "int64" : "int32" };
    case "boolean":
      return { kind: "boolean" };
    case "Date":
      return { kind: "date-time" };
    case "any":
      return { kind: "any" };
    default:
      return { kind: "object", model: text };
  }
}

interface Attribute {
  readonly baseName: string;
  readonly type: string;
  readonly format: string;
}

const commentText = (comment: string): string =>
  comment
    .replace(/^\s*\/\*\*|\*\/\s*$/g, "")
    .replace(/^\s*\*+ ?/gm, "")
    .replace(/\\(['"`])/g, "$1")
    .trim();

/** Reads a model from its generated script (names, types, formats) and its declaration (what is required, comments). */
function parseModel(name: string, script: string, declaration: string): Model {
  const list = /\.attributeTypeMap = (\[[\s\S]*?\n\]);/.exec(script)?.[1] ?? "[]";
  const attributes = JSON.parse(list) as readonly Attribute[];
  const body = declaration.slice(declaration.indexOf("export declare class"));
  const declared = new Map<string, { isRequired: boolean; description: string }>();
  for (const match of body.matchAll(/(\/\*\*(?:(?!\*\/)[\s\S])*\*\/\s*)?^ {4}'([^']+)'(\?)?: /gm)) {
    declared.set(match[2] ?? "", { isRequired: match[3] === undefined, description: commentText(match[1] ?? "") });
  }
  const own = /(\/\*\*(?:(?!\*\/)[\s\S])*\*\/)\s*export declare class/.exec(declaration)?.[1] ?? "";
  const fields = attributes.map(({ baseName, type, format }): [string, ModelField] => {
    const { isRequired = false, description = "" } = declared.get(baseName) ?? {};
    const fieldType = typeOf(type, format, QUANTITIES.has(`${name}.${baseName}`));
    return [baseName, { name: baseName, type: fieldType, isRequired, description }];
  });
  return { name, description: commentText(own), fields: new Map(fields) };
}

const MODEL_NAME = /^[A-Z][A-Za-z0-9]*$/;

/** The models of an installed @kubernetes/client-node. */
export class FolderModelSource implements ModelSource {
  readonly #folder: string;
  readonly #models = new Map<string, Model>();

  /** @param folder `…/@kubernetes/client-node/dist/gen/models` */
  constructor(folder: string) {
    this.#folder = folder;
  }

  get(name: string): Model {
    const known = this.#models.get(name) ?? OWN_MODELS.get(name);
    if (known !== undefined) return known;
    if (!MODEL_NAME.test(name)) throw new PicoletError("not_found", `cannot find the type ${JSON.stringify(name)}`);
    try {
      const read = (ending: string): string => readFileSync(join(this.#folder, `${name}${ending}`), "utf8");
      const model = parseModel(name, read(".js"), read(".d.ts"));
      this.#models.set(name, model);
      return model;
    } catch (error) {
      throw toPicoletError(error, "not_found", `cannot read the type ${name}`);
    }
  }
}

type FileModel = readonly [description: string, fields: readonly ModelField[]];

/** The models that were gathered into one file when the hub was built (`gatherModels`). */
export class FileModelSource implements ModelSource {
  readonly #path: string;
  #models: Map<string, Model> | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  get(name: string): Model {
    this.#models ??= this.#read();
    const model = this.#models.get(name) ?? OWN_MODELS.get(name);
    if (model === undefined) throw new PicoletError("not_found", `cannot find the type ${name}`);
    return model;
  }

  #read(): Map<string, Model> {
    const all = JSON.parse(readFileSync(this.#path, "utf8")) as Readonly<Record<string, FileModel>>;
    const entries = Object.entries(all).map(([name, [description, fields]]): [string, Model] => [
      name,
      { name, description, fields: new Map(fields.map((field) => [field.name, field])) },
    ]);
    return new Map(entries);
  }
}

const referenceOf = (type: FieldType): string | undefined => {
  if (type.kind === "array") return referenceOf(type.items);
  if (type.kind === "map") return referenceOf(type.values);
  return type.kind === "object" ? type.model : undefined;
};

/** `roots` and everything that they refer to, in the order they are met. */
export function reachableModels(source: ModelSource, roots: readonly string[]): Model[] {
  const found = new Map<string, Model>();
  const open = [...roots];
  for (let name = open.shift(); name !== undefined; name = open.shift()) {
    if (found.has(name)) continue;
    const model = source.get(name);
    found.set(name, model);
    for (const { type } of model.fields.values()) {
      const next = referenceOf(type);
      if (next !== undefined && !found.has(next)) open.push(next);
    }
  }
  return [...found.values()];
}

/** The content of the file for FileModelSource. */
export function gatherModels(source: ModelSource, roots: readonly string[]): string {
  const entries = reachableModels(source, roots).map(({ name, description, fields }): [string, FileModel] => [
    name,
    [description, [...fields.values()]],
  ]);
  return JSON.stringify(Object.fromEntries(entries));
}

/** The type of a field of a model; undefined: not known, or the model is not an object with named fields. */
export function fieldTypeOf(source: ModelSource, type: FieldType | undefined, field: string): FieldType | undefined {
  if (type?.kind === "map") return type.values;
  if (type?.kind !== "object") return undefined;
  return source.get(type.model).fields.get(field)?.type;
}
