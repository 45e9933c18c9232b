import { isRecord } from "@picolet/protocol/guards.ts";
import { badRequest } from "../api/status-error.ts";
import type { ModelSource } from "../schema/models.ts";
import { jsonPatch } from "./json-patch.ts";
import { strategicMerge } from "./strategic-merge.ts";

type Fields = Record<string, unknown>;

export type PatchType = "json" | "merge" | "strategic";

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
