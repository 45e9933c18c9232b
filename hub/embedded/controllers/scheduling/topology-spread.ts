/** `topologySpreadConstraints` that must hold (pkg/scheduler/framework/plugins/podtopologyspread). */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { selects } from "../../api/label-selector.ts";
import { type NodeObject, untoleratedTaint } from "../../api/typed-objects.ts";
import { selectsNode } from "../node-affinity.ts";
import type { NodeInfo } from "./node-info.ts";
import { topologyOf } from "./pod-affinity.ts";

type Constraint = NonNullable<Pod["spec"]["topologySpreadConstraints"]>[number];

interface Spread {
  readonly constraint: Constraint;
  /** Matching pods by the value of the topology key. */
  readonly domains: Map<string, number>;
  readonly least: number;
  readonly self: number;
}

const MISMATCH = "node(s) didn't match pod topology spread constraints";

export class TopologySpreadCheck {
  readonly #spreads: readonly Spread[];

  constructor(pod: Pod, nodes: readonly NodeInfo[]) {
    const hard = (pod.spec.topologySpreadConstraints ?? []).filter(
      ({ whenUnsatisfiable }) => whenUnsatisfiable === "DoNotSchedule",
    );
    this.#spreads = hard.map((constraint) => spreadOf(pod, constraint, hard, nodes));
  }

  /** Why the pod may not be on this node; undefined when it may. */
  problem(node: NodeObject): string | undefined {
    for (const { constraint, domains, least, self } of this.#spreads) {
      const value = topologyOf(node, constraint.topologyKey);
      if (value === undefined) return `${MISMATCH} (missing required label)`;
      if ((domains.get(value) ?? 0) + self - least > constraint.maxSkew) return MISMATCH;
    }
    return undefined;
  }
}

function spreadOf(pod: Pod, constraint: Constraint, all: readonly Constraint[], nodes: readonly NodeInfo[]): Spread {
  const matches = (candidate: Pod): boolean =>
    candidate.metadata.namespace === pod.metadata.namespace &&
    selects(constraint.labelSelector, candidate.metadata.labels) &&
    (constraint.matchLabelKeys ?? []).every(
      (key) =>
        pod.metadata.labels?.[key] === undefined || candidate.metadata.labels?.[key] === pod.metadata.labels[key],
    );
  const domains = new Map<string, number>();
  for (const { node, pods } of nodes) {
    const value = topologyOf(node, constraint.topologyKey);
    if (value === undefined || !all.every(({ topologyKey }) => topologyOf(node, topologyKey) !== undefined)) continue;
    if (!counts(pod, constraint, node)) continue;
    let count = domains.get(value) ?? 0;
    for (const { pod: other } of pods) {
      if (other.metadata.deletionTimestamp === undefined && matches(other)) count += 1;
    }
    domains.set(value, count);
  }
  const enough = domains.size >= (constraint.minDomains ?? 1);
  return {
    constraint,
    domains,
    least: enough && domains.size > 0 ? Math.min(...domains.values()) : 0,
    self: matches(pod) ? 1 : 0,
  };
}

/** True when the node's domain is one that the pod could be in. */
function counts(pod: Pod, constraint: Constraint, node: NodeObject): boolean {
  if (constraint.nodeAffinityPolicy !== "Ignore" && !selectsNode(pod.spec, node)) return false;
  if (constraint.nodeTaintsPolicy !== "Honor") return true;
  return (
    untoleratedTaint(node.spec?.taints ?? [], pod.spec.tolerations ?? [], ["NoSchedule", "NoExecute"]) === undefined
  );
}
