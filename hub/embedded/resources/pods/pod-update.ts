/** Validates changes of an existing pod (pkg/apis/core/validation, `ValidatePodUpdate` and its siblings, 1.34). */

import { isMirrorPod, MIRROR_ANNOTATION } from "@picolet/hub-core/pod-references.ts";
import type { Toleration } from "@picolet/protocol/pod/pod.ts";
import { type FieldError, forbiddenValue, invalidValue } from "../../api/field-errors.ts";
import { fieldAt, listAt, sameValue, section } from "../../api/object-fields.ts";
import type { ApiObject } from "../../api/resource-definition.ts";

type Fields = Record<string, unknown>;

const UPDATABLE = [
  "`spec.containers[*].image`",
  "`spec.initContainers[*].image`",
  "`spec.activeDeadlineSeconds`",
  "`spec.tolerations` (only additions to existing tolerations)",
  "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
].join(",");
/** Differences that a message shows: enough to see what was meant. */
const MAX_SHOWN_CHANGES = 5;

/**
 * A pod becomes a mirror pod only when it is made; otherwise a node could make one and then claim the objects it
 * references.
 */
export function validateMirrorAnnotation(pod: ApiObject, old: ApiObject): readonly FieldError[] {
  const [now, before] = [pod, old].map(({ metadata }) => metadata.annotations?.[MIRROR_ANNOTATION]);
  if (now === before) return [];
  const path = `metadata.annotations[${MIRROR_ANNOTATION}]`;
  const change = before === undefined ? "add" : "remove or update";
  return [forbiddenValue(path, `may not ${change} mirror pod annotation`)];
}

export function validatePodUpdate(pod: ApiObject, old: ApiObject): readonly FieldError[] {
  const errors: FieldError[] = [];
  for (const field of ["containers", "initContainers"]) {
    if (listAt(pod, "spec", field).length !== listAt(old, "spec", field).length) {
      errors.push(forbiddenValue(`spec.${field}`, "pod updates may not add or remove containers"));
    }
  }
  if (errors.length > 0) return errors;
  errors.push(...deadlineErrors(pod, old), ...tolerationErrors(pod, old), ...gateErrors(pod, old));
  const allowed = withAllowedChanges(pod, old);
  const changes = changesBetween(allowed, old.spec, "spec");
  if (changes.length > 0) {
    errors.push(
      forbiddenValue("spec", `pod updates may not change fields other than ${UPDATABLE}\n${changes.join("\n")}\n`),
    );
  }
  return errors;
}

function deadlineErrors(pod: ApiObject, old: ApiObject): readonly FieldError[] {
  const path = "spec.activeDeadlineSeconds";
  const before = fieldAt(old, "spec", "activeDeadlineSeconds") as number | undefined;
  const after = fieldAt(pod, "spec", "activeDeadlineSeconds") as number | undefined;
  if (before === undefined) return [];
  if (after === undefined) return [invalidValue(path, null, "must not update from a positive integer to nil value")];
  return after > before ? [invalidValue(path, after, "must be less than or equal to previous value")] : [];
}

/** All of it but `tolerationSeconds`, which may change. */
const tolerationKey = ({ key, operator, value, effect }: Toleration): string =>
  JSON.stringify([key, operator, value, effect]);

function tolerationErrors(pod: ApiObject, old: ApiObject): readonly FieldError[] {
  const now = new Set((listAt(pod, "spec", "tolerations") as readonly Toleration[]).map(tolerationKey));
  const kept = (listAt(old, "spec", "tolerations") as readonly Toleration[]).every((each) =>
    now.has(tolerationKey(each)),
  );
  const detail = "existing toleration can not be modified except its tolerationSeconds";
  return kept ? [] : [forbiddenValue("spec.tolerations", detail)];
}

function gateErrors(pod: ApiObject, old: ApiObject): readonly FieldError[] {
  const before = new Set(listAt(old, "spec", "schedulingGates").map((gate) => fieldAt(gate, "name")));
  const added = listAt(pod, "spec", "schedulingGates").find((gate) => !before.has(fieldAt(gate, "name")));
  if (added === undefined) return [];
  const name = String(fieldAt(added, "name"));
  return [forbiddenValue("spec.schedulingGates", `only deletion is allowed, but found new scheduling gate '${name}'`)];
}

/** The new spec with everything put back that may change. */
function withAllowedChanges(pod: ApiObject, old: ApiObject): Fields {
  const spec = structuredClone(section(pod, "spec"));
  const before = section(old, "spec");
  for (const field of ["containers", "initContainers"]) {
    listAt(spec, field).forEach((container, index) => {
      (container as Fields).image = fieldAt(listAt(before, field)[index], "image");
    });
  }
  for (const field of ["activeDeadlineSeconds", "tolerations", "schedulingGates"]) spec[field] = before[field];
  if (Number(before.terminationGracePeriodSeconds) < 0 && spec.terminationGracePeriodSeconds === 1) {
    spec.terminationGracePeriodSeconds = before.terminationGracePeriodSeconds;
  }
  // A pod that waits at a gate may still be narrowed down.
  if (listAt(before, "schedulingGates").length > 0) {
    const selector = fieldAt(before, "nodeSelector") as Fields | undefined;
    const narrowed = Object.entries(selector ?? {}).every(
      ([key, value]) => fieldAt(spec, "nodeSelector", key) === value,
    );
    if (narrowed) spec.nodeSelector = selector;
    spec.affinity = before.affinity;
  }
  return spec;
}

/** `- path: before` and `+ path: after` of what differs, a few of them. */
function changesBetween(after: unknown, before: unknown, path: string): string[] {
  if (sameValue(after, before)) return [];
  const isNested = (value: unknown): value is object => typeof value === "object" && value !== null;
  if (isNested(after) && isNested(before) && Array.isArray(after) === Array.isArray(before)) {
    const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
    const step = (key: string): string => (Array.isArray(before) ? `${path}[${key}]` : `${path}.${key}`);
    const read = (value: object, key: string): unknown => Reflect.get(value, key);
    return [...keys]
      .flatMap((key) => changesBetween(read(after, key), read(before, key), step(key)))
      .slice(0, 2 * MAX_SHOWN_CHANGES);
  }
  const lines: string[] = [];
  if (before !== undefined) lines.push(`- ${path}: ${JSON.stringify(before)}`);
  if (after !== undefined) lines.push(`+ ${path}: ${JSON.stringify(after)}`);
  return lines;
}

/** `pods/ephemeralcontainers`: containers may be added, nothing else. */
export function validateEphemeralContainers(pod: ApiObject, old: ApiObject): readonly FieldError[] {
  if (isMirrorPod(old)) return [forbiddenValue("", "static pods do not support ephemeral containers")];
  const path = "spec.ephemeralContainers";
  const now = listAt(pod, "spec", "ephemeralContainers");
  const byName = new Map(now.map((each) => [String(fieldAt(each, "name")), each]));
  const errors: FieldError[] = [];
  for (const before of listAt(old, "spec", "ephemeralContainers")) {
    const name = String(fieldAt(before, "name"));
    const same = byName.get(name);
    if (same === undefined) {
      errors.push(forbiddenValue(path, `existing ephemeral containers "${name}" may not be removed`));
    } else if (!sameValue(same, before)) {
      errors.push(forbiddenValue(path, `existing ephemeral containers "${name}" may not be changed`));
    }
  }
  return errors;
}
