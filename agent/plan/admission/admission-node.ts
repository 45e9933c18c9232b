/** Checks a pod against the labels and taints of the node. Pure. */

import { matchesRequirement } from "@picolet/protocol/kubernetes/selector-requirement.ts";
import type { Pod, PodSpec, Toleration } from "@picolet/protocol/pod/pod.ts";

export interface NodeTaint {
  readonly key: string;
  readonly value?: string | undefined;
  readonly effect: string;
}

export interface NodeLabelsAndTaints {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly NodeTaint[];
}

type Required = NonNullable<
  NonNullable<NonNullable<PodSpec["affinity"]>["nodeAffinity"]>["requiredDuringSchedulingIgnoredDuringExecution"]
>;
/** One of the alternatives of a node selector. */
export type NodeSelectorTerm = Required["nodeSelectorTerms"][number];

/** `nodeSelector` and the required part of the node affinity. */
export function matchesNode({ spec }: Pod, node: NodeLabelsAndTaints): boolean {
  for (const [key, value] of Object.entries(spec.nodeSelector ?? {})) {
    if (!matchesRequirement(node.labels, { key, operator: "In", values: [value] })) return false;
  }
  const required = spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  return required === undefined || matchesNodeSelector(required.nodeSelectorTerms, node);
}

/** As a pod's affinity, or a persistent volume's, has them. */
export const matchesNodeSelector = (
  terms: readonly NodeSelectorTerm[],
  node: Pick<NodeLabelsAndTaints, "name" | "labels">,
): boolean => terms.some((term) => matchesTerm(term, node));

/** Terms are alternatives; one that asks for nothing matches nothing. */
function matchesTerm(
  { matchExpressions = [], matchFields = [] }: NodeSelectorTerm,
  { labels, name }: Pick<NodeLabelsAndTaints, "name" | "labels">,
): boolean {
  if (matchExpressions.length === 0 && matchFields.length === 0) return false;
  return (
    matchExpressions.every((each) => matchesRequirement(labels, each)) &&
    matchFields.every((each) => matchesRequirement({ "metadata.name": name }, each))
  );
}

/** Only NoExecute is a node's own business: the others were the scheduler's. */
export function toleratesNode(pod: Pod, { taints }: NodeLabelsAndTaints): boolean {
  return taints.filter(({ effect }) => effect === "NoExecute").every((taint) => toleratesTaint(pod, taint));
}

export const toleratesTaint = ({ spec }: Pod, taint: NodeTaint): boolean =>
  (spec.tolerations ?? []).some((each) => tolerates(each, taint));

function tolerates({ key = "", operator, value = "", effect }: Toleration, taint: NodeTaint): boolean {
  if (effect && effect !== taint.effect) return false;
  if (key !== "" && key !== taint.key) return false;
  return operator === "Exists" || value === (taint.value ?? "");
}
