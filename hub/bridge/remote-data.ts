/**
 * The objects that nodes receive besides pods and themselves: their resources, and how much of each is sent. Pure, as
 * `remote-object.ts`.
 */
import {
  CONFIG_MAPS,
  CSI_DRIVERS,
  type KubeObject,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
  RESOURCE_CLAIMS,
  type ResourceType,
  RUNTIME_CLASSES,
  SECRETS,
  VOLUME_ATTACHMENTS,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { attachmentName } from "@picolet/hub-core/volume-attachments.ts";
import { type ObjectKey, objectKey } from "@picolet/protocol/tunnel/messages.ts";
import { defined, type Fields, fieldsAt } from "./remote-object.ts";

export interface DataType {
  readonly type: ResourceType;
  /** The part of the object that a node receives. */
  readonly remote: (object: KubeObject) => Fields;
  /** The object's own references; a node that needs the one needs the others. */
  readonly names: (object: KubeObject) => readonly ObjectKey[];
  /** True when a hub whose role does not show it works on without it: an older role has no such rule. */
  readonly isOptional?: true;
}

const nothing = (): readonly ObjectKey[] => [];

/** Everything that pods name. */
export const DATA_TYPES: readonly DataType[] = [
  { type: SECRETS, remote: keyedData, names: nothing },
  { type: CONFIG_MAPS, remote: keyedData, names: nothing },
  { type: PERSISTENT_VOLUME_CLAIMS, remote: claim, names: volumeOf },
  { type: PERSISTENT_VOLUMES, remote: volume, names: driverObjects },
  { type: RUNTIME_CLASSES, remote: runtimeClass, names: nothing },
  { type: CSI_DRIVERS, remote: csiDriver, names: nothing, isOptional: true },
  { type: VOLUME_ATTACHMENTS, remote: volumeAttachment, names: nothing, isOptional: true },
  { type: RESOURCE_CLAIMS, remote: resourceClaim, names: nothing, isOptional: true },
];

/** Content alone: a Secret that was deleted and created again with the same content changes nothing for a node. */
function keyedData(object: KubeObject): Fields {
  const { name, namespace } = object.metadata;
  const { kind, data, binaryData, type } = object;
  return defined({ apiVersion: "v1", kind, metadata: { name, namespace }, type, data, binaryData });
}

/**
 * A pod waits for its claim to be bound, refuses one that is being deleted, or that was made for another pod. The node
 * expands a volume that is larger than the capacity in the status.
 */
function claim({ metadata, spec, status }: KubeObject): Fields {
  const { name, namespace, uid, deletionTimestamp, ownerReferences } = metadata;
  const { phase, capacity } = fieldsAt({ status }, "status");
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: defined({ name, namespace, uid, deletionTimestamp, ownerReferences }),
    spec: spec ?? {},
    status: defined({ phase, capacity }),
  };
}

/** The Node authorizer shows a volume to the nodes of the pods whose claim is bound to it. */
function volumeOf(object: KubeObject): readonly ObjectKey[] {
  const { volumeName } = fieldsAt(object, "spec");
  const isBound = fieldsAt(object, "status").phase === "Bound";
  return isBound && typeof volumeName === "string" && volumeName !== ""
    ? [objectKey("PersistentVolume", "", volumeName)]
    : [];
}

/** Those that say how a volume is mounted; the others are bookkeeping of controllers. */
const VOLUME_ANNOTATIONS: readonly string[] = ["pv.beta.kubernetes.io/gid", "volume.beta.kubernetes.io/mount-options"];

function volume({ metadata, spec }: KubeObject): Fields {
  const { name, uid, annotations = {} } = metadata;
  const told = Object.entries(annotations).filter(([key]) => VOLUME_ANNOTATIONS.includes(key));
  const { claimRef, ...others } = fieldsAt({ spec }, "spec");
  // The version that the claim had when it was bound is not used.
  const { resourceVersion: _, ...claimed } = fieldsAt({ claimRef }, "claimRef");
  return {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: defined({ name, uid, annotations: told.length === 0 ? undefined : Object.fromEntries(told) }),
    spec: claimRef === undefined ? others : { ...others, claimRef: claimed },
  };
}

/** Secrets that a node's part of a CSI driver gets, and the driver's own object. */
const NODE_SECRETS = ["nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"];

function driverObjects(object: KubeObject): readonly ObjectKey[] {
  const source = fieldsAt(fieldsAt(object, "spec"), "csi");
  if (typeof source.driver !== "string" || source.driver === "") return [];
  const secrets = NODE_SECRETS.flatMap((field) => {
    const { name, namespace } = fieldsAt(source, field);
    return typeof name === "string" && typeof namespace === "string" ? [objectKey("Secret", namespace, name)] : [];
  });
  return [objectKey("CSIDriver", "", source.driver), ...secrets];
}

/** The attachment of a CSI volume to a node, by the name that the attach/detach controller gives it. */
export function attachmentKey(volume: Fields, node: string): ObjectKey | undefined {
  const { driver, volumeHandle } = fieldsAt(fieldsAt(volume, "spec"), "csi");
  if (typeof driver !== "string" || typeof volumeHandle !== "string") return undefined;
  return objectKey("VolumeAttachment", "", attachmentName(driver, volumeHandle, node));
}

function csiDriver({ metadata: { name }, spec }: KubeObject): Fields {
  return { apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", metadata: { name }, spec: spec ?? {} };
}

function volumeAttachment({ metadata, status }: KubeObject): Fields {
  const { name, deletionTimestamp } = metadata;
  const { attached, attachmentMetadata, attachError } = fieldsAt({ status }, "status");
  return {
    apiVersion: "storage.k8s.io/v1",
    kind: "VolumeAttachment",
    metadata: defined({ name, deletionTimestamp }),
    status: defined({ attached, attachmentMetadata, attachError }),
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
