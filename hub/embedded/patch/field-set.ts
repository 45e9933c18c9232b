import { isRecord } from "@picolet/protocol/guards.ts";
import type { ModelSource } from "../schema/models.ts";
import { membersOf, type Place, rootPlace } from "./typed-value.ts";

/** The fields of an object that one manager owns, as a tree of fieldsV1's segments. */
export class FieldSet {
  /** True when the place itself is owned, not only fields in it. */
  isMember = false;
  /** Made with the first child: most places are leaves. */
  #children: Map<string, FieldSet> | undefined;

  get children(): ReadonlyMap<string, FieldSet> {
    return this.#children ?? NO_CHILDREN;
  }

  get isEmpty(): boolean {
    return !this.isMember && this.children.size === 0;
  }

  child(segment: string): FieldSet {
    const known = this.children.get(segment);
    if (known !== undefined) return known;
    const made = new FieldSet();
    this.#children ??= new Map();
    this.#children.set(segment, made);
    return made;
  }

  add(path: readonly string[]): void {
    let node: FieldSet = this;
    for (const segment of path) node = node.child(segment);
    node.isMember = true;
  }

  /** Takes away the place and everything in it. */
  remove(path: readonly string[]): void {
    const gone = new FieldSet();
    gone.add(path);
    this.removeAll(gone);
  }

  /** Adds every place that `other` owns. */
  addAll(other: FieldSet): void {
    this.isMember ||= other.isMember;
    for (const [segment, child] of other.children) this.child(segment).addAll(child);
  }

  /** Takes away each place that is a member of `other`, and everything in it. */
  removeAll(other: FieldSet): void {
    for (const [segment, mine, theirs] of sharedChildren(this, other)) {
      if (!theirs.isMember) mine.removeAll(theirs);
      if (theirs.isMember || mine.isEmpty) this.#children?.delete(segment);
    }
  }

  equals(other: FieldSet): boolean {
    if (this.isMember !== other.isMember || this.children.size !== other.children.size) return false;
    return [...this.children].every(([segment, child]) => other.children.get(segment)?.equals(child) === true);
  }

  /** Number of places that it names: the cost of a walk through it. */
  get size(): number {
    let size = 1;
    for (const child of this.children.values()) size += child.size;
    return size;
  }

  toJson(): Record<string, unknown> {
    const json: Record<string, unknown> = this.isMember && this.children.size > 0 ? { ".": {} } : {};
    for (const [segment, child] of [...this.children].sort(([a], [b]) => (a < b ? -1 : 1)))
      json[segment] = child.toJson();
    return json;
  }

  /** Tolerates anything: what is no fieldsV1 owns nothing. */
  static fromJson(json: unknown): FieldSet {
    const set = new FieldSet();
    set.#read(json);
    return set;
  }

  #read(json: unknown): void {
    if (!isRecord(json)) return;
    for (const [segment, inner] of Object.entries(json)) {
      if (segment === ".") this.isMember = true;
      else {
        const child = this.child(segment);
        child.#read(inner);
        if (child.isEmpty) child.isMember = true;
      }
    }
  }
}

const NO_CHILDREN: ReadonlyMap<string, FieldSet> = new Map();

/** The children that both have, at the cost of the one that has fewer. */
export function sharedChildren(
  left: FieldSet,
  right: FieldSet,
): readonly (readonly [segment: string, left: FieldSet, right: FieldSet])[] {
  const [fewer, more] = left.children.size <= right.children.size ? [left, right] : [right, left];
  const shared: (readonly [string, FieldSet, FieldSet])[] = [];
  for (const [segment, child] of fewer.children) {
    const other = more.children.get(segment);
    if (other !== undefined) shared.push(fewer === left ? [segment, child, other] : [segment, other, child]);
  }
  return shared;
}

/** Fields without an owner: those that name the object and those that the server writes. */
const UNOWNED: readonly (readonly string[])[] = [
  ["f:apiVersion"],
  ["f:kind"],
  ...[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
  ].map((field) => ["f:metadata", `f:${field}`]),
];

/** The places of `object` that a manager who set all of it owns. */
export function fieldSetOf(models: ModelSource, model: string, object: unknown): FieldSet {
  const set = new FieldSet();
  const members = membersOf(models, object, rootPlace(model)) ?? [];
  for (const { segment, value, place } of members) collectPlaces(models, value, place, set.child(segment));
  for (const path of UNOWNED) set.remove(path);
  return set;
}

/** Adds the owned places of the value to `into`. */
export function collectPlaces(models: ModelSource, value: unknown, place: Place, into: FieldSet): void {
  const members = membersOf(models, value, place);
  if (members === undefined || members.length === 0) {
    into.isMember = true;
    return;
  }
  for (const { segment, value: inner, place: innerPlace } of members) {
    const child = into.child(segment);
    if (segment.startsWith("k:")) child.isMember = true;
    collectPlaces(models, inner, innerPlace, child);
  }
}
