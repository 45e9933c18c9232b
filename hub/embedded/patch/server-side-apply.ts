/**
 * Server-side apply (`application/apply-patch+yaml`), after sigs.k8s.io/structured-merge-diff. Pure. Sets and values
 * are walked side by side, so that an apply costs as much as the object and its managers' sets are large.
 */

import { isDeepStrictEqual } from "node:util";
import { isRecord } from "@picolet/protocol/guards.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { StepBudget } from "../api/limits.ts";
import { type ApiObject, apiVersionOf, type ResourceDefinition } from "../api/resource-definition.ts";
import { StatusError } from "../api/status-error.ts";
import type { ModelSource } from "../schema/models.ts";
import { type FieldSet, fieldSetOf, sharedChildren } from "./field-set.ts";
import { type Manager, managerBeforeApply, readManagers, writeManagers } from "./managed-fields.ts";
import { type Member, membersOf, type Place, rootPlace } from "./typed-value.ts";

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

/** Conflicts that a refusal lists; it says how many there are. */
const MAX_SHOWN_CONFLICTS = 256;
/**
 * The longest name in Kubernetes, the key of a label. Clients write keys and managers as they like: all conflicts of
 * one object may name a key or a manager of a megabyte.
 */
const MAX_SHOWN_NAME = 317;

interface Conflict {
  readonly manager: Manager;
  readonly path: readonly string[];
}

/**
 * @returns the object with the configuration applied and its managedFields
 * @param budget counts the values of configuration and object, and the fields of every manager
 * @throws StatusError 409 with a cause for each field that another manager owns with another value, 413
 */
export function applyConfiguration(models: ModelSource, request: ApplyRequest, budget = new StepBudget()): ApiObject {
  const { definition, live, config, manager, subresource, isForced, now } = request;
  const apiVersion = apiVersionOf(definition);
  const wanted = fieldSetOf(models, definition.model, config);
  const isOwn = (each: Manager): boolean =>
    each.operation === "Apply" && each.name === manager && each.subresource === subresource;
  let managers = live === undefined ? [] : readManagers(live);
  if (live !== undefined && managers.length === 0) managers = [managerBeforeApply(models, definition, live)];
  const previous = managers.find(isOwn);
  const others = managers.filter((each) => !isOwn(each));
  const place = rootPlace(definition.model);
  for (const { fields } of managers) budget.spend(fields.size);
  const merged = merge(models, live, config, place, budget);
  const conflicts = live === undefined ? [] : findConflicts(models, { live, merged, place, wanted, others }, budget);
  if (conflicts.length > 0 && !isForced) throw conflictError(conflicts);
  for (const { manager: other, path } of conflicts) other.fields.remove(path);
  const pruned =
    previous === undefined
      ? merged
      : prune(models, merged, place, { previous: previous.fields, wanted, others }, budget);
  const object = pruned as ApiObject;
  const isSame = previous?.fields.equals(wanted) === true;
  const time = isSame && conflicts.length === 0 ? previous.time : kubeTime(now);
  writeManagers(object, [
    ...others,
    { name: manager, operation: "Apply", apiVersion, subresource, time, fields: wanted },
  ]);
  return object;
}

/** `config` over `live`; the result shares what it does not change with both. */
function merge(models: ModelSource, live: unknown, config: unknown, place: Place, budget: StepBudget): unknown {
  const left = membersOf(models, live, place);
  const right = membersOf(models, config, place);
  if (right === undefined || left === undefined) return config;
  budget.spend(left.length + right.length);
  const known = memberMap(left);
  const mergeMember = ({ segment, value, place: inner }: Member): unknown =>
    merge(models, known.get(segment)?.value, value, inner, budget);
  if (Array.isArray(config)) return mergeList(left, right, right.map(mergeMember));
  const merged = right.map((member): [string, unknown] => [member.segment.slice(2), mergeMember(member)]);
  return { ...(live as Record<string, unknown>), ...Object.fromEntries(merged) };
}

/** The last of those with one segment. */
const memberMap = (members: readonly Member[]): ReadonlyMap<string, Member> =>
  new Map(members.map((member) => [member.segment, member]));

/** The order is the configuration's, with what only the live list has where it stood. */
function mergeList(before: readonly Member[], after: readonly Member[], merged: readonly unknown[]): unknown[] {
  const applied = new Set(after.map(({ segment }) => segment));
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

interface ConflictInput {
  readonly live: unknown;
  readonly merged: unknown;
  readonly place: Place;
  readonly wanted: FieldSet;
  readonly others: readonly Manager[];
}

function findConflicts(models: ModelSource, input: ConflictInput, budget: StepBudget): Conflict[] {
  const conflicts: Conflict[] = [];
  const visit = (live: unknown, merged: unknown, place: Place, node: OwnedPlace, path: readonly string[]): void => {
    budget.spend(1);
    const owners = node.owners.filter(({ fields }) => fields.isMember);
    // An item of a list is no value of its own; its fields are.
    const isValue = node.fields.isMember && path.at(-1)?.startsWith("k:") !== true;
    if (isValue && owners.length > 0 && !isDeepStrictEqual(live, merged)) {
      conflicts.push(...owners.map(({ manager }) => ({ manager, path })));
    }
    const inner = ownedChildren(node);
    if (inner.length === 0) return;
    const before = firstMembers(membersOf(models, live, place));
    const after = firstMembers(membersOf(models, merged, place));
    budget.spend(before.size + after.size);
    for (const [segment, child] of inner) {
      const [left, right] = [before.get(segment), after.get(segment)];
      visit(left?.value, right?.value, (right ?? left)?.place ?? UNKNOWN_PLACE, child, [...path, segment]);
    }
  };
  const owners = input.others.map((manager) => ({ manager, fields: manager.fields }));
  visit(input.live, input.merged, input.place, { fields: input.wanted, owners }, []);
  return conflicts;
}

const UNKNOWN_PLACE: Place = { type: undefined, rule: undefined };

/** A place of a set, and what the other managers own there. */
interface OwnedPlace {
  readonly fields: FieldSet;
  readonly owners: readonly { readonly manager: Manager; readonly fields: FieldSet }[];
}

/** The places within that some other manager has too, in the order of the set. */
function ownedChildren({ fields, owners }: OwnedPlace): readonly (readonly [segment: string, OwnedPlace])[] {
  const found = new Map<string, { readonly manager: Manager; readonly fields: FieldSet }[]>();
  for (const { manager, fields: other } of owners) {
    for (const [segment, , theirs] of sharedChildren(fields, other)) {
      const list = found.get(segment) ?? [];
      found.set(segment, list);
      list.push({ manager, fields: theirs });
    }
  }
  if (found.size === 0) return [];
  return [...fields.children].flatMap(([segment, child]) => {
    const shared = found.get(segment);
    return shared === undefined ? [] : [[segment, { fields: child, owners: shared }] as const];
  });
}

/** The first of those with one segment. */
function firstMembers(members: readonly Member[] | undefined): ReadonlyMap<string, Member> {
  return memberMap((members ?? []).toReversed());
}

interface PruneSets {
  readonly previous: FieldSet;
  /** Undefined: nothing there. */
  readonly wanted: FieldSet | undefined;
  readonly others: readonly FieldSet[];
}

/** Removes fields that this manager applied before and does not apply now, unless another manager owns them. */
function prune(
  models: ModelSource,
  object: unknown,
  place: Place,
  sets: { readonly previous: FieldSet; readonly wanted: FieldSet; readonly others: readonly Manager[] },
  budget: StepBudget,
): unknown {
  const others = sets.others.map(({ fields }) => fields);
  return new Pruner(models, budget).prune(object, place, { ...sets, others }).value;
}

class Pruner {
  readonly #models: ModelSource;
  readonly #budget: StepBudget;

  constructor(models: ModelSource, budget: StepBudget) {
    this.#models = models;
    this.#budget = budget;
  }

  /** `isPruned`: a value within must be removed, whether it exists or not. */
  prune(value: unknown, place: Place, sets: PruneSets): { readonly value: unknown; readonly isPruned: boolean } {
    const members = membersOf(this.#models, value, place) ?? [];
    this.#budget.spend(members.length + sets.previous.children.size * (1 + sets.others.length));
    const known = firstMembers(members);
    const removed = new Set<string>();
    const replaced = new Map<Member, unknown>();
    let isPruned = false;
    for (const [segment, previous] of sets.previous.children) {
      const inner = { previous, ...within(segment, sets) };
      const member = known.get(segment);
      if (inner.wanted === undefined && inner.others.length === 0 && previous.isMember) {
        isPruned = true;
        removed.add(segment);
        continue;
      }
      const pruned = this.prune(member?.value, member?.place ?? UNKNOWN_PLACE, inner);
      isPruned ||= pruned.isPruned;
      if (!pruned.isPruned || member === undefined) continue;
      if (!Array.isArray(value) && isEmptyRecord(pruned.value)) removed.add(segment);
      else replaced.set(member, pruned.value);
    }
    if (removed.size === 0 && replaced.size === 0) return { value, isPruned };
    const kept = members.filter(({ segment }) => !removed.has(segment));
    return { value: rebuilt(value, kept, replaced), isPruned };
  }
}

/** The sets of one place within. */
function within(segment: string, { wanted, others }: PruneSets): Omit<PruneSets, "previous"> {
  const inner = others.flatMap((fields) => fields.children.get(segment) ?? []);
  return { wanted: wanted?.children.get(segment), others: inner };
}

function rebuilt(value: unknown, members: readonly Member[], replaced: ReadonlyMap<Member, unknown>): unknown {
  const current = (member: Member): unknown => (replaced.has(member) ? replaced.get(member) : member.value);
  if (Array.isArray(value)) return members.map(current);
  return Object.fromEntries(members.map((member) => [member.segment.slice(2), current(member)]));
}

const isEmptyRecord = (value: unknown): boolean => isRecord(value) && Object.keys(value).length === 0;

/** `.spec.containers[name="a"].image`, as Kubernetes shows fields. */
export function describePath(path: readonly string[]): string {
  return path
    .map((segment) => {
      const text = segment.slice(2);
      if (text.length > MAX_SHOWN_NAME) return `[${shortened(text)}]`;
      if (segment.startsWith("f:")) return `.${text}`;
      if (segment.startsWith("v:")) return `[=${text}]`;
      const keys = JSON.parse(text) as Readonly<Record<string, unknown>>;
      const shown = Object.entries(keys).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
      return `[${shown.join(",")}]`;
    })
    .join("");
}

const shortened = (text: string): string => (text.length > MAX_SHOWN_NAME ? `${text.slice(0, MAX_SHOWN_NAME)}…` : text);

function conflictError(conflicts: readonly Conflict[]): StatusError {
  const shown = conflicts.slice(0, MAX_SHOWN_CONFLICTS);
  const byManager = Map.groupBy(shown, ({ manager: { name, apiVersion, subresource } }) => {
    const part = subresource === "" ? "" : ` with subresource ${JSON.stringify(shortened(subresource))}`;
    return `${JSON.stringify(shortened(name))}${part} using ${shortened(apiVersion)}`;
  });
  const texts = [...byManager].map(([who, all]) => {
    const fields = all.map(({ path }) => describePath(path));
    return fields.length === 1
      ? `conflict with ${who}: ${fields[0]}`
      : `conflicts with ${who}:\n${fields.map((each) => `- ${each}`).join("\n")}`;
  });
  const more = shown.length < conflicts.length ? `, of which the first ${shown.length} are` : "";
  const count = `${conflicts.length} conflict${conflicts.length === 1 ? "" : "s"}${more}`;
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
