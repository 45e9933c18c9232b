/** Validates volumes and claims, in the API server's words (Kubernetes 1.34). */
import { dnsSubdomainProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { parseQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import { backstepProblems } from "@picolet/protocol/pod/fields/path-validation.ts";
import {
  type FieldError,
  forbiddenValue,
  invalidValue,
  notSupportedValue,
  requiredValue,
} from "../api/field-errors.ts";
import { fieldAt, listAt, mappingAt, sameValue, textAt } from "../api/object-fields.ts";
import type { ApiObject } from "../api/resource-definition.ts";

const ACCESS_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const ALONE = "ReadWriteOncePod";
const VOLUME_MODES = ["Block", "Filesystem"];
const RECLAIM_POLICIES = ["Delete", "Recycle", "Retain"];

/** Fields of a PersistentVolume's spec that are not the volume itself. */
const NO_SOURCES: ReadonlySet<string> = new Set([
  "accessModes",
  "capacity",
  "claimRef",
  "mountOptions",
  "nodeAffinity",
  "persistentVolumeReclaimPolicy",
  "storageClassName",
  "volumeAttributesClassName",
  "volumeMode",
]);

export function validateClaim(claim: ApiObject): readonly FieldError[] {
  const storage = fieldAt(claim, "spec", "resources", "requests", "storage");
  return [
    ...modeErrors(claim, "at least 1 access mode is required"),
    ...(storage === undefined
      ? [requiredValue("spec.resources[storage]")]
      : sizeErrors("spec.resources[storage]", storage)),
    ...commonErrors(claim),
  ];
}

export function validateVolume(volume: ApiObject): readonly FieldError[] {
  const capacity = mappingAt(volume, "spec", "capacity");
  const names = Object.keys(capacity);
  const policy = textAt(volume, "spec", "persistentVolumeReclaimPolicy");
  return [
    ...modeErrors(volume, ""),
    ...(names.length === 0 ? [requiredValue("spec.capacity")] : []),
    ...(names.join() === "storage" ? [] : [notSupportedValue("spec.capacity", capacity, ["storage"])]),
    ...Object.entries(capacity).flatMap(([name, size]) => sizeErrors(`spec.capacity[${name}]`, size)),
    ...(RECLAIM_POLICIES.includes(policy)
      ? []
      : [notSupportedValue("spec.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES)]),
    ...sourceErrors(volume),
    ...commonErrors(volume),
  ];
}

function modeErrors(object: ApiObject, whenNone: string): readonly FieldError[] {
  const path = "spec.accessModes";
  const modes = listAt(object, "spec", "accessModes").map(String);
  if (modes.length === 0) return [requiredValue(path, whenNone)];
  const unknown = modes.filter((mode) => !ACCESS_MODES.includes(mode));
  const isMixed = modes.includes(ALONE) && modes.some((mode) => mode !== ALONE && ACCESS_MODES.includes(mode));
  return [
    ...unknown.map((mode) => notSupportedValue(path, mode, ACCESS_MODES)),
    ...(isMixed ? [forbiddenValue(path, "may not use ReadWriteOncePod with other access modes")] : []),
  ];
}

function sizeErrors(path: string, size: unknown): readonly FieldError[] {
  const parsed = parseQuantity(String(size));
  if (!parsed.ok) return [invalidValue(path, size, parsed.problem)];
  return parsed.quantity.nano > 0n ? [] : [invalidValue(path, size, "must be greater than zero")];
}

function commonErrors(object: ApiObject): readonly FieldError[] {
  const [name, mode] = ["storageClassName", "volumeMode"].map((field) => textAt(object, "spec", field));
  const problems = name === undefined || name === "" ? [] : dnsSubdomainProblems(name);
  return [
    ...problems.map((problem) => invalidValue("spec.storageClassName", name, problem)),
    ...(VOLUME_MODES.includes(mode ?? "") ? [] : [notSupportedValue("spec.volumeMode", mode, VOLUME_MODES)]),
  ];
}

const sourcesOf = (volume: ApiObject): readonly (readonly [name: string, source: unknown])[] =>
  Object.entries(mappingAt(volume, "spec")).filter(
    ([name, value]) => !NO_SOURCES.has(name) && value !== null && typeof value === "object",
  );

/** The location of the data cannot change. */
export function validateSourceUpdate(volume: ApiObject, old: ApiObject): readonly FieldError[] {
  const path = "spec.persistentvolumesource";
  const [now, before] = [volume, old].map((each) => Object.fromEntries(sourcesOf(each)));
  return sameValue(now, before) ? [] : [forbiddenValue(path, `${path} is immutable after creation`)];
}

function sourceErrors(volume: ApiObject): readonly FieldError[] {
  const sources = sourcesOf(volume);
  const [first, ...others] = sources;
  if (first === undefined) return [requiredValue("spec", "must specify a volume type")];
  return [
    ...others.map(([name]) => forbiddenValue(`spec.${name}`, "may not specify more than 1 volume type")),
    ...pathErrors(volume),
  ];
}

function pathErrors(volume: ApiObject): readonly FieldError[] {
  const isHostPath = fieldAt(volume, "spec", "hostPath") !== undefined;
  const isLocal = fieldAt(volume, "spec", "local") !== undefined;
  if (!isHostPath && !isLocal) return [];
  const field = isHostPath ? "hostPath" : "local";
  const path = textAt(volume, "spec", field, "path");
  const terms = listAt(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms");
  return [
    ...(path === ""
      ? [requiredValue(`spec.${field}.path`)]
      : backstepProblems(path).map((problem) => invalidValue(`spec.${field}.path`, path, problem))),
    ...(!isHostPath && terms.length === 0
      ? [requiredValue("spec.nodeAffinity", "Local volume requires node affinity")]
      : []),
  ];
}
