/**
 * Required affinity and anti-affinity between pods, and their preferred forms as a score
 * (pkg/scheduler/framework/plugins/interpodaffinity). Gathered once for a pod, then asked of each node.
 */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { selects } from "../../api/label-selector.ts";
import type { LabelSelector, NodeObject } from "../../api/typed-objects.ts";
import type { NodeInfo } from "./node-info.ts";

type PodAffinity = NonNullable<NonNullable<Pod["spec"]["affinity"]>["podAffinity"]>;
type Term = NonNullable<PodAffinity["requiredDuringSchedulingIgnoredDuringExecution"]>[number];

/** Labels of a namespace; undefined when there is none of that name. */
export type NamespaceLabels = (namespace: string) => Readonly<Record<string, string>> | undefined;

/** Counts of matching pods, by topology key and value. */
class TopologyCounts {
  readonly #counts = new Map<string, number>();

  add(node: NodeObject, topologyKey: string, count: number): void {
    const value = topologyOf(node, topologyKey);
    if (value === undefined) return;
    const key = `${topologyKey}\0${value}`;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + count);
  }

  at(node: NodeObject, topologyKey: string): number {
    const value = topologyOf(node, topologyKey);
    return value === undefined ? 0 : (this.#counts.get(`${topologyKey}\0${value}`) ?? 0);
  }

  get isEmpty(): boolean {
    return this.#counts.size === 0;
  }
}

export function topologyOf(node: NodeObject, topologyKey: string): string | undefined {
  const labels = node.metadata.labels ?? {};
  return Object.hasOwn(labels, topologyKey) ? labels[topologyKey] : undefined;
}

const requiredTerms = (affinity: PodAffinity | undefined): readonly Term[] =>
  affinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];

/** True when `term` of `owner` selects `candidate`. */
function isAbout(term: Term, owner: Pod, candidate: Pod, namespaceLabels: NamespaceLabels): boolean {
  const { namespaces = [], namespaceSelector } = term;
  const own = namespaces.length === 0 && namespaceSelector === undefined;
  const { namespace } = candidate.metadata;
  const inNamespace =
    (own && namespace === owner.metadata.namespace) ||
    namespaces.includes(namespace) ||
    (namespaceSelector !== undefined && selects(namespaceSelector, namespaceLabels(namespace)));
  return inNamespace && selects(selectorOf(term, owner), candidate.metadata.labels);
}

/** `matchLabelKeys` and `mismatchLabelKeys` add what the owner's own labels say. */
function selectorOf(
  { labelSelector, matchLabelKeys = [], mismatchLabelKeys = [] }: Term,
  owner: Pod,
): LabelSelector | undefined {
  if (labelSelector === undefined || matchLabelKeys.length + mismatchLabelKeys.length === 0) return labelSelector;
  const labels = owner.metadata.labels ?? {};
  const added = (keys: readonly string[], operator: string) =>
    keys.flatMap((key) => (labels[key] === undefined ? [] : [{ key, operator, values: [labels[key]] }]));
  const matchExpressions = [
    ...(labelSelector.matchExpressions ?? []),
    ...added(matchLabelKeys, "In"),
    ...added(mismatchLabelKeys, "NotIn"),
  ];
  return { ...labelSelector, matchExpressions };
}

const SCORED = ["podAffinity", "podAntiAffinity"] as const;

export class PodAffinityCheck {
  readonly #pod: Pod;
  readonly #affinity: readonly Term[];
  readonly #antiAffinity: readonly Term[];
  readonly #matching = new TopologyCounts();
  readonly #repelled = new TopologyCounts();
  readonly #repelling = new TopologyCounts();
  readonly #repellingKeys = new Set<string>();
  readonly #scores: { readonly key: string; readonly counts: TopologyCounts }[] = [];
  readonly #isFirstOfItsKind: boolean;

  constructor(pod: Pod, nodes: Iterable<NodeInfo>, namespaceLabels: NamespaceLabels) {
    this.#pod = pod;
    this.#affinity = requiredTerms(pod.spec.affinity?.podAffinity);
    this.#antiAffinity = requiredTerms(pod.spec.affinity?.podAntiAffinity);
    const about = (term: Term, owner: Pod, candidate: Pod) => isAbout(term, owner, candidate, namespaceLabels);
    const preferred = this.#preferredTerms();
    // A pod that wants nothing of others has only those to mind that keep it away: most often none at all.
    const isIndifferent = this.#affinity.length + this.#antiAffinity.length + preferred.length === 0;
    for (const info of nodes) {
      for (const { pod: other } of info.repelling) {
        for (const term of requiredTerms(other.spec.affinity?.podAntiAffinity)) {
          if (!about(term, other, pod)) continue;
          this.#repelling.add(info.node, term.topologyKey, 1);
          this.#repellingKeys.add(term.topologyKey);
        }
      }
      for (const { pod: other } of isIndifferent ? [] : info.pods) {
        if (this.#affinity.length > 0 && this.#affinity.every((term) => about(term, pod, other))) {
          for (const { topologyKey } of this.#affinity) this.#matching.add(info.node, topologyKey, 1);
        }
        for (const term of this.#antiAffinity) {
          if (about(term, pod, other)) this.#repelled.add(info.node, term.topologyKey, 1);
        }
        for (const { term, weight, counts } of preferred) {
          if (about(term, pod, other)) counts.add(info.node, term.topologyKey, weight);
        }
      }
    }
    this.#isFirstOfItsKind = this.#matching.isEmpty && this.#affinity.every((term) => about(term, pod, pod));
  }

  /** Why the pod may not be on this node; undefined when it may. */
  problem(node: NodeObject): string | undefined {
    if (!this.#affinityHolds(node)) return "node(s) didn't match pod affinity rules";
    if (this.#antiAffinity.some(({ topologyKey }) => this.#repelled.at(node, topologyKey) > 0)) {
      return "node(s) didn't match pod anti-affinity rules";
    }
    if ([...this.#repellingKeys].some((key) => this.#repelling.at(node, key) > 0)) {
      return "node(s) didn't satisfy existing pods anti-affinity rules";
    }
    return undefined;
  }

  /** The sum of the weights of preferred terms, once for each pod they are about; negative for anti-affinity. */
  score(node: NodeObject): number {
    return this.#scores.reduce((sum, { key, counts }) => sum + counts.at(node, key), 0);
  }

  /** The first pod of a group that wants to be together may go anywhere where there is such a topology. */
  #affinityHolds(node: NodeObject): boolean {
    if (!this.#affinity.every(({ topologyKey }) => topologyOf(node, topologyKey) !== undefined)) return false;
    return (
      this.#isFirstOfItsKind || this.#affinity.every(({ topologyKey }) => this.#matching.at(node, topologyKey) > 0)
    );
  }

  #preferredTerms(): { readonly term: Term; readonly weight: number; readonly counts: TopologyCounts }[] {
    return SCORED.flatMap((kind) => {
      const terms = this.#pod.spec.affinity?.[kind]?.preferredDuringSchedulingIgnoredDuringExecution ?? [];
      return terms.map(({ weight, podAffinityTerm: term }) => {
        const counts = new TopologyCounts();
        this.#scores.push({ key: term.topologyKey, counts });
        return { term, weight: kind === "podAffinity" ? weight : -weight, counts };
      });
    });
  }
}
