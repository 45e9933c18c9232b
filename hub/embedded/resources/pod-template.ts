/** Defaults and validation of pods and of the templates of pods, from the model that the agent uses. */
import * as z from "zod/mini";
import { type FieldProblem, FieldProblems } from "../../../protocol/field-problems.ts";
import { POD_LIMITS } from "../../../protocol/parse-pod.ts";
import { copyPlainData } from "../../../protocol/plain-data.ts";
import { type Pod, podSchema } from "../../../protocol/pod.ts";
import { applyPodDefaults } from "../../../protocol/pod-defaults.ts";
import { validatePod } from "../../../protocol/pod-validation.ts";
import type { FieldError } from "../field-errors.ts";
import type { ApiObject } from "../resource-definition.ts";
import { fieldErrorOf, section } from "./object-fields.ts";
import { validatePlacement } from "./placement-validation.ts";

/** Zero values for required fields, then Kubernetes' defaults. What does not fit the model stays, for validation to name. */
export function defaultPod(pod: ApiObject): void {
  const spec = withDefaults(pod.metadata, pod.spec);
  if (spec !== undefined) pod.spec = spec;
}

/** `spec.template` of a workload. */
export function defaultPodTemplate(template: object): void {
  const metadata = section(template, "metadata");
  const spec = withDefaults(metadata, (template as Record<string, unknown>).spec);
  if (spec !== undefined) Object.assign(template, { spec });
}

function withDefaults(metadata: unknown, spec: unknown): unknown {
  const copied = copyPlainData({ apiVersion: "v1", kind: "Pod", metadata, spec: spec ?? {} }, POD_LIMITS);
  if (!copied.ok) return undefined;
  const decoded = z.safeParse(podSchema, copied.value, { jitless: true });
  if (!decoded.success) return undefined;
  applyPodDefaults(decoded.data);
  return decoded.data.spec;
}

export function validatePodObject(pod: ApiObject): readonly FieldError[] {
  const problems = new FieldProblems();
  validatePod(pod as unknown as Pod, problems);
  // The server validates names and labels of every object alike.
  const isOurs = ({ path }: FieldProblem): boolean =>
    !/^metadata\.(name|namespace|labels|generation|annotations$)/.test(path);
  return [...problems.found.filter(isOurs).map(fieldErrorOf), ...validatePlacement(pod.spec, "spec")];
}

/** @param path of the template, `spec.template` */
export function validatePodTemplate(template: unknown, namespace: string, path: string): readonly FieldError[] {
  const { metadata, spec } = template as { metadata: object; spec: unknown };
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { ...metadata, name: "template", namespace }, spec };
  const problems = new FieldProblems();
  validatePod(pod as unknown as Pod, problems);
  const found = problems.found.map((problem) => fieldErrorOf({ ...problem, path: `${path}.${problem.path}` }));
  return [...found, ...validatePlacement(spec, `${path}.spec`)];
}
