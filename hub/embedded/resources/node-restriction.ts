/** Kubernetes' admission plugin NodeRestriction, for writes of pods and nodes. */
import { nodeOf } from "../auth/node-authorizer.ts";

import type { ApiObject, StrategyContext } from "../resource-definition.ts";
import { forbidden } from "../status-error.ts";
import { sameValue, textAt } from "./object-fields.ts";
import { MIRROR_ANNOTATION } from "./pod-admission.ts";

const POD = { group: "", plural: "pods" };
const NODE = { group: "", plural: "nodes" };

/** A node makes mirror pods of its own, and no others. */
export function restrictPodCreation(pod: ApiObject, context: StrategyContext): void {
  const node = nodeOf(context.user);
  if (node === undefined) return;
  const refuse = (why: string): never => {
    throw forbidden(POD, pod.metadata.name, why);
  };
  if (pod.metadata.annotations?.[MIRROR_ANNOTATION] === undefined) {
    refuse(`pod does not have "${MIRROR_ANNOTATION}" annotation, node "${node}" can only create mirror pods`);
  }
  if (textAt(pod, "spec", "nodeName") !== node) {
    refuse(`node "${node}" can only create pods with spec.nodeName set to itself`);
  }
  for (const owner of pod.metadata.ownerReferences ?? []) {
    if (owner.kind !== "Node" || owner.name !== node) {
      refuse(`node "${node}" can only create pods with an owner reference set to itself`);
    }
  }
}

export function restrictPodUpdate(old: ApiObject, context: StrategyContext): void {
  const node = nodeOf(context.user);
  if (node === undefined) return;
  const refuse = (why: string): never => {
    throw forbidden(POD, old.metadata.name, why);
  };
  if (context.subresource !== "status") refuse(`node "${node}" can only update pod status`);
  if (textAt(old, "spec", "nodeName") !== node) {
    refuse(`node "${node}" can only update pod status for pods with spec.nodeName set to itself`);
  }
}

const OWN_LABELS = new Set([
  "kubernetes.io/hostname",
  "kubernetes.io/arch",
  "kubernetes.io/os",
  "beta.kubernetes.io/arch",
  "beta.kubernetes.io/os",
  "beta.kubernetes.io/instance-type",
  "node.kubernetes.io/instance-type",
  "failure-domain.beta.kubernetes.io/region",
  "failure-domain.beta.kubernetes.io/zone",
  "topology.kubernetes.io/region",
  "topology.kubernetes.io/zone",
]);
const OWN_LABEL_DOMAINS = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/** Labels of Kubernetes' own domains that no node may give itself. */
function isForbiddenLabel(key: string): boolean {
  const domain = key.includes("/") ? key.slice(0, key.indexOf("/")) : "";
  const within = (parent: string): boolean => domain === parent || domain.endsWith(`.${parent}`);
  if (!within("kubernetes.io") && !within("k8s.io")) return false;
  if (OWN_LABELS.has(key)) return false;
  return within("node-restriction.kubernetes.io") || !OWN_LABEL_DOMAINS.some(within);
}

/** @param old undefined for a new node */
export function restrictNodeWrite(object: ApiObject, old: ApiObject | undefined, context: StrategyContext): void {
  const node = nodeOf(context.user);
  if (node === undefined) return;
  const refuse = (why: string): never => {
    throw forbidden(NODE, object.metadata.name, why);
  };
  if (object.metadata.name !== node) refuse(`node "${node}" is not allowed to modify node "${object.metadata.name}"`);
  const before = old?.metadata.labels ?? {};
  const after = object.metadata.labels ?? {};
  const changed = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (key) => before[key] !== after[key],
  );
  const forbiddenLabels = changed.filter(isForbiddenLabel).sort();
  if (forbiddenLabels.length > 0) {
    refuse(`is not allowed to modify labels: ${forbiddenLabels.join(", ")}`);
  }
  if (old !== undefined && !sameValue(taintsOf(old), taintsOf(object))) {
    refuse(`node "${node}" is not allowed to modify taints`);
  }
}

const taintsOf = (node: ApiObject): unknown => (node.spec as { taints?: unknown } | undefined)?.taints;
