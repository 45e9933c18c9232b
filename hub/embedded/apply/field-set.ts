import type { ModelSource } from "../schema/models.ts";
import { isRecord, membersOf, type Place, rootPlace } from "./typed-value.ts";

/** What one manager owns of an object, as a tree of fieldsV1's segments. */
export class FieldSet {
  /** Whether the place itself is owned, not only what is in it. */
  isMember = false;
  readonly children = new Map<string, FieldSet>();

  get isEmpty(): boolean {
    return !this.isMember && this.children.size === 0;
  }

  child(segment: string): FieldSet {
    const known = this.children.get(segment);
    if (known !== undefined) return known;
    const made = new FieldSet();
    this.children.set(segment, made);
    return made;
  }

  has(path: readonly string[]): boolean {
    return this.#at(path)?.isMember === true;
  }

  /** Whether it owns the place or anything in it. */
  touches(path: readonly string[]): boolean {
    return this.#at(path) !== undefined;
  }

  add(path: readonly string[]): void {
    let node: FieldSet = this;
    for (const segment of path) node = node.child(segment);
    node.isMember = true;
  }

  /** Takes away the place and everything in it. */
  remove(path: readonly string[]): void {
    const [segment, ...rest] = path;
    if (segment === undefined) return;
    const child = this.children.get(segment);
    if (child === undefined) return;
    if (rest.length === 0) this.children.delete(segment);
    else {
      child.remove(rest);
      if (child.isEmpty) this.children.delete(segment);
    }
  }

  /** Every place that is owned itself. */
  *paths(prefix: readonly string[] = []): Iterable<readonly string[]> {
    if (this.isMember) yield prefix;
    for (const [segment, child] of this.children) yield* child.paths([...prefix, segment]);
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
    if (!isRecord(json)) return set;
    for (const [segment, inner] of Object.entries(json)) {
      if (segment === ".") {
        set.isMember = true;
        continue;
      }
      const child = FieldSet.fromJson(inner);
      if (child.isEmpty) child.isMember = true;
      set.children.set(segment, child);
    }
    return set;
  }

  #at(path: readonly string[]): FieldSet | undefined {
    let node: FieldSet | undefined = this;
    for (const segment of path) node = node?.children.get(segment);
    return node;
  }
}

/** Nobody owns what names the object or what the server writes. */
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
  collect(models, object, rootPlace(model), set, true);
  for (const path of UNOWNED) set.remove(path);
  return set;
}

function collect(models: ModelSource, value: unknown, place: Place, into: FieldSet, isRoot: boolean): void {
  const members = membersOf(models, value, place);
  if (members === undefined || members.length === 0) {
    if (!isRoot) into.isMember = true;
    return;
  }
  for (const { segment, value: inner, place: innerPlace } of members) {
    const child = into.child(segment);
    if (segment.startsWith("k:")) child.isMember = true;
    collect(models, inner, innerPlace, child, false);
  }
}
