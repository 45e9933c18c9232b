/** Defaults and validation of pods and of the templates of pods, from the model that the agent uses. */

import { type FieldProblem, FieldProblems, formatProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { copyPlainData } from "@picolet/protocol/kubernetes/plain-data.ts";
import { schemaProblem } from "@picolet/protocol/kubernetes/schema-problems.ts";
import { type Pod, podSchema } from "@picolet/protocol/pod/pod.ts";
import { applyPodDefaults } from "@picolet/protocol/pod/pod-defaults.ts";
import { POD_LIMITS } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { validatePod } from "@picolet/protocol/pod/validation/pod-validation.ts";
import * as z from "zod/mini";
import type { FieldError } from "../../api/field-errors.ts";
import { fieldErrorOf, section } from "../../api/object-fields.ts";
import type { ApiObject } from "../../api/resource-definition.ts";
import { badRequest, type StatusError } from "../../api/status-error.ts";
import { validatePlacement } from "./placement-validation.ts";

/** Zero values for required fields, then Kubernetes' defaults. @throws StatusError 400 for what no pod can hold */
export function defaultPod(pod: ApiObject): void {
  pod.spec = withDefaults(pod.metadata, pod.spec);
}

/** `spec.template` of a workload. @throws StatusError 400 */
export function defaultPodTemplate(template: object): void {
  const metadata = section(template, "metadata");
  const spec = withDefaults(metadata, (template as Record<string, unknown>).spec);
  Object.assign(template, { spec });
}

function withDefaults(metadata: unknown, spec: unknown): unknown {
  const copied = copyPlainData({ apiVersion: "v1", kind: "Pod", metadata, spec: spec ?? {} }, POD_LIMITS);
  if (!copied.ok) throw unreadable([copied.problem]);
  const decoded = z.safeParse(podSchema, copied.value, { jitless: true, reportInput: true });
  if (!decoded.success) throw unreadable(decoded.error.issues.map(schemaProblem));
  applyPodDefaults(decoded.data);
  return decoded.data.spec;
}

/**
 * Values that the models of the API's types accept and the pod model does not: a number beyond 32 bits, a null in a
 * list.
 */
const unreadable = (problems: readonly FieldProblem[]): StatusError =>
  badRequest(`Pod in version "v1" cannot be handled as a Pod: ${formatProblems(problems)}`);

export function validatePodObject(pod: ApiObject): readonly FieldError[] {
  const problems = new FieldProblems();
  // A missing name is reported elsewhere.
  const metadata = { ...pod.metadata, name: pod.metadata.name ?? "" };
  validatePod({ ...pod, metadata } as unknown as Pod, problems);
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
