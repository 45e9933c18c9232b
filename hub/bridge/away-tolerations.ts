/**
 * Keeps the pods of a node that is away. Kubernetes taints such a node `unreachable:NoExecute`, and evicts pods that do
 * not tolerate it after five minutes. A pod of an autonomous node continues to run there, so its eviction would make a
 * second one.
 */
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { MIRROR_ANNOTATION } from "@picolet/hub-core/pod-references.ts";
import { type Fields, fieldsAt, isFields } from "./remote-object.ts";
import { EVICT_WHEN_AWAY_ANNOTATION, HUB_LABEL } from "./well-known.ts";

const AWAY_TAINTS = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] as const;

/** True when the object asks for eviction while its node is away. @param object a Pod or a Node */
export const isEvictedWhenAway = (object: Pick<KubeObject, "metadata">): boolean =>
  object.metadata.annotations?.[EVICT_WHEN_AWAY_ANNOTATION] === "true";

/**
 * The pod's tolerations with those that it lacks; undefined when it lacks none. An update of a pod may add tolerations
 * and change `tolerationSeconds`, nothing else: five minutes that admission put in become for ever. The eviction goes
 * by the first toleration that fits a taint, so none with a time may stay in front.
 */
export function awayTolerations(pod: KubeObject): readonly Fields[] | undefined {
  const given = fieldsAt(pod, "spec").tolerations;
  const before = Array.isArray(given) ? given.filter(isFields) : [];
  const after = before.map((toleration) => (isTimed(toleration) ? forEver(toleration) : toleration));
  for (const key of AWAY_TAINTS) {
    if (!after.some((toleration) => fits(toleration, key))) {
      after.push({ key, operator: "Exists", effect: "NoExecute" });
    }
  }
  const isSame = after.length === before.length && after.every((each, index) => each === before[index]);
  return isSame ? undefined : after;
}

/**
 * The tolerations of a pod that is placed on `node`; undefined when they stay as they are. The embedded API server sets
 * them with the binding. Any other API server gets them by a patch, which is a new generation of the pod.
 */
export function boardTolerations(pod: KubeObject, node: KubeObject): readonly Fields[] | undefined {
  const isBoard = node.metadata.labels?.[HUB_LABEL] !== undefined;
  const isMirror = pod.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined;
  if (!isBoard || isMirror || isEvictedWhenAway(node) || isEvictedWhenAway(pod)) return undefined;
  return awayTolerations(pod);
}

const isTimed = (toleration: Fields): boolean =>
  typeof toleration.tolerationSeconds === "number" && AWAY_TAINTS.some((key) => fits(toleration, key));

function forEver(toleration: Fields): Fields {
  const { tolerationSeconds: _seconds, ...rest } = toleration;
  return rest;
}

/** As Kubernetes' `ToleratesTaint`, for a taint without a value. */
function fits({ key = "", operator = "Equal", value = "", effect = "" }: Fields, taint: string): boolean {
  if (effect !== "" && effect !== "NoExecute") return false;
  if (key !== "" && key !== taint) return false;
  return operator === "Exists" || (operator === "Equal" && key !== "" && value === "");
}
