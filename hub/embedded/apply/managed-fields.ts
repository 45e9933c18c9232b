import { isDeepStrictEqual } from "node:util";
import { timeText } from "../object-meta.ts";
import { type ApiObject, apiVersionOf, type ResourceDefinition } from "../resource-definition.ts";
import type { ModelSource } from "../schema/models.ts";
import { FieldSet, fieldSetOf } from "./field-set.ts";
import { isRecord, membersOf, type Place, rootPlace } from "./typed-value.ts";

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
  object.metadata.managedFields = joinOldest(kept).map(
    ({ name, operation, apiVersion, subresource, time, fields }) => ({
      manager: name,
      operation,
      apiVersion,
      time,
      fieldsType: "FieldsV1",
      fieldsV1: fields.toJson(),
      ...(subresource === "" ? {} : { subresource }),
    }),
  );
}

function joinOldest(managers: readonly Manager[]): readonly Manager[] {
  const updates = managers
    .filter(({ operation }) => operation === "Update")
    .toSorted((a, b) => (a.time < b.time ? -1 : 1));
  const old = updates.slice(0, Math.max(0, updates.length - MAX_UPDATE_MANAGERS));
  const [first] = old;
  if (first === undefined) return managers;
  const fields = new FieldSet();
  for (const each of old) for (const path of each.fields.paths()) fields.add(path);
  return [...managers.filter((each) => !old.includes(each)), { ...first, name: ANCIENT, fields }];
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
 * After an update or a patch: who wrote it owns what has changed.
 *
 * Ownership is kept from an object's first server-side apply on; before that nobody asks for it, and it would double the
 * size of every pod. What was there at the first apply is then owned by one manager, see `adoptLive`.
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
  if (changed.length === 0 && removed.length === 0) {
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
  for (const each of managers) {
    for (const path of removed) each.fields.remove(path);
  }
  for (const path of changed) own.add(path);
  const entry: Manager = {
    name: manager,
    operation: "Update",
    apiVersion,
    subresource,
    time: timeText(now),
    fields: own,
  };
  writeManagers(object, [...managers.filter((each) => !isOwn(each)), entry]);
}

/** The manager of everything that was there before the first apply. kubectl looks for its own name when it migrates. */
export function adoptLive(models: ModelSource, definition: ResourceDefinition, live: ApiObject): Manager {
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
  /** Places that are new or have another value; the latter are among `removed` too. */
  readonly changed: readonly (readonly string[])[];
  readonly removed: readonly (readonly string[])[];
}

/** What differs between two objects, as places that are owned. */
export function compare(models: ModelSource, model: string, old: ApiObject, object: ApiObject): Comparison {
  const changed: (readonly string[])[] = [];
  const removed: (readonly string[])[] = [];
  const visit = (left: unknown, right: unknown, place: Place, path: readonly string[]): void => {
    if (isDeepStrictEqual(left, right)) return;
    const before = membersOf(models, left, place);
    const after = membersOf(models, right, place);
    if (before === undefined || after === undefined || before.length === 0 || after.length === 0) {
      for (const each of placesIn(models, left, place, path)) removed.push(each);
      for (const each of placesIn(models, right, place, path)) changed.push(each);
      return;
    }
    const known = new Map(before.map((member) => [member.segment, member]));
    for (const { segment, value, place: inner } of after) {
      const was = known.get(segment);
      known.delete(segment);
      if (was === undefined) changed.push(...placesIn(models, value, inner, [...path, segment]));
      else visit(was.value, value, inner, [...path, segment]);
    }
    for (const segment of known.keys()) removed.push([...path, segment]);
  };
  visit(owned(old), owned(object), rootPlace(model), []);
  return { changed, removed };
}

/** Without what nobody owns. */
function owned(object: ApiObject): unknown {
  const { apiVersion: _version, kind: _kind, metadata, ...rest } = object;
  const { labels, annotations, finalizers, ownerReferences, generateName } = metadata;
  const meta = { labels, annotations, finalizers, ownerReferences, generateName };
  const present = Object.fromEntries(Object.entries(meta).filter(([, value]) => value !== undefined));
  return { ...rest, metadata: present };
}

function placesIn(models: ModelSource, value: unknown, place: Place, path: readonly string[]): (readonly string[])[] {
  if (value === undefined) return [];
  const members = membersOf(models, value, place);
  if (members === undefined || members.length === 0) return [path];
  const own = path.at(-1)?.startsWith("k:") === true ? [path] : [];
  return [...own, ...members.flatMap((each) => placesIn(models, each.value, each.place, [...path, each.segment]))];
}
