/** Kubernetes objects as the controllers read them: the fields they act upon, of what the API server has validated. */

import type { KubeMetadata, KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { SelectorRequirement } from "@picolet/protocol/kubernetes/selector-requirement.ts";
import type { Pod, Toleration } from "@picolet/protocol/pod/pod.ts";

export type TaintEffect = "NoSchedule" | "PreferNoSchedule" | "NoExecute";

export interface Taint {
  readonly key: string;
  readonly value?: string;
  readonly effect: TaintEffect;
  readonly timeAdded?: string;
}

export interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
  readonly lastTransitionTime?: string;
  readonly lastHeartbeatTime?: string;
}

export interface NodeObject extends KubeObject {
  readonly spec?: {
    readonly unschedulable?: boolean;
    readonly taints?: readonly Taint[];
    readonly [field: string]: unknown;
  };
  readonly status?: {
    readonly capacity?: Readonly<Record<string, string>>;
    readonly allocatable?: Readonly<Record<string, string>>;
    readonly conditions?: readonly Condition[];
    readonly images?: readonly { readonly names?: readonly string[]; readonly sizeBytes?: number }[];
    readonly [field: string]: unknown;
  };
}

export interface LabelSelector {
  readonly matchLabels?: Readonly<Record<string, string>> | undefined;
  readonly matchExpressions?: readonly SelectorRequirement[] | undefined;
}

export type OwnerReference = NonNullable<KubeMetadata["ownerReferences"]>[number];

/** A stored pod is a parsed pod: the API server has defaulted and validated it. */
export const podOf = (object: KubeObject): Pod => object as unknown as Pod;
export const nodeOf = (object: KubeObject): NodeObject => object as NodeObject;

/** The owner that decides over it; at most one may. */
export const controllerOf = (metadata: Pick<KubeMetadata, "ownerReferences">): OwnerReference | undefined =>
  metadata.ownerReferences?.find((owner) => owner.controller === true);

export const hasEnded = (pod: Pod): boolean => pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";

export const conditionOf = (conditions: readonly Condition[] | undefined, type: string): Condition | undefined =>
  conditions?.find((each) => each.type === type);

export const isPodReady = (pod: Pod): boolean =>
  pod.status?.conditions?.some((each) => each.type === "Ready" && each.status === "True") ?? false;

/** Its agent is not heard of: what is asked of it is done when it is back. One that has never reported is not away. */
export const isAway = ({ status }: NodeObject): boolean =>
  conditionOf(status?.conditions, "Ready")?.status === "Unknown";

/** k8s.io/api/core/v1 `Toleration.ToleratesTaint`. */
export function tolerates(toleration: Toleration, taint: Pick<Taint, "key" | "value" | "effect">): boolean {
  if ((toleration.effect ?? "") !== "" && toleration.effect !== taint.effect) return false;
  if ((toleration.key ?? "") !== "" && toleration.key !== taint.key) return false;
  if (toleration.operator === "Exists") return true;
  return (toleration.value ?? "") === (taint.value ?? "");
}

/** The first of the taints with one of `effects` that nothing in `tolerations` tolerates. */
export const untoleratedTaint = (
  taints: readonly Taint[],
  tolerations: readonly Toleration[],
  effects: readonly TaintEffect[],
): Taint | undefined =>
  taints.find(
    (taint) => effects.includes(taint.effect) && !tolerations.some((toleration) => tolerates(toleration, taint)),
  );
