/** DaemonSets and their pods as the controller reads and makes them. */

import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Pod, Toleration } from "@picolet/protocol/pod/pod.ts";
import {
  isPodReady,
  type LabelSelector,
  type NodeObject,
  type OwnerReference,
  untoleratedTaint,
} from "../../api/typed-objects.ts";
import { namedNode, selectsNode } from "../node-affinity.ts";

export type IntOrPercent = number | string;

export interface PodTemplate {
  readonly metadata?: {
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec: Pod["spec"];
}

export interface DaemonSet extends KubeObject {
  readonly spec: {
    readonly selector: LabelSelector;
    readonly template: PodTemplate;
    readonly minReadySeconds?: number;
    readonly revisionHistoryLimit?: number;
    readonly updateStrategy: {
      readonly type: "RollingUpdate" | "OnDelete";
      readonly rollingUpdate?: { readonly maxUnavailable?: IntOrPercent; readonly maxSurge?: IntOrPercent };
    };
  };
  readonly status?: DaemonSetStatus;
}

export interface DaemonSetStatus {
  readonly currentNumberScheduled: number;
  readonly numberMisscheduled: number;
  readonly desiredNumberScheduled: number;
  readonly numberReady: number;
  readonly observedGeneration?: number;
  readonly updatedNumberScheduled?: number;
  readonly numberAvailable?: number;
  readonly numberUnavailable?: number;
  readonly collisionCount?: number;
}

export const REVISION_LABEL = "controller-revision-hash";
const GENERATION_LABEL = "pod-template-generation";
const GENERATION_ANNOTATION = "deprecated.daemonset.template.generation";

/** Tolerations of a DaemonSet's pods, which stay through any state of their node (pkg/controller/daemon/util). */
const TOLERATED: readonly Toleration[] = [
  { key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute" },
  { key: "node.kubernetes.io/unreachable", operator: "Exists", effect: "NoExecute" },
  { key: "node.kubernetes.io/disk-pressure", operator: "Exists", effect: "NoSchedule" },
  { key: "node.kubernetes.io/memory-pressure", operator: "Exists", effect: "NoSchedule" },
  { key: "node.kubernetes.io/pid-pressure", operator: "Exists", effect: "NoSchedule" },
  { key: "node.kubernetes.io/unschedulable", operator: "Exists", effect: "NoSchedule" },
];
const TOLERATED_ON_HOST_NETWORK: Toleration = {
  key: "node.kubernetes.io/network-unavailable",
  operator: "Exists",
  effect: "NoSchedule",
};

function tolerationsOf(spec: Pod["spec"]): readonly Toleration[] {
  const own = spec.tolerations ?? [];
  const wanted = spec.hostNetwork === true ? [...TOLERATED, TOLERATED_ON_HOST_NETWORK] : TOLERATED;
  const isSame = (left: Toleration, right: Toleration): boolean =>
    left.key === right.key && left.effect === right.effect && left.operator === right.operator;
  return [...own.filter((each) => !wanted.some((one) => isSame(one, each))), ...wanted];
}

/** @param hash of the revision of the template */
export function daemonPod(set: DaemonSet, node: string, hash: string, name: string): Readonly<Record<string, unknown>> {
  const { template } = set.spec;
  const nameField = { key: "metadata.name", operator: "In", values: [node] };
  const required = { nodeSelectorTerms: [{ matchFields: [nameField] }] };
  const { affinity } = template.spec;
  const nodeAffinity = { ...affinity?.nodeAffinity, requiredDuringSchedulingIgnoredDuringExecution: required };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name,
      generateName: `${set.metadata.name}-`,
      namespace: set.metadata.namespace,
      labels: {
        ...template.metadata?.labels,
        [REVISION_LABEL]: hash,
        [GENERATION_LABEL]: set.metadata.annotations?.[GENERATION_ANNOTATION] ?? String(set.metadata.generation ?? 1),
      },
      ...(template.metadata?.annotations === undefined ? {} : { annotations: template.metadata.annotations }),
      ownerReferences: [ownerOf(set)],
    },
    spec: { ...template.spec, affinity: { ...affinity, nodeAffinity }, tolerations: tolerationsOf(template.spec) },
  };
}

export const ownerOf = ({ apiVersion, kind, metadata }: KubeObject): OwnerReference => ({
  apiVersion,
  kind,
  name: metadata.name,
  uid: metadata.uid ?? "",
  controller: true,
  blockOwnerDeletion: true,
});

/** The node that a pod is on, or is made for. */
export const targetNode = ({ spec }: Pod): string | undefined =>
  (spec.nodeName ?? "") === "" ? namedNode(spec) : spec.nodeName;

export interface Fit {
  readonly shouldRun: boolean;
  /** A taint that only keeps new pods away does not end those that are there. */
  readonly shouldContinue: boolean;
}

export function fitOn(set: DaemonSet, node: NodeObject): Fit {
  const { spec } = set.spec.template;
  const isNamed = (spec.nodeName ?? "") === "" || spec.nodeName === node.metadata.name;
  if (!isNamed || !selectsNode(spec, node)) return { shouldRun: false, shouldContinue: false };
  const taints = node.spec?.taints ?? [];
  const tolerations = tolerationsOf(spec);
  return {
    shouldRun: untoleratedTaint(taints, tolerations, ["NoSchedule", "NoExecute"]) === undefined,
    shouldContinue: untoleratedTaint(taints, tolerations, ["NoExecute"]) === undefined,
  };
}

/** Time until a pod counts as available: 0 when it does, undefined while it is not even ready. */
export function untilAvailableMs(pod: Pod, minReadySeconds: number, nowMs: number): number | undefined {
  if (!isPodReady(pod)) return undefined;
  if (minReadySeconds === 0) return 0;
  const since = pod.status?.conditions?.find(({ type }) => type === "Ready")?.lastTransitionTime;
  const readyAt = Date.parse(since ?? "");
  return Number.isNaN(readyAt) ? undefined : Math.max(0, readyAt + minReadySeconds * 1000 - nowMs);
}

/** A count or a percentage of `total`, rounded up. */
export function resolveCount(value: IntOrPercent | undefined, total: number): number {
  if (typeof value === "number") return value;
  const percent = /^(\d+)%$/.exec(value ?? "")?.[1];
  return percent === undefined ? 0 : Math.ceil((Number(percent) * total) / 100);
}
