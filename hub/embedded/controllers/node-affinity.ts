/** Nodes that a pod selects (k8s.io/component-helpers/scheduling/corev1/nodeaffinity). */

import { matchesRequirement } from "@picolet/protocol/kubernetes/selector-requirement.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { hasLabels } from "../api/label-selector.ts";
import type { NodeObject } from "../api/typed-objects.ts";

type NodeAffinity = NonNullable<NonNullable<Pod["spec"]["affinity"]>["nodeAffinity"]>;
export type NodeSelectorTerm = NonNullable<
  NodeAffinity["requiredDuringSchedulingIgnoredDuringExecution"]
>["nodeSelectorTerms"][number];

/** A term without a requirement matches no node. The one field there is: `metadata.name`. */
export function matchesTerm(node: NodeObject, { matchExpressions = [], matchFields = [] }: NodeSelectorTerm): boolean {
  if (matchExpressions.length + matchFields.length === 0) return false;
  const fields = { "metadata.name": node.metadata.name };
  return (
    matchExpressions.every((requirement) => matchesRequirement(node.metadata.labels ?? {}, requirement)) &&
    matchFields.every((requirement) => matchesRequirement(fields, requirement))
  );
}

/** `nodeSelector` and the required node affinity. */
export function selectsNode(spec: Pick<Pod["spec"], "nodeSelector" | "affinity">, node: NodeObject): boolean {
  if (!hasLabels(node.metadata.labels ?? {}, spec.nodeSelector ?? {})) return false;
  const required = spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  return required === undefined || required.nodeSelectorTerms.some((term) => matchesTerm(node, term));
}

/** The sum of the weights of the preferences that the node meets. An empty preference is met by every node. */
export function preferenceWeight(spec: Pick<Pod["spec"], "affinity">, node: NodeObject): number {
  let sum = 0;
  for (const each of spec.affinity?.nodeAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? []) {
    const { matchExpressions = [], matchFields = [] } = each.preference;
    const isEmpty = matchExpressions.length + matchFields.length === 0;
    if (isEmpty || matchesTerm(node, each.preference)) sum += each.weight;
  }
  return sum;
}

/** The node that the required affinity names by `metadata.name`, as the pods of DaemonSets do; undefined without. */
export function namedNode(spec: Pick<Pod["spec"], "affinity">): string | undefined {
  const required = spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  for (const term of required?.nodeSelectorTerms ?? []) {
    for (const { key, operator, values = [] } of term.matchFields ?? []) {
      if (key === "metadata.name" && operator === "In" && values.length === 1) return values[0];
    }
  }
  return undefined;
}
