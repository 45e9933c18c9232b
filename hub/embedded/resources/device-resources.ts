/**
 * resource.k8s.io/v1, dynamic resource allocation. The scheduler allocates claims that have no allocation yet
 * (`controllers/devices/`).
 */
import {
  duplicateValue,
  type FieldError,
  forbiddenValue,
  invalidValue,
  notSupportedValue,
  requiredValue,
  tooLongValue,
} from "../api/field-errors.ts";
import {
  fieldAt,
  immutableFields,
  listAt,
  mappingAt,
  sameValue,
  section,
  setDefault,
  textAt,
} from "../api/object-fields.ts";
import type { ApiObject, ResourceDefinition, StrategyContext } from "../api/resource-definition.ts";
import type { SelectorCompiler } from "../expressions/selector-compiler.ts";
import { ageColumn, column, nameColumn } from "../printing/columns.ts";
import { SelectorProblems } from "./device-selectors.ts";

const DEVICES = { group: "resource.k8s.io", version: "v1" } as const;

/** Kubernetes' limits (k8s.io/api/resource/v1). */
const MAX_REQUESTS = 32;
const MAX_CHOICES = 8;
const MAX_CONSTRAINTS = 32;
const MAX_TOLERATIONS = 16;
const MAX_RESULTS = 32;
const MAX_CONSUMERS = 256;
const MAX_DEVICES = 128;

function defaultRequests(spec: object): void {
  for (const request of listAt(spec, "devices", "requests")) {
    const exactly = fieldAt(request, "exactly");
    for (const each of [exactly, ...listAt(request, "firstAvailable")]) {
      if (typeof each !== "object" || each === null) continue;
      const fields = each as Record<string, unknown>;
      setDefault(fields, "allocationMode", "ExactCount");
      if (fields.allocationMode === "ExactCount") setDefault(fields, "count", 1);
    }
  }
}

const MODES = ["ExactCount", "All"];

function requestProblems(object: ApiObject, ...path: readonly string[]): FieldError[] {
  const field = [...path, "devices"].join(".");
  const requests = listAt(object, ...path, "devices", "requests");
  if (requests.length > MAX_REQUESTS)
    return [invalidValue(`${field}.requests`, requests.length, `must have at most ${MAX_REQUESTS} items`)];
  const found = uniqueNames(requests, `${field}.requests`);
  const names = new Set<string>();
  for (const [index, request] of requests.entries()) {
    const at = `${field}.requests[${index}]`;
    const exactly = fieldAt(request, "exactly");
    const choices = listAt(request, "firstAvailable");
    const name = textAt(request, "name");
    names.add(name);
    if ((exactly === undefined) === (choices.length === 0)) {
      found.push(requiredValue(at, "exactly one of `exactly` or `firstAvailable` is required"));
    }
    if (choices.length > MAX_CHOICES) {
      found.push(invalidValue(`${at}.firstAvailable`, choices.length, `must have at most ${MAX_CHOICES} items`));
    }
    if (exactly !== undefined) found.push(...oneRequestProblems(exactly, `${at}.exactly`));
    found.push(...uniqueNames(choices, `${at}.firstAvailable`));
    for (const [position, choice] of choices.entries()) {
      names.add(`${name}/${textAt(choice, "name")}`);
      found.push(...oneRequestProblems(choice, `${at}.firstAvailable[${position}]`));
    }
  }
  return [
    ...found,
    ...constraintProblems(listAt(object, ...path, "devices", "constraints"), `${field}.constraints`, names),
  ];
}

function uniqueNames(items: readonly unknown[], at: string): FieldError[] {
  const seen = new Set<string>();
  return items.flatMap((item, index) => {
    const name = textAt(item, "name");
    if (name === "") return [requiredValue(`${at}[${index}].name`)];
    if (seen.has(name)) return [duplicateValue(`${at}[${index}].name`, name)];
    seen.add(name);
    return [];
  });
}

/** Judges `exactly`, or one of `firstAvailable`. */
function oneRequestProblems(request: unknown, at: string): FieldError[] {
  const found: FieldError[] = [];
  if (textAt(request, "deviceClassName") === "") found.push(requiredValue(`${at}.deviceClassName`));
  const mode = textAt(request, "allocationMode");
  const count = fieldAt(request, "count");
  if (!MODES.includes(mode)) found.push(notSupportedValue(`${at}.allocationMode`, mode, MODES));
  else if (mode === "ExactCount" && !(Number(count) > 0)) {
    found.push(invalidValue(`${at}.count`, count, "must be greater than zero"));
  } else if (mode === "All" && count !== undefined && count !== 0) {
    found.push(invalidValue(`${at}.count`, count, "must not be specified when allocationMode is 'All'"));
  }
  const tolerations = listAt(request, "tolerations");
  if (tolerations.length > MAX_TOLERATIONS) {
    found.push(invalidValue(`${at}.tolerations`, tolerations.length, `must have at most ${MAX_TOLERATIONS} items`));
  }
  return found;
}

function constraintProblems(constraints: readonly unknown[], at: string, names: ReadonlySet<string>): FieldError[] {
  if (constraints.length > MAX_CONSTRAINTS)
    return [invalidValue(at, constraints.length, `must have at most ${MAX_CONSTRAINTS} items`)];
  return constraints.flatMap((constraint, index) => {
    const [match, distinct] = ["matchAttribute", "distinctAttribute"].map((name) => textAt(constraint, name));
    const unknown = listAt(constraint, "requests").findIndex((name) => !names.has(String(name)));
    const found: FieldError[] = [];
    if ((match === "") === (distinct === "")) {
      found.push(
        requiredValue(`${at}[${index}]`, "exactly one of `matchAttribute` or `distinctAttribute` is required"),
      );
    } else if (!/^[^/]+\/[^/]+$/.test(`${match}${distinct}`)) {
      const field = `${at}[${index}].${match === "" ? "distinctAttribute" : "matchAttribute"}`;
      found.push(invalidValue(field, `${match}${distinct}`, "must include domain prefix"));
    }
    if (unknown >= 0) {
      const name = listAt(constraint, "requests")[unknown];
      const detail = "must be the name of a request in the claim or the name of a request and a subrequest";
      found.push(invalidValue(`${at}[${index}].requests[${unknown}]`, name, detail));
    }
    return found;
  });
}

const ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access";

/** What is judged once, when the object is made: expressions, and the right to devices that are in use. */
function creationProblems(
  compiler: SelectorCompiler,
  object: ApiObject,
  { lookup }: Pick<StrategyContext, "lookup">,
  ...path: readonly string[]
): FieldError[] {
  const selectors = new SelectorProblems(compiler);
  const field = [...path, "devices", "requests"].join(".");
  const mayAccessAll = (): boolean => {
    const namespace = lookup.get("namespaces", "", object.metadata.namespace ?? "");
    return namespace?.metadata.labels?.[ADMIN_ACCESS_LABEL] === "true";
  };
  return listAt(object, ...path, "devices", "requests").flatMap((request, index) => {
    const at = `${field}[${index}]`;
    const exactly = fieldAt(request, "exactly");
    const found = exactly === undefined ? [] : [...selectors.of(exactly, `${at}.exactly`)];
    if (fieldAt(exactly, "adminAccess") === true && !mayAccessAll()) {
      const why = `admin access to devices requires the \`${ADMIN_ACCESS_LABEL}: true\` label on the containing namespace`;
      found.push(forbiddenValue(`${at}.exactly.adminAccess`, why));
    }
    for (const [position, choice] of listAt(request, "firstAvailable").entries()) {
      found.push(...selectors.of(choice, `${at}.firstAvailable[${position}]`));
    }
    return found;
  });
}

/** @param compiler of the selectors of devices; it is loaded with the first object that may have one */
export const deviceResources = (compiler: SelectorCompiler): readonly ResourceDefinition[] => [
  deviceClassResource(compiler),
  resourceClaimResource(compiler),
  resourceClaimTemplateResource(compiler),
  resourceSliceResource,
];

const deviceClassResource = (compiler: SelectorCompiler): ResourceDefinition => ({
  ...DEVICES,
  plural: "deviceclasses",
  singular: "deviceclass",
  kind: "DeviceClass",
  namespaced: false,
  model: "V1DeviceClass",
  load: () => compiler.load(),
  strategy: {
    default: (deviceClass) => void section(deviceClass, "spec"),
    hasGeneration: true,
    validateCreate: (deviceClass) => new SelectorProblems(compiler).of(fieldAt(deviceClass, "spec"), "spec"),
    validateUpdate(deviceClass, old) {
      const isSame = sameValue(fieldAt(deviceClass, "spec", "selectors"), fieldAt(old, "spec", "selectors"));
      return isSame ? [] : new SelectorProblems(compiler).of(fieldAt(deviceClass, "spec"), "spec");
    },
  },
});

function stateOf(claim: ApiObject): string {
  const states: string[] = [];
  const isDeleted = claim.metadata.deletionTimestamp !== undefined;
  if (isDeleted) states.push("deleted");
  if (fieldAt(claim, "status", "allocation") !== undefined) {
    states.push("allocated");
    if (listAt(claim, "status", "reservedFor").length > 0) states.push("reserved");
  } else if (!isDeleted) states.push("pending");
  return states.join(",");
}

function statusProblems(claim: ApiObject): FieldError[] {
  const found: FieldError[] = [];
  const allocation = fieldAt(claim, "status", "allocation");
  const consumers = listAt(claim, "status", "reservedFor");
  const results = listAt(allocation, "devices", "results");
  if (consumers.length > 0 && allocation === undefined) {
    found.push(forbiddenValue("status.reservedFor", "may not be specified when `allocated` is not set"));
  }
  for (const [field, list, limit] of [
    ["status.reservedFor", consumers, MAX_CONSUMERS],
    ["status.allocation.devices.results", results, MAX_RESULTS],
  ] as const) {
    if (list.length > limit) found.push(invalidValue(field, list.length, `must have at most ${limit} items`));
  }
  const uids = consumers.map((each) => textAt(each, "uid"));
  if (new Set(uids).size < uids.length)
    found.push(invalidValue("status.reservedFor", uids, "must not name a UID twice"));
  for (const [index, consumer] of consumers.entries()) {
    for (const name of ["resource", "name", "uid"]) {
      if (textAt(consumer, name) === "") found.push(requiredValue(`status.reservedFor[${index}].${name}`));
    }
  }
  for (const [index, result] of results.entries()) {
    for (const name of ["request", "driver", "pool", "device"]) {
      if (textAt(result, name) === "") found.push(requiredValue(`status.allocation.devices.results[${index}].${name}`));
    }
  }
  return found;
}

const resourceClaimResource = (compiler: SelectorCompiler): ResourceDefinition => ({
  ...DEVICES,
  plural: "resourceclaims",
  singular: "resourceclaim",
  kind: "ResourceClaim",
  namespaced: true,
  model: "ResourceV1ResourceClaim",
  subresources: [{ name: "status", verbs: ["get", "patch", "update"] }],
  columns: [nameColumn, column("State", stateOf), ageColumn],
  load: () => compiler.load(),
  strategy: {
    default: (claim) => defaultRequests(section(claim, "spec")),
    prepareForCreate(claim) {
      delete claim.status;
    },
    validate: (claim) => [...requestProblems(claim, "spec"), ...statusProblems(claim)],
    validateCreate: (claim, context) => creationProblems(compiler, claim, context, "spec"),
    validateUpdate(claim, old, { subresource }) {
      if (subresource !== "status") return immutableFields(claim, old, "spec");
      const [next, before] = [claim, old].map((each) => fieldAt(each, "status", "allocation"));
      const isChanged = next !== undefined && before !== undefined && !sameValue(next, before);
      return isChanged ? [invalidValue("status.allocation", next, "field is immutable")] : [];
    },
  },
});

const resourceClaimTemplateResource = (compiler: SelectorCompiler): ResourceDefinition => ({
  ...DEVICES,
  plural: "resourceclaimtemplates",
  singular: "resourceclaimtemplate",
  kind: "ResourceClaimTemplate",
  namespaced: true,
  model: "V1ResourceClaimTemplate",
  load: () => compiler.load(),
  strategy: {
    default: (template) => defaultRequests(section(section(template, "spec"), "spec")),
    validate: (template) => requestProblems(template, "spec", "spec"),
    validateCreate: (template, context) => creationProblems(compiler, template, context, "spec", "spec"),
    validateUpdate: (template, old) => immutableFields(template, old, "spec"),
  },
});

/** Exactly one says on which nodes the devices are. */
const PLACES = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"] as const;
const isSet = (value: unknown): boolean => value !== undefined && value !== "" && value !== false;

/** Kubernetes' limits of a device. The bounds of selectors count on them (`expressions/device-selector.ts`). */
const MAX_ATTRIBUTES = 32;
const MAX_ATTRIBUTE_NAME = 63 + 1 + 32;
const MAX_ATTRIBUTE_TEXT = 64;
const ATTRIBUTE_VALUES = ["bool", "int", "string", "version"];

function deviceProblems(device: unknown, at: string): FieldError[] {
  const attributes = Object.entries(mappingAt(device, "attributes"));
  const names = [...attributes.map(([name]) => name), ...Object.keys(mappingAt(device, "capacity"))];
  if (names.length > MAX_ATTRIBUTES) {
    const detail = `the total number of attributes and capacities must not exceed ${MAX_ATTRIBUTES}`;
    return [invalidValue(at, names.length, detail)];
  }
  const long = names.filter((name) => name.length > MAX_ATTRIBUTE_NAME);
  return [
    ...long.map((name) => invalidValue(at, name, `a name must have at most ${MAX_ATTRIBUTE_NAME} characters`)),
    ...attributes.flatMap(([name, value]) => {
      const field = `${at}.attributes[${name}]`;
      const given = ATTRIBUTE_VALUES.filter((each) => fieldAt(value, each) !== undefined);
      if (given.length !== 1) return [invalidValue(field, given, "exactly one value must be specified")];
      const text = `${textAt(value, "string")}${textAt(value, "version")}`;
      return text.length > MAX_ATTRIBUTE_TEXT ? [tooLongValue(field, MAX_ATTRIBUTE_TEXT)] : [];
    }),
  ];
}

const resourceSliceResource: ResourceDefinition = {
  ...DEVICES,
  plural: "resourceslices",
  singular: "resourceslice",
  kind: "ResourceSlice",
  namespaced: false,
  model: "V1ResourceSlice",
  selectableFields: {
    "spec.nodeName": (slice) => textAt(slice, "spec", "nodeName"),
    "spec.driver": (slice) => textAt(slice, "spec", "driver"),
  },
  columns: [
    nameColumn,
    column("Node", (slice) => textAt(slice, "spec", "nodeName")),
    column("Driver", (slice) => textAt(slice, "spec", "driver")),
    column("Pool", (slice) => textAt(slice, "spec", "pool", "name")),
    ageColumn,
  ],
  strategy: {
    hasGeneration: true,
    validate(slice) {
      const found = [["driver"], ["pool", "name"], ["pool", "resourceSliceCount"]]
        .filter((path) => textAt(slice, "spec", ...path) === "")
        .map((path) => requiredValue(["spec", ...path].join(".")));
      const places = PLACES.filter((name) => isSet(fieldAt(slice, "spec", name)));
      if (places.length !== 1) {
        const detail = `exactly one of ${PLACES.map((name) => `\`${name}\``).join(", ")} is required`;
        found.push(invalidValue("spec", places, detail));
      }
      const devices = listAt(slice, "spec", "devices");
      if (devices.length > MAX_DEVICES) {
        found.push(invalidValue("spec.devices", devices.length, `must have at most ${MAX_DEVICES} items`));
      }
      const names = devices.map((device) => textAt(device, "name"));
      if (new Set(names).size < names.length || names.includes("")) {
        found.push(invalidValue("spec.devices", names, "each device must have a name of its own"));
      }
      return [...found, ...devices.flatMap((device, index) => deviceProblems(device, `spec.devices[${index}]`))];
    },
    validateUpdate: (slice, old) => immutableFields(slice, old, "spec.driver", "spec.nodeName", "spec.pool.name"),
  },
};
