/** Turns the output of a YAML or JSON parser into a pod that can be run, or into all of its problems. */
import * as z from "zod/mini";
import { DEFAULT_NAMESPACE } from "../../kubernetes/default-namespace.ts";
import { type FieldProblem, FieldProblems } from "../../kubernetes/field-problems.ts";
import { copyPlainData, type PlainDataLimits } from "../../kubernetes/plain-data.ts";
import { removeInvalidValues, schemaProblem } from "../../kubernetes/schema-problems.ts";
import { type Pod, type PodDraft, podSchema } from "../pod.ts";
import { applyPodDefaults } from "../pod-defaults.ts";
import { validatePod } from "./pod-validation.ts";

export type ParsePodResult =
  | { readonly ok: true; readonly pod: Pod }
  | { readonly ok: false; readonly problems: readonly FieldProblem[] };

/**
 * Larger pods are refused whole, with the limit in the problem. The deepest field of Pod v1 is some 12 levels down;
 * etcd takes objects of 1.5 MiB; a value has about 15 characters on average, so 100,000 of them are as much.
 */
export const POD_LIMITS: PlainDataLimits = { maxDepth: 40, maxValues: 100_000, maxCharacters: 1_572_864 };

/**
 * Checks the types of all fields, applies Kubernetes' defaults (and the namespace `default`) and validates the result.
 * Fields that Pod v1 does not have are kept; `status` is dropped. Problems are all that were found at once, by field
 * path, wrong types first. Never throws, never changes `input`.
 */
export function parsePod(input: unknown): ParsePodResult {
  const copied = copyPlainData(input ?? null, POD_LIMITS);
  if (!copied.ok) return { ok: false, problems: [copied.problem] };
  const foreign = kindProblems(copied.value);
  if (foreign.length > 0) return { ok: false, problems: foreign };
  const problems = new FieldProblems();
  const pod = decode(copied.value, problems);
  if (pod !== undefined) {
    const { status: _, ...withoutStatus } = pod;
    pod.metadata.namespace ||= DEFAULT_NAMESPACE;
    applyPodDefaults(pod);
    validatePod(pod as Pod, problems);
    if (problems.found.length === 0) return { ok: true, pod: withoutStatus as Pod };
  }
  return { ok: false, problems: problems.found };
}

/** Reports wrong types and goes on without the values that have them. */
function decode(value: unknown, problems: FieldProblems): (PodDraft & { status?: unknown }) | undefined {
  const decoded = safeParse(value);
  if (decoded.success) return decoded.data;
  for (const { path, message } of decoded.error.issues.map(schemaProblem)) problems.add(path, message);
  removeInvalidValues(value, decoded.error.issues);
  // What is wrong with an empty value is wrong only because the true one was taken out.
  for (const { path } of problems.found) problems.silence(path);
  return safeParse(value).data;
}

/** Compiling each schema to a function would cost more memory than the few pods of a node are worth. */
const safeParse = (value: unknown) => z.safeParse(podSchema, value, { jitless: true, reportInput: true });

/** Reported alone: problems of a Deployment's fields would not help. */
function kindProblems(value: unknown): readonly FieldProblem[] {
  const problems = new FieldProblems();
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    problems.add("", "must be a Pod: a mapping with apiVersion, kind, metadata and spec");
    return problems.found;
  }
  const { apiVersion, kind, services } = value as { apiVersion?: unknown; kind?: unknown; services?: unknown };
  if (kind === undefined && typeof services === "object" && services !== null) {
    problems.add("", COMPOSE_FILE);
  } else if (kind === undefined) problems.required("kind", "must be Pod");
  else if (kind !== "Pod") {
    problems.add(
      "kind",
      `Unsupported value: ${JSON.stringify(kind)}: picolet runs Pods; a ${shortKind(kind)} is for a Kubernetes API server${remedyFor(kind)}`,
    );
  } else if (apiVersion === undefined) problems.required("apiVersion", "must be v1");
  else if (apiVersion !== "v1") problems.unsupported("apiVersion", apiVersion, ["v1"]);
  return problems.found;
}

const COMPOSE_FILE =
  "this is a Docker Compose file, and picolet runs Kubernetes Pods: write its services as containers of Pods (apiVersion: v1, kind: Pod), and remove this file";

/** Kinds that have a pod within them. */
const TEMPLATED_KINDS: readonly unknown[] = ["Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "Job"];

const remedyFor = (kind: unknown): string =>
  TEMPLATED_KINDS.includes(kind)
    ? ": apply it there with kubectl, or write its spec.template as a Pod of its own (apiVersion v1, kind Pod, metadata.name)"
    : "";

const shortKind = (kind: unknown): string =>
  typeof kind === "string" && /^[A-Za-z]{1,63}$/.test(kind) ? kind : "thing of that kind";
