/** Server-side apply (`application/apply-patch+yaml`), after sigs.k8s.io/structured-merge-diff. Pure. */
import { isDeepStrictEqual } from "node:util";
import { timeText } from "../object-meta.ts";
import { type ApiObject, apiVersionOf, type ResourceDefinition } from "../resource-definition.ts";
import type { ModelSource } from "../schema/models.ts";
import { StatusError } from "../status-error.ts";
import { type FieldSet, fieldSetOf } from "./field-set.ts";
import { adoptLive, type Manager, readManagers, writeManagers } from "./managed-fields.ts";
import { isRecord, membersOf, type Place, rootPlace } from "./typed-value.ts";

export interface ApplyRequest {
  readonly definition: ResourceDefinition;
  /** Undefined: it is made. */
  readonly live: ApiObject | undefined;
  readonly config: ApiObject;
  readonly manager: string;
  readonly subresource: string;
  readonly isForced: boolean;
  readonly now: Date;
}

interface Conflict {
  readonly manager: Manager;
  readonly path: readonly string[];
}

/**
 * @returns the object with the configuration applied and its managedFields
 * @throws StatusError 409 with a cause for each field that somebody else owns and sees differently
 */
export function applyConfiguration(models: ModelSource, request: ApplyRequest): ApiObject {
  const { definition, live, config, manager, subresource, isForced, now } = request;
  const apiVersion = apiVersionOf(definition);
  const wanted = fieldSetOf(models, definition.model, config);
  const isOwn = (each: Manager): boolean =>
    each.operation === "Apply" && each.name === manager && each.subresource === subresource;
  let managers = live === undefined ? [] : readManagers(live);
  if (live !== undefined && managers.length === 0) managers = [adoptLive(models, definition, live)];
  const previous = managers.find(isOwn);
  const others = managers.filter((each) => !isOwn(each));
  const place = rootPlace(definition.model);
  const merged = merge(models, live, config, place);
  const conflicts = live === undefined ? [] : findConflicts(models, { live, merged, place, wanted, others });
  if (conflicts.length > 0 && !isForced) throw conflictError(conflicts);
  for (const { manager: other, path } of conflicts) other.fields.remove(path);
  const pruned =
    previous === undefined ? merged : prune(models, merged, place, { previous: previous.fields, wanted, others });
  const object = pruned as ApiObject;
  const isSame = previous !== undefined && isDeepStrictEqual(previous.fields.toJson(), wanted.toJson());
  const time = isSame && conflicts.length === 0 ? previous.time : timeText(now);
  writeManagers(object, [
    ...others,
    { name: manager, operation: "Apply", apiVersion, subresource, time, fields: wanted },
  ]);
  return object;
}

/** `config` over `live`; neither is changed. */
function merge(models: ModelSource, live: unknown, config: unknown, place: Place): unknown {
  const left = membersOf(models, live, place);
  const right = membersOf(models, config, place);
  if (right === undefined || left === undefined) return structuredClone(config);
  if (Array.isArray(config)) return mergeList(models, live as readonly unknown[], config, place);
  const result: Record<string, unknown> = { ...(live as Record<string, unknown>) };
  for (const { segment, value, place: inner } of right) {
    const key = segment.slice(2);
    result[key] = merge(models, isRecord(live) ? live[key] : undefined, value, inner);
  }
  return result;
}

/** The order is the configuration's, with what only the live list has where it stood. */
function mergeList(models: ModelSource, live: readonly unknown[], config: readonly unknown[], place: Place): unknown[] {
  const before = membersOf(models, live, place) ?? [];
  const after = membersOf(models, config, place) ?? [];
  const known = new Map(before.map((member) => [member.segment, member.value]));
  const applied = new Set(after.map(({ segment }) => segment));
  const merged = after.map(({ segment, value, place: inner }) => merge(models, known.get(segment), value, inner));
  const result: unknown[] = [];
  let next = 0;
  for (const { segment, value } of before) {
    if (!applied.has(segment)) result.push(value);
    else {
      result.push(merged[next]);
      next += 1;
    }
  }
  return [...result, ...merged.slice(next)];
}

function findConflicts(
  models: ModelSource,
  input: {
    readonly live: unknown;
    readonly merged: unknown;
    readonly place: Place;
    readonly wanted: FieldSet;
    readonly others: readonly Manager[];
  },
): Conflict[] {
  const conflicts: Conflict[] = [];
  for (const path of input.wanted.paths()) {
    const owners = input.others.filter(({ fields }) => fields.has(path));
    if (owners.length === 0) continue;
    const before = valueAt(models, input.live, input.place, path);
    const after = valueAt(models, input.merged, input.place, path);
    // An item of a list is no value of its own; its fields are.
    if (path.at(-1)?.startsWith("k:") === true || isDeepStrictEqual(before, after)) continue;
    conflicts.push(...owners.map((manager) => ({ manager, path })));
  }
  return conflicts;
}

function valueAt(models: ModelSource, value: unknown, place: Place, path: readonly string[]): unknown {
  const [segment, ...rest] = path;
  if (segment === undefined) return value;
  const member = membersOf(models, value, place)?.find((each) => each.segment === segment);
  return member === undefined ? undefined : valueAt(models, member.value, member.place, rest);
}

/** What this manager applied before, does not apply now, and nobody else owns, goes. */
function prune(
  models: ModelSource,
  object: unknown,
  place: Place,
  sets: { readonly previous: FieldSet; readonly wanted: FieldSet; readonly others: readonly Manager[] },
): unknown {
  let result = object;
  for (const path of sets.previous.paths()) {
    if (sets.wanted.touches(path) || sets.others.some(({ fields }) => fields.touches(path))) continue;
    result = without(models, result, place, path);
  }
  return result;
}

function without(models: ModelSource, value: unknown, place: Place, path: readonly string[]): unknown {
  const [segment, ...rest] = path;
  const members = membersOf(models, value, place);
  const index = members?.findIndex((each) => each.segment === segment) ?? -1;
  const member = members?.[index];
  if (member === undefined) return value;
  const inner = rest.length === 0 ? undefined : without(models, member.value, member.place, rest);
  if (Array.isArray(value)) {
    return inner === undefined ? value.toSpliced(index, 1) : value.with(index, inner);
  }
  const { [member.segment.slice(2)]: _gone, ...others } = value as Record<string, unknown>;
  if (inner !== undefined && !isEmptyRecord(inner)) return { ...(value as object), [member.segment.slice(2)]: inner };
  return others;
}

const isEmptyRecord = (value: unknown): boolean => isRecord(value) && Object.keys(value).length === 0;

/** `.spec.containers[name="a"].image`, as Kubernetes shows fields. */
export function describePath(path: readonly string[]): string {
  return path
    .map((segment) => {
      const text = segment.slice(2);
      if (segment.startsWith("f:")) return `.${text}`;
      if (segment.startsWith("v:")) return `[=${text}]`;
      const keys = JSON.parse(text) as Readonly<Record<string, unknown>>;
      const shown = Object.entries(keys).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
      return `[${shown.join(",")}]`;
    })
    .join("");
}

function conflictError(conflicts: readonly Conflict[]): StatusError {
  const byManager = Map.groupBy(conflicts, ({ manager: { name, apiVersion, subresource } }) => {
    const part = subresource === "" ? "" : ` with subresource ${JSON.stringify(subresource)}`;
    return `${JSON.stringify(name)}${part} using ${apiVersion}`;
  });
  const texts = [...byManager].map(([who, all]) => {
    const fields = all.map(({ path }) => describePath(path));
    return fields.length === 1
      ? `conflict with ${who}: ${fields[0]}`
      : `conflicts with ${who}:\n${fields.map((each) => `- ${each}`).join("\n")}`;
  });
  const count = `${conflicts.length} conflict${conflicts.length === 1 ? "" : "s"}`;
  return new StatusError("Conflict", `Apply failed with ${count}: ${texts.join("\n")}`, {
    causes: [...byManager].flatMap(([who, all]) =>
      all.map(({ path }) => ({
        reason: "FieldManagerConflict",
        message: `conflict with ${who}`,
        field: describePath(path),
      })),
    ),
  });
}
