/** From what a YAML or JSON parser gave to a pod that can be run, or to everything that is wrong with it. */
import * as z from "zod/mini";
import { type FieldProblem, FieldProblems } from "./field-problems.ts";
import { copyPlainData, type PlainDataLimits } from "./plain-data.ts";
import { type Pod, type PodDraft, podSchema } from "./pod.ts";
import { applyPodDefaults } from "./pod-defaults.ts";
import { validatePod } from "./pod-validation.ts";
import { schemaProblem } from "./schema-problems.ts";

export type ParsePodResult =
  | { readonly ok: true; readonly pod: Pod }
  | { readonly ok: false; readonly problems: readonly FieldProblem[] };

/** Where the kubelet puts a static pod that names no namespace. */
export const DEFAULT_NAMESPACE = "default";

/**
 * Larger pods are refused whole, with the limit in the problem. The deepest field of Pod v1 is some 12 levels down; etcd
 * takes objects of 1.5 MiB; a value has about 15 characters on average, so 100,000 of them are as much.
 */
export const POD_LIMITS: PlainDataLimits = { maxDepth: 40, maxValues: 100_000, maxCharacters: 1_572_864 };

/**
 * Checks the types of all fields, applies Kubernetes' defaults (and the namespace `default`) and validates the result.
 * Fields that Pod v1 does not have are kept; `status` is dropped. Problems are all that were found at once, by field
 * path; where the types are wrong already, validation does not run. Never throws, never changes `input`.
 */
export function parsePod(input: unknown): ParsePodResult {
  const copied = copyPlainData(input, POD_LIMITS);
  if (!copied.ok) return { ok: false, problems: [copied.problem] };
  const foreign = kindProblems(copied.value);
  if (foreign.length > 0) return { ok: false, problems: foreign };
  // Compiling each schema to a function would cost more memory than the few pods of a node are worth.
  const decoded = z.safeParse(podSchema, copied.value, { jitless: true, reportInput: true });
  if (!decoded.success) return { ok: false, problems: gather(decoded.error.issues.map(schemaProblem)) };
  const pod: PodDraft & { status?: unknown } = decoded.data;
  delete pod.status;
  pod.metadata.namespace ||= DEFAULT_NAMESPACE;
  applyPodDefaults(pod);
  const problems = new FieldProblems();
  validatePod(pod as Pod, problems);
  return problems.found.length === 0 ? { ok: true, pod: pod as Pod } : { ok: false, problems: problems.found };
}

function gather(found: readonly FieldProblem[]): readonly FieldProblem[] {
  const problems = new FieldProblems();
  for (const { path, message } of found) problems.add(path, message);
  return problems.found;
}

/** Said alone: nothing else about a Deployment's fields is worth reading. */
function kindProblems(value: unknown): readonly FieldProblem[] {
  const problems = new FieldProblems();
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    problems.add("", "must be a Pod: a mapping with apiVersion, kind, metadata and spec");
    return problems.found;
  }
  const { apiVersion, kind } = value as { apiVersion?: unknown; kind?: unknown };
  if (kind === undefined) problems.required("kind", "must be Pod");
  else if (kind !== "Pod") {
    problems.add(
      "kind",
      `Unsupported value: ${JSON.stringify(kind)}: picolet runs Pods; a ${shortKind(kind)} is for a Kubernetes API server`,
    );
  } else if (apiVersion === undefined) problems.required("apiVersion", "must be v1");
  else if (apiVersion !== "v1") problems.unsupported("apiVersion", apiVersion, ["v1"]);
  return problems.found;
}

const shortKind = (kind: unknown): string =>
  typeof kind === "string" && /^[A-Za-z]{1,63}$/.test(kind) ? kind : "thing of that kind";
