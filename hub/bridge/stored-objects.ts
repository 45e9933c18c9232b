/** Pods and nodes as the hub caches them: as JSON text, which takes a third of the memory of the objects themselves. */

import { isIP } from "node:net";
import { TURN_ANNOTATION_PREFIX, WHY_ANNOTATION, WHY_QUESTION } from "@picolet/hub-core/fleet.ts";
import type { KubeMetadata, KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { CachedObject } from "@picolet/hub-core/kube-client/reflector.ts";
import { grantedReferences } from "@picolet/hub-core/pod-references.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import { nodePodStatus } from "@picolet/protocol/pod/node-pod-status.ts";
import { objectHash } from "@picolet/protocol/tunnel/digest.ts";
import { type ObjectHash, type ObjectKey, objectKey, type RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import { UPDATE_STATUS_ANNOTATION } from "@picolet/protocol/updates/node-updates.ts";
import { awayTolerations, isEvictedWhenAway } from "./away-tolerations.ts";
import { DATA_TYPES } from "./remote-data.ts";
import {
  conditionsOf,
  type Fields,
  fieldsAt,
  hasLostReadiness,
  isFields,
  isScheduled,
  mirroredUid,
  remoteNode,
  remotePod,
} from "./remote-object.ts";
import { BOARD_ADDRESSES_ANNOTATION, HUB_LABEL, REPORT_ANNOTATION } from "./well-known.ts";

/** An object as it is sent to nodes; its hash is made when it is first asked for. */
export class PackedObject {
  readonly key: ObjectKey;
  readonly #json: string;
  #hash: ObjectHash | undefined;

  constructor(key: ObjectKey, object: Fields) {
    this.key = key;
    this.#json = JSON.stringify(object);
  }

  get hash(): ObjectHash {
    // A copy: what comes from there is a view of a larger buffer.
    this.#hash ??= new Uint8Array(objectHash(sha256, JSON.parse(this.#json)));
    return this.#hash;
  }

  get object(): Fields {
    return JSON.parse(this.#json) as Fields;
  }

  /** The same content, which takes no hash to see. */
  isEqual(other: PackedObject | undefined): boolean {
    return other !== undefined && this.#json === other.#json;
  }

  remote(): RemoteObject {
    return { key: this.key, hash: this.hash, object: this.object };
  }
}

/** A pod on a node that is not ours: just enough to find it should the node become ours. */
export interface PodStub extends CachedObject {
  readonly kind: "stub";
  readonly uid: string;
  readonly node: string;
}

export interface WholePod extends CachedObject {
  readonly kind: "whole";
  readonly uid: string;
  readonly node: string;
  readonly packed: PackedObject;
  /** JSON of the status as the node wrote it. */
  readonly status: string;
  readonly namespace: string;
  readonly references: readonly ObjectKey[];
  /** Its containers receive the services of its namespace as variables. */
  readonly hasServiceLinks: boolean;
  /** The static pod's UID, of a mirror pod. */
  readonly mirrorOf: string | undefined;
  readonly isDeleted: boolean;
  /** Its deletion is over for the node; finalizers of others keep it. */
  readonly isOver: boolean;
  readonly isReadyLost: boolean;
  /** PodScheduled is True, which `status` leaves out. */
  readonly isScheduled: boolean;
  /** The tolerations that keep it while its node is away; undefined when it has them, or asks for eviction. */
  readonly lackingTolerations: readonly Fields[] | undefined;
  /** An annotation asks why the pod is as it is. */
  readonly asksWhy: boolean;
}

export type StoredPod = PodStub | WholePod;

const NONE: readonly ObjectKey[] = [];
const TERMINAL: ReadonlySet<unknown> = new Set(["Succeeded", "Failed"]);

export function nodeOf(pod: KubeObject): string {
  const node = fieldsAt(pod, "spec").nodeName;
  return typeof node === "string" ? node : "";
}

export function stubOf({ metadata }: KubeObject, node: string): PodStub {
  return { kind: "stub", resourceVersion: metadata.resourceVersion ?? "", uid: metadata.uid ?? "", node };
}

/** Bounds memory against a hostile manifest; real pods name about ten objects. Those beyond it are not sent. */
const MAX_REFERENCES = 1024;
const NAMESPACED: ReadonlyMap<string, boolean> = new Map(DATA_TYPES.map(({ type }) => [type.kind, type.namespaced]));

/** Keys of the objects that the pod's node is sent because of it, sorted, each once. None for a mirror pod. */
export function sentReferences(pod: KubeObject): readonly ObjectKey[] {
  const keys = grantedReferences(pod).flatMap(({ kind, name }) => {
    const isNamespaced = NAMESPACED.get(kind);
    if (isNamespaced === undefined) return [];
    return [objectKey(kind, isNamespaced ? (pod.metadata.namespace ?? "") : "", name)];
  });
  return [...new Set(keys)].sort().slice(0, MAX_REFERENCES);
}

export function wholePod(pod: KubeObject): WholePod {
  const { metadata } = pod;
  const namespace = metadata.namespace ?? "";
  const references = sentReferences(pod);
  const mirrorOf = mirroredUid(metadata);
  const isDeleted = metadata.deletionTimestamp !== undefined;
  const isTerminal = TERMINAL.has(fieldsAt(pod, "status").phase);
  const lacking = mirrorOf === undefined && !isEvictedWhenAway(pod) ? awayTolerations(pod) : undefined;
  return {
    kind: "whole",
    resourceVersion: metadata.resourceVersion ?? "",
    uid: metadata.uid ?? "",
    node: nodeOf(pod),
    packed: new PackedObject(objectKey("Pod", namespace, metadata.name), remotePod(pod, lacking)),
    status: JSON.stringify(nodePodStatus(pod.status)),
    namespace,
    references: references.length === 0 ? NONE : references,
    hasServiceLinks: fieldsAt(pod, "spec").enableServiceLinks !== false,
    mirrorOf,
    isDeleted,
    isOver: isDeleted && isTerminal && metadata.deletionGracePeriodSeconds === 0,
    isReadyLost: hasLostReadiness(pod),
    isScheduled: isScheduled(pod.status),
    lackingTolerations: isDeleted || isTerminal ? undefined : lacking,
    asksWhy: metadata.annotations?.[WHY_ANNOTATION] === WHY_QUESTION,
  };
}

export interface StoredNode extends CachedObject {
  readonly uid: string;
  /** The cached object of a node of this hub; undefined for others. */
  readonly packed: PackedObject | undefined;
  /** As the annotation has it. */
  readonly report: string | undefined;
  /** The annotations that the Node's board is not sent: what it reports of its updates, and its turns in rollouts. */
  readonly updates: Readonly<Record<string, string>>;
  /** `Ready=True,DiskPressure=False`, in the order of the types. */
  readonly conditions: string;
  /** The agent's version. */
  readonly version: string;
  /** The stored address of its kubelet: `10.0.0.1:10350`. */
  readonly endpoint: string;
  readonly evictsWhenAway: boolean;
  /** `addressKey` of each, with spaces between: a board's own addresses, or those in the status of another node. */
  readonly addresses: string;
}

/** @param isConnected a connected node is cached whole, with any label */
export function storedNode(node: KubeObject, hub: string, isConnected: boolean): StoredNode {
  const { metadata } = node;
  const isOurs = isConnected || metadata.labels?.[HUB_LABEL] === hub;
  return {
    resourceVersion: metadata.resourceVersion ?? "",
    uid: metadata.uid ?? "",
    packed: isOurs ? new PackedObject(objectKey("Node", "", metadata.name), remoteNode(node)) : undefined,
    report: isOurs ? metadata.annotations?.[REPORT_ANNOTATION] : undefined,
    updates: isOurs ? updateAnnotationsOf(metadata.annotations) : NO_UPDATES,
    conditions: isOurs ? conditionsText(node.status) : "",
    version: isOurs ? versionText(fieldsAt(node, "status")) : "",
    endpoint: isOurs ? endpointText(fieldsAt(node, "status")) : "",
    evictsWhenAway: isEvictedWhenAway(node),
    addresses: addressesOf(node),
  };
}

/** The address in hexadecimal digits, 8 or 32. Two spellings of one address are equal. */
export const addressKey = (address: string): string => Buffer.from(addressBytes(address)).toString("hex");

/** A machine has one or two; bounds memory against a Node with thousands. */
const MAX_KEPT_ADDRESSES = 8;

/** A board's addresses are in an annotation, because those of its status are the hub's. */
function addressesOf(node: KubeObject): string {
  const reported = node.metadata.annotations?.[BOARD_ADDRESSES_ANNOTATION];
  const list: unknown = reported === undefined ? fieldsAt(node, "status").addresses : parsedOrUndefined(reported);
  if (!Array.isArray(list)) return "";
  return list
    .slice(0, 4 * MAX_KEPT_ADDRESSES)
    .flatMap((each: unknown) => (isFields(each) && typeof each.address === "string" ? [each.address] : []))
    .filter((address) => isIP(address) !== 0)
    .slice(0, MAX_KEPT_ADDRESSES)
    .map(addressKey)
    .join(" ");
}

function parsedOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const NO_UPDATES: StoredNode["updates"] = {};

function updateAnnotationsOf(annotations: KubeMetadata["annotations"] = {}): StoredNode["updates"] {
  const found = Object.entries(annotations).filter(
    ([name]) => name === UPDATE_STATUS_ANNOTATION || name.startsWith(TURN_ANNOTATION_PREFIX),
  );
  return found.length === 0 ? NO_UPDATES : Object.fromEntries(found);
}

function versionText(status: Fields): string {
  const { kubeletVersion } = fieldsAt(status, "nodeInfo");
  return typeof kubeletVersion === "string" ? kubeletVersion : "";
}

/** Address and port of the kubelet in a Node's status. */
export function endpointText(status: Fields): string {
  const { addresses } = status;
  const first: unknown = Array.isArray(addresses) ? addresses[0] : undefined;
  const { Port } = fieldsAt(fieldsAt(status, "daemonEndpoints"), "kubeletEndpoint");
  return `${isFields(first) ? first.address : ""}:${Port ?? ""}`;
}

/** The given types of conditions alone; all of them by default. */
export function conditionsText(status: unknown, types?: ReadonlySet<string>): string {
  return conditionsOf(status)
    .filter(({ type }) => types?.has(type) ?? true)
    .map(({ type, status: value }) => `${type}=${value}`)
    .sort()
    .join(",");
}
