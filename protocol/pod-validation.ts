import type { FieldProblems } from "./field-problems.ts";
import type { Pod } from "./pod.ts";

/** Adds to `problems` whatever Kubernetes' API server would refuse `pod` for. */
export function validatePod(pod: Pod, problems: FieldProblems): void {
  if (pod.metadata.name === "") problems.required("metadata.name", "name or generateName is required");
  if (pod.spec.containers.length === 0) problems.required("spec.containers");
}
