import { applyPatch, type Operation } from "rfc6902";
import type { ModelSource } from "../schema/models.ts";
import { badRequest, StatusError } from "../status-error.ts";
import { strategicMerge } from "./strategic-merge.ts";

type Fields = Record<string, unknown>;

export type PatchType = "json" | "merge" | "strategic";

/** As in Kubernetes: more operations than this in one JSON patch are refused. */
const MAX_JSON_PATCH_OPERATIONS = 10_000;

/** Each may double the object. */
const MAX_COPIES = 100;
/** As much as a request may hold. */
const MAX_PATCHED_LENGTH = 3 * 1024 * 1024;

const isRecord = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** @param object is changed or returned in parts @throws StatusError 400, 413, 422 */
export function applyObjectPatch(
  models: ModelSource,
  model: string,
  type: PatchType,
  object: Fields,
  patch: unknown,
): Fields {
  if (type === "json") return jsonPatch(object, patch);
  if (!isRecord(patch)) throw badRequest("json: cannot unmarshal patch into Go value of type map[string]interface {}");
  return type === "merge" ? (mergePatch(object, patch) as Fields) : strategicMerge(models, model, object, patch);
}

/** RFC 7386. */
function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isRecord(patch)) return patch;
  const result: Fields = isRecord(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = mergePatch(result[key], value);
  }
  return result;
}

const OPERATIONS: ReadonlySet<unknown> = new Set(["add", "remove", "replace", "move", "copy", "test"]);

function jsonPatch(object: Fields, patch: unknown): Fields {
  if (!Array.isArray(patch)) throw badRequest("json: cannot unmarshal object into Go value of type jsonpatch.Patch");
  if (patch.length > MAX_JSON_PATCH_OPERATIONS) {
    const message = `The allowed maximum operations in a JSON patch is ${MAX_JSON_PATCH_OPERATIONS}, got ${patch.length}`;
    throw new StatusError("RequestEntityTooLarge", message);
  }
  for (const operation of patch) checkOperation(operation);
  const operations = patch as readonly Operation[];
  const copies = operations.filter(({ op }) => op === "copy").length;
  for (const operation of operations) {
    const problem = problemOf(object, operation);
    if (problem !== undefined) {
      const message = `the server rejected our request due to an error in our request: ${problem}`;
      throw new StatusError("Invalid", message, {});
    }
    const isLarge = operation.op === "copy" && (JSON.stringify(object)?.length ?? 0) > MAX_PATCHED_LENGTH;
    if (isLarge || copies > MAX_COPIES) throw new StatusError("RequestEntityTooLarge", "the patch copies too much");
  }
  return object;
}

/** Applies it. The library puts values into its messages as text, which one that has a field `toString` cannot become. */
function problemOf(object: Fields, operation: Operation): string | undefined {
  try {
    const [problem] = applyPatch(object, [operation]);
    return problem?.message;
  } catch {
    return `the operation ${operation.op} at ${JSON.stringify(operation.path)} failed`;
  }
}

/** rfc6902 follows paths into prototypes and believes the shape of what it is given. */
function checkOperation(operation: unknown): void {
  if (!isRecord(operation) || !OPERATIONS.has(operation.op) || typeof operation.path !== "string") {
    throw badRequest(`invalid JSON patch operation: ${JSON.stringify(operation)?.slice(0, 200)}`);
  }
  for (const pointer of [operation.path, operation.from ?? ""]) {
    if (typeof pointer !== "string" || (pointer !== "" && !pointer.startsWith("/"))) {
      throw badRequest(`invalid JSON pointer: ${JSON.stringify(pointer)}`);
    }
    if (pointer.split("/").some((step) => ["__proto__", "constructor", "prototype"].includes(step))) {
      throw badRequest(`invalid JSON pointer: ${JSON.stringify(pointer)}`);
    }
  }
  if (operation.path === "" && operation.op !== "test")
    throw badRequest("a JSON patch may not replace the whole object");
}
