/**
 * Chooses a node for a pod. Pure. Filters and their words as in kube-scheduler's default plugins (Kubernetes 1.34), in
 * their order; the first filter that a node fails names the reasons. Scores: fewest taints to be avoided, preferred
 * nodes and pods, the image at hand, the least requested, in the scheduler's default weights. No pod is preempted.
 */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { Random } from "@picolet/protocol/ports.ts";
import { type NodeObject, tolerates, untoleratedTaint } from "../../api/typed-objects.ts";
import { namedNode, preferenceWeight, selectsNode } from "../node-affinity.ts";
import { type NodeInfo, type PodNeeds, podNeeds, portsConflict } from "./node-info.ts";
import { type NamespaceLabels, PodAffinityCheck } from "./pod-affinity.ts";
import { TopologySpreadCheck } from "./topology-spread.ts";

export type SchedulingDecision =
  | { readonly kind: "fits"; readonly node: string }
  /** @property message of the event and of the condition */
  | { readonly kind: "unschedulable"; readonly message: string };

export interface ScheduleInput {
  readonly pod: Pod;
  readonly nodes: ReadonlyMap<string, NodeInfo>;
  readonly namespaceLabels: NamespaceLabels;
  /** Why no node at all can take it (a volume claim that is missing or not bound), else undefined. */
  readonly obstacle?: string | undefined;
  /** Why it may not be on this node for its volumes' sake. */
  readonly nodeProblem?: (node: NodeObject) => string | undefined;
}

/** @param random which of the best, where there are several */
export function schedule(input: ScheduleInput, random: Random): SchedulingDecision {
  const { pod } = input;
  const nodes = [...input.nodes.values()];
  if (nodes.length === 0) return { kind: "unschedulable", message: "no nodes available to schedule pods" };
  const total = nodes.length;
  if (input.obstacle !== undefined) {
    return { kind: "unschedulable", message: `0/${total} nodes are available: ${input.obstacle}.` };
  }
  const checks: Checks = {
    needs: podNeeds(pod),
    affinity: new PodAffinityCheck(pod, nodes, input.namespaceLabels),
    spread: new TopologySpreadCheck(pod, nodes),
    nodeProblem: input.nodeProblem ?? (() => undefined),
  };
  // The pod of a DaemonSet has one node to go to; the others are checked only for the message.
  const name = namedNode(pod.spec);
  const named = name === undefined ? undefined : input.nodes.get(name);
  if (named !== undefined && problemsOf(named, checks).length === 0) {
    return { kind: "fits", node: named.node.metadata.name };
  }
  const feasible: NodeInfo[] = [];
  const counts = new Map<string, number>();
  for (const info of nodes) {
    const reasons = problemsOf(info, checks);
    if (reasons.length === 0) feasible.push(info);
    for (const reason of reasons) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  }
  const chosen = best(feasible, checks, random);
  if (chosen !== undefined) return { kind: "fits", node: chosen.node.metadata.name };
  const reasons = [...counts].map(([reason, count]) => `${count} ${reason}`).sort();
  return { kind: "unschedulable", message: `0/${total} nodes are available: ${reasons.join(", ")}.` };
}

interface Checks {
  readonly needs: PodNeeds;
  readonly affinity: PodAffinityCheck;
  readonly spread: TopologySpreadCheck;
  readonly nodeProblem: (node: NodeObject) => string | undefined;
}

const UNSCHEDULABLE = { key: "node.kubernetes.io/unschedulable", effect: "NoSchedule" } as const;

function problemsOf(info: NodeInfo, { needs, affinity, spread, nodeProblem }: Checks): readonly string[] {
  const { node } = info;
  const { spec } = needs.pod;
  const tolerations = spec.tolerations ?? [];
  if (node.spec?.unschedulable === true && !tolerations.some((each) => tolerates(each, UNSCHEDULABLE))) {
    return ["node(s) were unschedulable"];
  }
  const taint = untoleratedTaint(node.spec?.taints ?? [], tolerations, ["NoSchedule", "NoExecute"]);
  if (taint !== undefined) return [`node(s) had untolerated taint {${taint.key}: ${taint.value ?? ""}}`];
  if (!selectsNode(spec, node)) return ["node(s) didn't match Pod's node affinity/selector"];
  for (const { ports } of needs.ports.length === 0 ? [] : info.pods) {
    if (ports.some((taken) => needs.ports.some((port) => portsConflict(taken, port)))) {
      return ["node(s) didn't have free ports for the requested pod ports"];
    }
  }
  const insufficient = resourceProblems(info, needs);
  if (insufficient.length > 0) return insufficient;
  const problem = nodeProblem(node) ?? spread.problem(node) ?? affinity.problem(node);
  return problem === undefined ? [] : [problem];
}

const NANO = 1_000_000_000n;

/** Missing resources, in Kubernetes' order. */
export function resourceProblems(info: NodeInfo, { requests }: PodNeeds): readonly string[] {
  const problems: string[] = [];
  if (BigInt(info.podCount + 1) * NANO > info.allocatable("pods")) problems.push("Too many pods");
  for (const [name, wanted] of requests) {
    if (wanted > 0n && wanted > info.allocatable(name) - info.requested(name)) problems.push(`Insufficient ${name}`);
  }
  return problems;
}

/** Each score runs from 0 to this, then counts by its weight. */
const MAX_SCORE = 100;
const WEIGHTS = { taints: 3, nodeAffinity: 2, podAffinity: 2, leastRequested: 1, balanced: 1, image: 1 } as const;

function best(feasible: readonly NodeInfo[], checks: Checks, random: Random): NodeInfo | undefined {
  if (feasible.length < 2) return feasible[0];
  const { pod } = checks.needs;
  const taints = normalized(feasible, (info) => -avoidedTaints(info, pod));
  const nodes = normalized(feasible, ({ node }) => preferenceWeight(pod.spec, node));
  const pods = normalized(feasible, ({ node }) => checks.affinity.score(node));
  let top: NodeInfo[] = [];
  let topScore = -1;
  feasible.forEach((info, index) => {
    const usage = usageAfter(info, checks.needs);
    const score =
      WEIGHTS.taints * (taints[index] ?? 0) +
      WEIGHTS.nodeAffinity * (nodes[index] ?? 0) +
      WEIGHTS.podAffinity * (pods[index] ?? 0) +
      WEIGHTS.leastRequested * MAX_SCORE * (1 - (usage.cpu + usage.memory) / 2) +
      WEIGHTS.balanced * MAX_SCORE * (1 - Math.abs(usage.cpu - usage.memory) / 2) +
      WEIGHTS.image * (hasImages(info, pod) ? MAX_SCORE : 0);
    if (score > topScore) [top, topScore] = [[], score];
    if (score === topScore) top.push(info);
  });
  return top[Math.floor(random.next() * top.length)];
}

/** Scales the scores of these nodes from lowest to highest to 0 to MAX_SCORE; all alike: 0. */
function normalized(nodes: readonly NodeInfo[], raw: (info: NodeInfo) => number): readonly number[] {
  const values = nodes.map(raw);
  const low = values.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const high = values.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  return values.map((value) => (high === low ? 0 : (MAX_SCORE * (value - low)) / (high - low)));
}

const avoidedTaints = ({ node }: NodeInfo, pod: Pod): number =>
  (node.spec?.taints ?? []).filter(
    (taint) => untoleratedTaint([taint], pod.spec.tolerations ?? [], ["PreferNoSchedule"]) !== undefined,
  ).length;

/** Shares of what can be allocated, 0 to 1, with the pod on the node. */
function usageAfter(info: NodeInfo, { weighed }: PodNeeds): { readonly cpu: number; readonly memory: number } {
  const share = (resource: "cpu" | "memory"): number => {
    const allocatable = info.allocatable(resource);
    if (allocatable === 0n) return 1;
    return Math.min(1, Number(info.weighed[resource] + weighed[resource]) / Number(allocatable));
  };
  return { cpu: share("cpu"), memory: share("memory") };
}

function hasImages({ node }: NodeInfo, pod: Pod): boolean {
  const names = new Set((node.status?.images ?? []).flatMap((image) => image.names ?? []));
  return names.size > 0 && pod.spec.containers.every(({ image }) => names.has(image) || names.has(`${image}:latest`));
}
