/** Our own copy of what a YAML or JSON parser gave, fit for a schema. */

import { kubeTime } from "../kube-time.ts";
import type { FieldProblem } from "./field-problems.ts";

export interface PlainDataLimits {
  /** Bounds how deep mappings and lists nest. */
  readonly maxDepth: number;
  /** Bounds the number of mappings, lists and scalars; an alias counts each time it is used. */
  readonly maxValues: number;
  /** Bounds the length of all keys and strings together, in UTF-16 units. */
  readonly maxCharacters: number;
}

export type PlainDataResult =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly problem: FieldProblem };

/** Leaves the copying as soon as there is nothing more to learn; caught in `copyPlainData`, nowhere else. */
class Refused {
  readonly problem: FieldProblem;
  constructor(path: string, message: string) {
    this.problem = { path, message };
  }
}

/** `key` as a step of a Kubernetes field path: `.name`, or `[example.com/x]` for what is no identifier. */
export function childPath(path: string, key: string): string {
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(key)) return `${path}[${key}]`;
  return path === "" ? key : `${path}.${key}`;
}

/**
 * Copies mappings, lists and scalars. Fields that are null are left out, as Kubernetes reads them; null in a list
 * stays. A Date, which some YAML parsers make, becomes its text again. Refused: what is deeper or larger than `limits`
 * (a cycle is infinitely deep), `__proto__` as a key, and everything that no JSON document can hold. Never throws,
 * never changes `input`.
 */
export function copyPlainData(input: unknown, limits: PlainDataLimits): PlainDataResult {
  try {
    return { ok: true, value: new Copier(limits).copy(input, "", 0) };
  } catch (error) {
    if (error instanceof Refused) return { ok: false, problem: error.problem };
    throw error;
  }
}

class Copier {
  readonly #limits: PlainDataLimits;
  #values = 0;
  #characters = 0;

  constructor(limits: PlainDataLimits) {
    this.#limits = limits;
  }

  copy(value: unknown, path: string, depth: number): unknown {
    this.#values += 1;
    if (this.#values > this.#limits.maxValues) {
      throw new Refused("", `Too many: must have at most ${this.#limits.maxValues} values`);
    }
    if (typeof value === "string") {
      this.#count(value);
      return value;
    }
    if (typeof value === "number" || typeof value === "boolean" || value === null) return value;
    if (typeof value === "bigint") return Number(value);
    if (depth >= this.#limits.maxDepth) {
      throw new Refused(path, `Too deep: must be at most ${this.#limits.maxDepth} levels deep`);
    }
    if (Array.isArray(value))
      return value.map((item, index) => this.copy(item ?? null, `${path}[${index}]`, depth + 1));
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? "" : kubeTime(value);
    if (isMapping(value)) return this.#copyMapping(value, path, depth);
    throw new Refused(path, "Invalid value: must be a mapping, a list, a string, a number or a boolean");
  }

  #copyMapping(mapping: object, path: string, depth: number): unknown {
    const copy: Record<string, unknown> = {};
    for (const [key, value] of Object.entries(mapping)) {
      if (key === "__proto__") throw new Refused(path, 'Forbidden: "__proto__" may not be the name of a field');
      this.#count(key);
      if (value !== null && value !== undefined) copy[key] = this.copy(value, childPath(path, key), depth + 1);
    }
    return copy;
  }

  #count(text: string): void {
    this.#characters += text.length;
    if (this.#characters > this.#limits.maxCharacters) {
      throw new Refused("", `Too long: may not be more than ${this.#limits.maxCharacters} characters`);
    }
  }
}

function isMapping(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
