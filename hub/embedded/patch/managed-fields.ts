import { isDeepStrictEqual } from "node:util";
import { isRecord } from "@picolet/protocol/guards.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { tooLarge } from "../api/limits.ts";
import { type ApiObject, apiVersionOf, type ResourceDefinition } from "../api/resource-definition.ts";
import type { ModelSource } from "../schema/models.ts";
import { collectPlaces, FieldSet, fieldSetOf } from "./field-set.ts";
import { membersOf, type Place, rootPlace } from "./typed-value.ts";

/** One entry of `metadata.managedFields`. */
export interface Manager {
  readonly name: string;
  readonly operation: "Apply" | "Update";
  readonly apiVersion: string;
  readonly subresource: string;
  readonly time: string;
  readonly fields: FieldSet;
}

/** Entries of one object; beyond it the oldest Update entries become one, as in Kubernetes. */
const MAX_UPDATE_MANAGERS = 10;
/**
 * Entries of one object. Kubernetes bounds those of updates alone; an object that is applied has one entry for each
 * tool or controller that applies a part of it, fewer than ten.
 */
const MAX_MANAGERS = 64;
const ANCIENT = "ancient-changes";

export function readManagers(object: ApiObject): Manager[] {
  const entries: readonly unknown[] = Array.isArray(object.metadata.managedFields) ? object.metadata.managedFields : [];
  return entries.filter(isRecord).flatMap((entry) => {
    const { manager, operation, apiVersion, subresource, time, fieldsV1 } = entry;
    if (typeof manager !== "string" || (operation !== "Apply" && operation !== "Update")) return [];
    const fields = FieldSet.fromJson(fieldsV1);
    return [
      {
        name: manager,
        operation,
        apiVersion: String(apiVersion ?? ""),
        subresource: typeof subresource === "string" ? subresource : "",
        time: String(time ?? ""),
        fields,
      },
    ];
  });
}

export function writeManagers(object: ApiObject, managers: readonly Manager[]): void {
  const kept = managers.filter(({ fields }) => !fields.isEmpty);
  if (kept.length === 0) {
    delete object.metadata.managedFields;
    return;
  }
  const joined = joinOldest(kept);
  if (joined.length > MAX_MANAGERS) {
    throw tooLarge(`metadata.managedFields has ${joined.length} entries, limit is ${MAX_MANAGERS}`);
  }
  object.metadata.managedFields = joined.map(({ name, operation, apiVersion, subresource, time, fields }) => ({
    manager: name,
    operation,
    apiVersion,
    time,
    fieldsType: "FieldsV1",
    fieldsV1: fields.toJson(),
    ...(subresource === "" ? {} : { subresource }),
  }));
}

function joinOldest(managers: readonly Manager[]): readonly Manager[] {
  const updates = managers
    .filter(({ operation }) => operation === "Update")
    .toSorted((a, b) => (a.time < b.time ? -1 : 1));
  const old = new Set(updates.slice(0, Math.max(0, updates.length - MAX_UPDATE_MANAGERS)));
  const [first] = old;
  if (first === undefined) return managers;
  const fields = new FieldSet();
  for (const each of old) fields.addAll(each.fields);
  return [...managers.filter((each) => !old.has(each)), { ...first, name: ANCIENT, fields }];
}

export interface TrackedWrite {
  readonly definition: ResourceDefinition;
  readonly object: ApiObject;
  /** Undefined: a create. */
  readonly old: ApiObject | undefined;
  readonly subresource: string;
  readonly manager: string;
  readonly now: Date;
}

/**
 * After an update or a patch the writer owns the fields that changed.
 *
 * Ownership is recorded from an object's first server-side apply on. Before that no client reads it, and it would
 * double the size of every pod. Fields that were there at the first apply are then owned by one manager, see
 * `managerBeforeApply`.
 */
export function trackUpdate(
  models: ModelSource,
  { definition, object, old, subresource, manager, now }: TrackedWrite,
): void {
  const { managedFields } = object.metadata;
  // A client may give ownership up with an empty list, and hand it over by writing the list.
  if (managedFields === undefined && old?.metadata.managedFields !== undefined) {
    object.metadata.managedFields = old.metadata.managedFields;
  }
  const managers = readManagers(object);
  if (old === undefined || managers.length === 0) {
    delete object.metadata.managedFields;
    return;
  }
  const { changed, removed } = compare(models, definition.model, old, object);
  if (changed.isEmpty && removed.isEmpty) {
    if (!isDeepStrictEqual(object.metadata.managedFields, old.metadata.managedFields)) writeManagers(object, managers);
    return;
  }
  const apiVersion = apiVersionOf(definition);
  const isOwn = (each: Manager): boolean =>
    each.operation === "Update" &&
    each.name === manager &&
    each.subresource === subresource &&
    each.apiVersion === apiVersion;
  const own = managers.find(isOwn)?.fields ?? new FieldSet();
  for (const each of managers) each.fields.removeAll(removed);
  own.addAll(changed);
  const entry: Manager = {
    name: manager,
    operation: "Update",
    apiVersion,
    subresource,
    time: kubeTime(now),
    fields: own,
  };
  writeManagers(object, [...managers.filter((each) => !isOwn(each)), entry]);
}

/** The manager of everything that was there before the first apply. kubectl looks for its own name when it migrates. */
export function managerBeforeApply(models: ModelSource, definition: ResourceDefinition, live: ApiObject): Manager {
  const isFromKubectl = live.metadata.annotations?.["kubectl.kubernetes.io/last-applied-configuration"] !== undefined;
  return {
    name: isFromKubectl ? "kubectl-client-side-apply" : "before-first-apply",
    operation: "Update",
    apiVersion: apiVersionOf(definition),
    subresource: "",
    time: live.metadata.creationTimestamp ?? "",
    fields: fieldSetOf(models, definition.model, live),
  };
}

interface Comparison {
  /** Places that are new or have another value; the latter are in `removed` too. */
  readonly changed: FieldSet;
  readonly removed: FieldSet;
}

/**
 * The differences between two objects as owned places. One walk: only a value that is owned as a whole is compared as
 * one.
 */
export function compare(models: ModelSource, model: string, old: ApiObject, object: ApiObject): Comparison {
  const changed = new FieldSet();
  const removed = new FieldSet();
  const visit = (left: unknown, right: unknown, place: Place, path: readonly string[]): void => {
    const before = membersOf(models, left, place);
    const after = membersOf(models, right, place);
    if (before === undefined || after === undefined || before.length === 0 || after.length === 0) {
      if (isDeepStrictEqual(left, right)) return;
      addPlaces(models, left, place, path, removed);
      addPlaces(models, right, place, path, changed);
      return;
    }
    const known = new Map(before.map((member) => [member.segment, member]));
    // Items with the same key cannot be distinguished: the list has changed or it has not.
    if (known.size < before.length && isDeepStrictEqual(left, right)) return;
    for (const { segment, value, place: inner } of after) {
      const was = known.get(segment);
      known.delete(segment);
      const innerPath = [...path, segment];
      if (was === undefined) addPlaces(models, value, inner, innerPath, changed);
      else visit(was.value, value, inner, innerPath);
    }
    for (const segment of known.keys()) removed.add([...path, segment]);
  };
  visit(owned(old), owned(object), rootPlace(model), []);
  return { changed, removed };
}

/** The object without fields that have no owner. */
function owned(object: ApiObject): unknown {
  const { apiVersion: _version, kind: _kind, metadata, ...rest } = object;
  const { labels, annotations, finalizers, ownerReferences, generateName } = metadata;
  const meta = { labels, annotations, finalizers, ownerReferences, generateName };
  const present = Object.fromEntries(Object.entries(meta).filter(([, value]) => value !== undefined));
  return { ...rest, metadata: present };
}

/** Adds the places that a manager owns who wrote `value` to `path`. */
function addPlaces(models: ModelSource, value: unknown, place: Place, path: readonly string[], into: FieldSet): void {
  if (value === undefined) return;
  let node = into;
  for (const segment of path) node = node.child(segment);
  collectPlaces(models, value, place, node);
  if (path.at(-1)?.startsWith("k:") === true) node.isMember = true;
}
