/** Objects of Kubernetes cut down to what a node is sent. Pure, so that every replica comes to the same hash. */

import { TURN_ANNOTATION_PREFIX, WHY_ANNOTATION } from "@picolet/hub-core/fleet.ts";
import type { KubeMetadata, KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { MIRROR_ANNOTATION } from "@picolet/hub-core/pod-references.ts";
import { isNodeCondition } from "@picolet/protocol/pod/condition-owners.ts";
import { UPDATE_STATUS_ANNOTATION } from "@picolet/protocol/updates/node-updates.ts";
import { BOARD_ADDRESSES_ANNOTATION, CONFIG_HASH_ANNOTATION, REPORT_ANNOTATION } from "./well-known.ts";

export type Fields = Readonly<Record<string, unknown>>;

export interface PodCondition extends Fields {
  readonly type: string;
  readonly status: string;
}

/** The scheduler's, or of a static pod the node's. Of no use to a node, which has the pod because it was scheduled. */
export const SCHEDULED = "PodScheduled";

export const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export const fieldsAt = (object: Fields | undefined, field: string): Fields => {
  const value = object?.[field];
  return isFields(value) ? value : {};
};

export function conditionsOf(status: unknown): readonly PodCondition[] {
  const found = isFields(status) ? status.conditions : undefined;
  if (!Array.isArray(found)) return [];
  return found.filter((each): each is PodCondition => isFields(each) && typeof each.type === "string");
}

/**
 * A pod as its node gets it: without its status, but with the conditions that others set (readiness gates).
 * @param tolerations those that it is to have, where they are not its own yet
 */
export function remotePod(pod: KubeObject, tolerations?: readonly Fields[]): Fields {
  const others = conditionsOf(pod.status)
    .filter((each) => !isNodeCondition(each) && each.type !== SCHEDULED)
    .map(({ type, status, reason, message }) => defined({ type, status, reason, message }))
    .sort((a, b) => (String(a.type) < String(b.type) ? -1 : 1));
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: metadataOf(pod.metadata),
    spec: tolerations === undefined ? (pod.spec ?? {}) : { ...fieldsAt(pod, "spec"), tolerations },
    ...(others.length === 0 ? {} : { status: { conditions: others } }),
  };
}

const metadataOf = (metadata: KubeMetadata): Fields =>
  defined({
    name: metadata.name,
    namespace: metadata.namespace,
    uid: metadata.uid,
    generation: metadata.generation,
    creationTimestamp: metadata.creationTimestamp,
    deletionTimestamp: metadata.deletionTimestamp,
    deletionGracePeriodSeconds: metadata.deletionGracePeriodSeconds,
    labels: metadata.labels,
    annotations: sentAnnotations(metadata),
    ownerReferences: metadata.ownerReferences,
  });

/** A question and its answer change nothing for the node. */
function sentAnnotations({ annotations }: KubeMetadata): KubeMetadata["annotations"] {
  if (annotations?.[WHY_ANNOTATION] === undefined) return annotations;
  const { [WHY_ANNOTATION]: _why, ...rest } = annotations;
  return Object.keys(rest).length === 0 ? undefined : rest;
}

/**
 * Labels, annotations and spec, without what the hub itself writes there and what changes with the node's health. Of
 * the status only which volumes are attached, and that the node was heard to use them: without both none is mounted.
 */
export function remoteNode(node: KubeObject): Fields {
  const { name, uid, labels, annotations = {}, creationTimestamp } = node.metadata;
  const {
    [REPORT_ANNOTATION]: _report,
    [BOARD_ADDRESSES_ANNOTATION]: _addresses,
    [UPDATE_STATUS_ANNOTATION]: _updates,
    ...rest
  } = annotations;
  const { volumesAttached, volumesInUse } = fieldsAt(node, "status");
  const isSome = (list: unknown): boolean => Array.isArray(list) && list.length > 0;
  const status = defined({
    volumesAttached: isSome(volumesAttached) ? volumesAttached : undefined,
    volumesInUse: isSome(volumesInUse) ? volumesInUse : undefined,
  });
  const others = Object.fromEntries(Object.entries(rest).filter(([key]) => !key.startsWith(TURN_ANNOTATION_PREFIX)));
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: defined({ name, uid, labels, annotations: others, creationTimestamp }),
    spec: fieldsAt(node, "spec"),
    ...(Object.keys(status).length === 0 ? {} : { status }),
  };
}

/** The static pod's UID of a mirror pod; undefined for every other pod. */
export const mirroredUid = ({ annotations }: KubeMetadata): string | undefined =>
  annotations?.[MIRROR_ANNOTATION] === undefined
    ? undefined
    : (annotations[CONFIG_HASH_ANNOTATION] ?? annotations[MIRROR_ANNOTATION]);

/**
 * True when Ready is False although it should not be. The node lifecycle controller sets it for all pods of a node that
 * is away, and the node, for which nothing has changed, reports nothing.
 */
export function hasLostReadiness(pod: KubeObject): boolean {
  const { status } = pod;
  if (fieldsAt(pod, "status").phase !== "Running" || pod.metadata.deletionTimestamp !== undefined) return false;
  const conditions = conditionsOf(status);
  const isTrue = (type: string): boolean => conditions.some((each) => each.type === type && each.status === "True");
  const ready = conditions.find(({ type }) => type === "Ready");
  if (ready?.status !== "False" || (ready.reason ?? "") !== "" || !isTrue("ContainersReady")) return false;
  const gates = fieldsAt(pod, "spec").readinessGates;
  return (Array.isArray(gates) ? gates : []).every((gate: unknown) =>
    isTrue(String(fieldsAt({ gate }, "gate").conditionType)),
  );
}

export const isScheduled = (status: unknown): boolean =>
  conditionsOf(status).some(({ type, status }) => type === SCHEDULED && status === "True");

export function defined(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
