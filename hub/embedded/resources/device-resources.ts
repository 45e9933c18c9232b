/**
 * resource.k8s.io/v1, dynamic resource allocation. Nothing here allocates: selectors of devices are expressions (CEL),
 * which the hub does not run. An operator, or a scheduler of its own, writes a claim's allocation.
 */
import { type FieldError, forbiddenValue, invalidValue, requiredValue } from "../api/field-errors.ts";
import { fieldAt, immutableFields, listAt, sameValue, section, setDefault, textAt } from "../api/object-fields.ts";
import type { ApiObject, ResourceDefinition } from "../api/resource-definition.ts";
import { ageColumn, column, nameColumn } from "../printing/columns.ts";

const DEVICES = { group: "resource.k8s.io", version: "v1" } as const;

/** Kubernetes' limits (k8s.io/api/resource/v1). */
const MAX_REQUESTS = 32;
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

function requestProblems(object: ApiObject, ...path: readonly string[]): FieldError[] {
  const field = [...path, "devices", "requests"].join(".");
  const requests = listAt(object, ...path, "devices", "requests");
  if (requests.length > MAX_REQUESTS)
    return [invalidValue(field, requests.length, `must have at most ${MAX_REQUESTS} items`)];
  return requests.flatMap((request, index) => {
    const at = `${field}[${index}]`;
    const exactly = fieldAt(request, "exactly");
    const choices = listAt(request, "firstAvailable");
    const found: FieldError[] = textAt(request, "name") === "" ? [requiredValue(`${at}.name`)] : [];
    if ((exactly === undefined) === (choices.length === 0)) {
      found.push(requiredValue(at, "exactly one of `exactly` or `firstAvailable` is required"));
    }
    if (exactly !== undefined && textAt(exactly, "deviceClassName") === "") {
      found.push(requiredValue(`${at}.exactly.deviceClassName`));
    }
    choices.forEach((choice, position) => {
      for (const name of ["name", "deviceClassName"]) {
        if (textAt(choice, name) === "") found.push(requiredValue(`${at}.firstAvailable[${position}].${name}`));
      }
    });
    return found;
  });
}

export const deviceClassResource: ResourceDefinition = {
  ...DEVICES,
  plural: "deviceclasses",
  singular: "deviceclass",
  kind: "DeviceClass",
  namespaced: false,
  model: "V1DeviceClass",
  strategy: {
    default: (deviceClass) => void section(deviceClass, "spec"),
    hasGeneration: true,
  },
};

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

export const resourceClaimResource: ResourceDefinition = {
  ...DEVICES,
  plural: "resourceclaims",
  singular: "resourceclaim",
  kind: "ResourceClaim",
  namespaced: true,
  model: "ResourceV1ResourceClaim",
  subresources: [{ name: "status", verbs: ["get", "patch", "update"] }],
  columns: [nameColumn, column("State", stateOf), ageColumn],
  strategy: {
    default: (claim) => defaultRequests(section(claim, "spec")),
    prepareForCreate(claim) {
      delete claim.status;
    },
    validate: (claim) => [...requestProblems(claim, "spec"), ...statusProblems(claim)],
    validateUpdate(claim, old, { subresource }) {
      if (subresource !== "status") return immutableFields(claim, old, "spec");
      const [next, before] = [claim, old].map((each) => fieldAt(each, "status", "allocation"));
      const isChanged = next !== undefined && before !== undefined && !sameValue(next, before);
      return isChanged ? [invalidValue("status.allocation", next, "field is immutable")] : [];
    },
  },
};

export const resourceClaimTemplateResource: ResourceDefinition = {
  ...DEVICES,
  plural: "resourceclaimtemplates",
  singular: "resourceclaimtemplate",
  kind: "ResourceClaimTemplate",
  namespaced: true,
  model: "V1ResourceClaimTemplate",
  strategy: {
    default: (template) => defaultRequests(section(section(template, "spec"), "spec")),
    validate: (template) => requestProblems(template, "spec", "spec"),
    validateUpdate: (template, old) => immutableFields(template, old, "spec"),
  },
};

/** Exactly one says on which nodes the devices are. */
const PLACES = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"] as const;
const isSet = (value: unknown): boolean => value !== undefined && value !== "" && value !== false;

export const resourceSliceResource: ResourceDefinition = {
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
      return found;
    },
    validateUpdate: (slice, old) => immutableFields(slice, old, "spec.driver", "spec.nodeName", "spec.pool.name"),
  },
};
