import type { ApiObject } from "../api/resource-definition.ts";

/** What is kept of one object, and the group under which it is found. */
export interface Derived<T> {
  readonly group: string;
  readonly value: T;
}

/** Must read the object alone, and keep nothing of it that is changed later. Undefined: nothing is kept of the object. */
export type Derive<T> = (object: ApiObject) => Derived<T> | undefined;

const textOf = (namespace: string, name: string): string => `${namespace}/${name}`;

/**
 * Values derived from the objects of one resource, for questions that requests ask of all of them. The objects are read
 * at the start; then each write costs what its own object does. What is written is seen at once, as by
 * `ObjectStore.get`.
 */
export class DerivedObjects<T> {
  readonly #read: () => Iterable<ApiObject>;
  readonly #derive: Derive<T>;
  /** By group, then by `textOf`. Undefined: to be read. */
  #groups: Map<string, Map<string, T>> | undefined;
  readonly #groupOf = new Map<string, string>();
  /** Counts changes, for callers that keep what they made of the values. */
  version = 0;

  constructor(read: () => Iterable<ApiObject>, derive: Derive<T>) {
    this.#read = read;
    this.#derive = derive;
    this.#all();
  }

  /** Values of all groups. */
  *values(): Iterable<T> {
    for (const group of this.#all().values()) yield* group.values();
  }

  in(group: string): Iterable<T> {
    return this.#all().get(group)?.values() ?? [];
  }

  /** @param namespace and `name` of the object */
  get(group: string, namespace: string, name: string): T | undefined {
    return this.#all().get(group)?.get(textOf(namespace, name));
  }

  /** For the store, with each write. @param object undefined: deleted */
  update(namespace: string, name: string, object: ApiObject | undefined): void {
    if (this.#groups === undefined) return;
    this.#put(this.#groups, textOf(namespace, name), object === undefined ? undefined : this.#derive(object));
    this.version += 1;
  }

  /** For the store, when writes were taken back. */
  reset(): void {
    this.#groups = undefined;
    this.version += 1;
  }

  #all(): ReadonlyMap<string, ReadonlyMap<string, T>> {
    if (this.#groups !== undefined) return this.#groups;
    const groups = new Map<string, Map<string, T>>();
    this.#groupOf.clear();
    for (const object of this.#read()) {
      const { namespace = "", name } = object.metadata;
      this.#put(groups, textOf(namespace, name), this.#derive(object));
    }
    this.#groups = groups;
    return groups;
  }

  #put(groups: Map<string, Map<string, T>>, key: string, derived: Derived<T> | undefined): void {
    const before = this.#groupOf.get(key);
    if (before !== undefined && before !== derived?.group) {
      const own = groups.get(before);
      own?.delete(key);
      if (own?.size === 0) groups.delete(before);
      this.#groupOf.delete(key);
    }
    if (derived === undefined) return;
    const own = groups.get(derived.group) ?? new Map<string, T>();
    groups.set(derived.group, own.set(key, derived.value));
    this.#groupOf.set(key, derived.group);
  }
}
