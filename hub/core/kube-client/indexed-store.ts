/** Objects by key and by named indexes. */
export class IndexedStore<T> {
  readonly #values = new Map<string, T>();
  readonly #indexes = new Map<
    string,
    { readonly of: (value: T) => Iterable<string>; readonly keys: Map<string, Set<string>> }
  >();

  /** @param indexes by name: the values of an object in the index; the same object must always give the same ones */
  constructor(indexes: Readonly<Record<string, (value: T) => Iterable<string>>> = {}) {
    for (const [name, of] of Object.entries(indexes)) this.#indexes.set(name, { of, keys: new Map() });
  }

  get size(): number {
    return this.#values.size;
  }

  get(key: string): T | undefined {
    return this.#values.get(key);
  }

  entries(): Iterable<[string, T]> {
    return this.#values.entries();
  }

  keys(): Iterable<string> {
    return this.#values.keys();
  }

  /** Keys under `value` of the index `name`. */
  keysBy(name: string, value: string): ReadonlySet<string> {
    return this.#indexes.get(name)?.keys.get(value) ?? NONE;
  }

  /** @returns what was there before @throws what an index throws; nothing has changed then */
  put(key: string, value: T): T | undefined {
    const places = [...this.#indexes.values()].map(({ of, keys }) => ({ keys, found: [...of(value)] }));
    const before = this.remove(key);
    this.#values.set(key, value);
    for (const { keys, found: values } of places) {
      for (const each of values) {
        const found = keys.get(each);
        if (found === undefined) keys.set(each, new Set([key]));
        else found.add(key);
      }
    }
    return before;
  }

  /** @returns what was there */
  remove(key: string): T | undefined {
    const before = this.#values.get(key);
    if (before === undefined) return undefined;
    this.#values.delete(key);
    for (const { of, keys } of this.#indexes.values()) {
      for (const each of of(before)) {
        const found = keys.get(each);
        found?.delete(key);
        if (found?.size === 0) keys.delete(each);
      }
    }
    return before;
  }
}

const NONE: ReadonlySet<string> = new Set();
