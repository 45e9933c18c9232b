/**
 * JSON patch (RFC 6902, `application/json-patch+json`). Every operation costs what it touches, and the sum is bounded:
 * the reference libraries compute the difference of lists for a `test` and clone without a limit for a `copy`.
 */
import { isRecord } from "@picolet/protocol/guards.ts";
import { MAX_BODY_BYTES, StepBudget, tooLarge } from "../api/limits.ts";
import { badRequest, StatusError } from "../api/status-error.ts";

type Fields = Record<string, unknown>;

/** As in Kubernetes: more operations than this in one JSON patch are refused. */
export const MAX_OPERATIONS = 10_000;
/** As in Kubernetes (`JSONPatchMaxCopyBytes`): what all copies of one patch may add. */
const MAX_COPIED_BYTES = MAX_BODY_BYTES;
/** Items of a list that move by one place for an insertion count as one step: 512 bytes of memory. */
const ITEMS_PER_STEP = 64;

const OPERATIONS: ReadonlySet<unknown> = new Set(["add", "remove", "replace", "move", "copy", "test"]);
/** Steps of a path that lead out of the object's own fields. */
const POISON: ReadonlySet<string> = new Set(["__proto__", "constructor", "prototype"]);

interface Operation {
  readonly op: string;
  readonly path: readonly string[];
  readonly from: readonly string[];
  readonly value: unknown;
  /** `path` as it was sent, for messages. */
  readonly shown: string;
}

/** An operation that cannot be applied to this object. */
class Unapplicable extends Error {}

/**
 * @param object is changed in place
 * @throws StatusError 400 for what is no patch, 413 for one that costs too much, 422 for one that does not fit the
 * object
 */
export function jsonPatch(object: Fields, patch: unknown, budget = new StepBudget()): Fields {
  if (!Array.isArray(patch)) throw badRequest("json: cannot unmarshal object into Go value of type jsonpatch.Patch");
  if (patch.length > MAX_OPERATIONS) {
    const message = `The allowed maximum operations in a JSON patch is ${MAX_OPERATIONS}, got ${patch.length}`;
    throw new StatusError("RequestEntityTooLarge", message);
  }
  const patcher = new Patcher(object, budget);
  // All are read before any is applied: a patch that is no patch is refused as that.
  for (const operation of patch.map(readOperation)) {
    try {
      patcher.apply(operation);
    } catch (error) {
      if (!(error instanceof Unapplicable)) throw error;
      const message = `the server rejected our request due to an error in our request: ${error.message}`;
      throw new StatusError("Invalid", message, {}, error);
    }
  }
  return object;
}

class Patcher {
  readonly #object: Fields;
  readonly #budget: StepBudget;
  #copiedBytes = 0;

  constructor(object: Fields, budget: StepBudget) {
    this.#object = object;
    this.#budget = budget;
  }

  apply({ op, path, from, value, shown }: Operation): void {
    this.#budget.spend(1 + path.length + from.length);
    if ((op === "add" || op === "replace") && value === undefined) throw new Unapplicable(`missing value: ${shown}`);
    switch (op) {
      case "add":
        this.#add(path, value);
        return;
      case "remove":
        this.#remove(path);
        return;
      case "replace":
        this.#replace(path, value);
        return;
      case "move":
        if (from.length < path.length && from.every((step, index) => step === path[index])) {
          throw new Unapplicable(`cannot move a value into itself: ${shown}`);
        }
        this.#add(path, this.#remove(from));
        return;
      case "copy":
        this.#add(path, this.#copy(this.#get(from)));
        return;
      default:
        if (!this.#isSame(this.#get(path), value)) throw new Unapplicable(`testing path ${shown} value failed`);
    }
  }

  #get(path: readonly string[]): unknown {
    let value: unknown = this.#object;
    for (const [depth, step] of path.entries()) value = childOf(value, step, path.slice(0, depth + 1));
    return value;
  }

  #add(path: readonly string[], value: unknown): void {
    const [parent, last] = this.#parentOf(path);
    if (!Array.isArray(parent)) {
      parent[last] = value;
      return;
    }
    const index = last === "-" ? parent.length : indexOf(last, parent.length, path);
    this.#budget.spend(Math.ceil((parent.length - index) / ITEMS_PER_STEP));
    parent.splice(index, 0, value);
  }

  #remove(path: readonly string[]): unknown {
    const [parent, last] = this.#parentOf(path);
    const value = childOf(parent, last, path);
    if (Array.isArray(parent)) {
      this.#budget.spend(Math.ceil(parent.length / ITEMS_PER_STEP));
      parent.splice(Number(last), 1);
    } else delete parent[last];
    return value;
  }

  #replace(path: readonly string[], value: unknown): void {
    const [parent, last] = this.#parentOf(path);
    childOf(parent, last, path);
    if (Array.isArray(parent)) parent[Number(last)] = value;
    else parent[last] = value;
  }

  #parentOf(path: readonly string[]): readonly [parent: Fields | unknown[], last: string] {
    const parent = this.#get(path.slice(0, -1));
    if (!Array.isArray(parent) && !isRecord(parent)) throw missing(path);
    return [parent, path.at(-1) ?? ""];
  }

  #copy(value: unknown): unknown {
    this.#budget.spend(1);
    this.#countCopied(typeof value === "string" ? value.length : 1);
    if (Array.isArray(value)) return value.map((item) => this.#copy(item));
    if (!isRecord(value)) return value;
    const copied = Object.entries(value).map(([key, item]): [string, unknown] => {
      this.#countCopied(key.length);
      return [key, this.#copy(item)];
    });
    return Object.fromEntries(copied);
  }

  #countCopied(bytes: number): void {
    this.#copiedBytes += bytes;
    if (this.#copiedBytes <= MAX_COPIED_BYTES) return;
    const limit = `exceeding the limit ${MAX_COPIED_BYTES}`;
    const sum = `the accumulated size increase of copy is ${this.#copiedBytes}`;
    throw tooLarge(`Unable to complete the copy, ${sum}, ${limit}`);
  }

  #isSame(left: unknown, right: unknown): boolean {
    this.#budget.spend(1);
    if (Array.isArray(left)) {
      if (!Array.isArray(right) || left.length !== right.length) return false;
      return left.every((item, index) => this.#isSame(item, right[index]));
    }
    if (!isRecord(left) || !isRecord(right)) return left === right;
    const keys = Object.keys(left);
    if (keys.length !== Object.keys(right).length) return false;
    return keys.every((key) => Object.hasOwn(right, key) && this.#isSame(left[key], right[key]));
  }
}

const pointerOf = (path: readonly string[]): string => path.map((step) => `/${step}`).join("");

/** Longer paths are cut in messages. */
const MAX_SHOWN = 256;

const missing = (path: readonly string[]): Unapplicable =>
  new Unapplicable(`missing path: ${JSON.stringify(pointerOf(path).slice(0, MAX_SHOWN))}`);

function childOf(parent: unknown, step: string, path: readonly string[]): unknown {
  if (Array.isArray(parent)) return parent[indexOf(step, parent.length - 1, path)];
  if (!isRecord(parent) || !Object.hasOwn(parent, step)) throw missing(path);
  return parent[step];
}

function indexOf(step: string, last: number, path: readonly string[]): number {
  const index = /^(0|[1-9]\d{0,8})$/.test(step) ? Number(step) : Number.NaN;
  if (!(index <= last)) throw missing(path);
  return index;
}

/** @throws StatusError 400 */
function readOperation(operation: unknown): Operation {
  if (!isRecord(operation) || !OPERATIONS.has(operation.op) || typeof operation.path !== "string") {
    throw badRequest(`invalid JSON patch operation: ${JSON.stringify(operation)?.slice(0, MAX_SHOWN)}`);
  }
  const { op, path, from, value } = operation;
  const needsFrom = op === "move" || op === "copy";
  const read = { op: String(op), path: readPointer(path), from: needsFrom ? readPointer(from) : [], value };
  if (path === "" && op !== "test") throw badRequest("a JSON patch may not replace the whole object");
  return { ...read, shown: path.slice(0, MAX_SHOWN) };
}

function readPointer(pointer: unknown): readonly string[] {
  const refuse = () => badRequest(`invalid JSON pointer: ${JSON.stringify(pointer)?.slice(0, MAX_SHOWN)}`);
  if (typeof pointer !== "string" || (pointer !== "" && !pointer.startsWith("/"))) throw refuse();
  const steps = pointer.split("/").slice(1);
  if (steps.some((step) => POISON.has(step))) throw refuse();
  return steps.map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
}
