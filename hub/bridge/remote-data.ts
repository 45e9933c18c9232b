/**
 * The objects that nodes receive besides pods and themselves: their resources, and how much of each is sent. Pure, as
 * `remote-object.ts`.
 */

import {
  CONFIG_MAPS,
  type KubeObject,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
  RESOURCE_CLAIMS,
  type ResourceType,
  RUNTIME_CLASSES,
  SECRETS,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { type ObjectKey, objectKey } from "@picolet/protocol/tunnel/messages.ts";
import { defined, type Fields, fieldsAt } from "./remote-object.ts";

export interface DataType {
  readonly type: ResourceType;
  /** The part of the object that a node receives. */
  readonly remote: (object: KubeObject) => Fields;
  /** The object's own reference; a node that needs the one needs the other. */
  readonly names: (object: KubeObject) => ObjectKey | undefined;
  /** True for a resource that an API server of an earlier version lacks; then nothing of it is sent. */
  readonly isOptional?: boolean;
}

const nothing = (): undefined => undefined;

/** Everything that pods name. */
export const DATA_TYPES: readonly DataType[] = [
  { type: SECRETS, remote: keyedData, names: nothing },
  { type: CONFIG_MAPS, remote: keyedData, names: nothing },
  { type: PERSISTENT_VOLUME_CLAIMS, remote: claim, names: volumeOf },
  { type: PERSISTENT_VOLUMES, remote: volume, names: nothing },
  { type: RUNTIME_CLASSES, remote: runtimeClass, names: nothing },
  { type: RESOURCE_CLAIMS, remote: resourceClaim, names: nothing, isOptional: true },
];

/** Content alone: a Secret that was deleted and created again with the same content changes nothing for a node. */
function keyedData(object: KubeObject): Fields {
  const { name, namespace } = object.metadata;
  const { kind, data, binaryData, type } = object;
  return defined({ apiVersion: "v1", kind, metadata: { name, namespace }, type, data, binaryData });
}

/** A pod waits for its claim to be bound, refuses one that is being deleted, or that was made for another pod. */
function claim({ metadata, spec, status }: KubeObject): Fields {
  const { name, namespace, uid, deletionTimestamp, ownerReferences } = metadata;
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: defined({ name, namespace, uid, deletionTimestamp, ownerReferences }),
    spec: spec ?? {},
    status: defined({ phase: fieldsAt({ status }, "status").phase }),
  };
}

/** The Node authorizer shows a volume to the nodes of the pods whose claim is bound to it. */
function volumeOf(object: KubeObject): ObjectKey | undefined {
  const { volumeName } = fieldsAt(object, "spec");
  const isBound = fieldsAt(object, "status").phase === "Bound";
  return isBound && typeof volumeName === "string" && volumeName !== ""
    ? objectKey("PersistentVolume", "", volumeName)
    : undefined;
}

/** Those that say how a volume is mounted; the others are bookkeeping of controllers. */
const VOLUME_ANNOTATIONS: readonly string[] = ["pv.beta.kubernetes.io/gid", "volume.beta.kubernetes.io/mount-options"];

function volume({ metadata, spec }: KubeObject): Fields {
  const { name, uid, annotations = {} } = metadata;
  const told = Object.entries(annotations).filter(([key]) => VOLUME_ANNOTATIONS.includes(key));
  const { claimRef, ...others } = fieldsAt({ spec }, "spec");
  // The version that the claim had when it was bound is of no use to anybody.
  const { resourceVersion: _, ...claimed } = fieldsAt({ claimRef }, "claimRef");
  return {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: defined({ name, uid, annotations: told.length === 0 ? undefined : Object.fromEntries(told) }),
    spec: claimRef === undefined ? others : { ...others, claimRef: claimed },
  };
}

function runtimeClass({ metadata: { name }, handler }: KubeObject): Fields {
  return { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name }, handler };
}

/** The resource claim controller's mark on a claim that it made of a template. */
const POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name";

/** A pod waits until its claim is allocated and reserved for it. What was asked for is the scheduler's affair. */
function resourceClaim({ metadata, status }: KubeObject): Fields {
  const { name, namespace, uid, ownerReferences, annotations = {} } = metadata;
  const podClaim = annotations[POD_CLAIM_ANNOTATION];
  const { allocation, reservedFor } = fieldsAt({ status }, "status");
  return {
    apiVersion: "resource.k8s.io/v1",
    kind: "ResourceClaim",
    metadata: defined({
      ...{ name, namespace, uid, ownerReferences },
      annotations: podClaim === undefined ? undefined : { [POD_CLAIM_ANNOTATION]: podClaim },
    }),
    status: defined({ allocation, reservedFor }),
  };
}

/** The fields of a service that containers' environment needs; undefined when it has no address of its own. */
export function remoteService({ metadata, spec }: KubeObject): Fields | undefined {
  const { name, namespace } = metadata;
  const { type, clusterIP, clusterIPs, ports } = fieldsAt({ spec }, "spec");
  if (typeof clusterIP !== "string" || clusterIP === "" || clusterIP === "None") return undefined;
  const told = (Array.isArray(ports) ? ports : []).map((port: unknown) => {
    const { name: portName, protocol, port: number } = fieldsAt({ port }, "port");
    return defined({ name: portName, protocol, port: number });
  });
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace },
    spec: defined({ type, clusterIP, clusterIPs, ports: told }),
  };
}
