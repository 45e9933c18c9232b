/** The hub's fields of a Node object: labels, addresses, status. Pure. */

import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { CONTROLLER_ATTACHES } from "@picolet/hub-core/volume-attachments.ts";
import { type CsiDriverReport, parseCsiReport } from "@picolet/protocol/tunnel/csi-report.ts";
import type { NodeReportContent } from "@picolet/protocol/tunnel/messages.ts";
import { UPDATE_STATUS_ANNOTATION } from "@picolet/protocol/updates/node-updates.ts";
import { packReport } from "./node-report-annotation.ts";
import { conditionsOf, defined, type Fields, fieldsAt, isFields } from "./remote-object.ts";
import { BOARD_ADDRESSES_ANNOTATION, DEVICES_ANNOTATION, HUB_LABEL, REPORT_ANNOTATION } from "./well-known.ts";

/** Labels that a kubelet keeps true on a Node that exists; all others are its node's at registration only. */
const KEPT_LABELS = [
  "kubernetes.io/hostname",
  "kubernetes.io/arch",
  "kubernetes.io/os",
  "beta.kubernetes.io/arch",
  "beta.kubernetes.io/os",
  "node.kubernetes.io/instance-type",
  "beta.kubernetes.io/instance-type",
  "topology.kubernetes.io/zone",
  "topology.kubernetes.io/region",
  "failure-domain.beta.kubernetes.io/zone",
  "failure-domain.beta.kubernetes.io/region",
] as const;
/** Domains of Kubernetes' in which NodeRestriction lets a node choose. */
const NODE_DOMAINS = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/** Address and port of a node's kubelet endpoint, which is the hub's. */
export interface Endpoint {
  readonly address: string;
  readonly port: number;
}

export interface NodeIdentityInit {
  readonly node: string;
  readonly hub: string;
}

/**
 * Labels that a node may give itself. One that NodeRestriction refuses would have the whole Node refused; the hub's own
 * label is not for the node to choose.
 */
export function allowedLabels(labels: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(labels).filter(([key]) => key !== HUB_LABEL && isAllowedLabel(key)));
}

function isAllowedLabel(key: string): boolean {
  const domain = key.includes("/") ? key.slice(0, key.indexOf("/")) : "";
  const within = (parent: string): boolean => domain === parent || domain.endsWith(`.${parent}`);
  if (within("node-restriction.kubernetes.io")) return false;
  if (!within("kubernetes.io") && !within("k8s.io")) return true;
  return (KEPT_LABELS as readonly string[]).includes(key) || NODE_DOMAINS.some(within);
}

/** A Node that is not there yet. Its status follows by `nodeStatusPatch`. */
export function newNode(report: NodeReportContent, { node, hub }: NodeIdentityInit): Fields {
  const { providerID, taints } = report;
  const spec = defined({
    providerID: providerID === "" ? undefined : providerID,
    taints: taints.length === 0 ? undefined : taints,
  });
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name: node,
      labels: { ...allowedLabels({ ...topologyOf(report), ...report.labels }), [HUB_LABEL]: hub },
      annotations: annotationsOf(report),
    },
    spec,
  };
}

/** The patch of an existing Node's metadata and spec; undefined when nothing changes. Taints are the cluster's. */
export function nodePatch(
  current: KubeObject,
  report: NodeReportContent,
  { hub }: NodeIdentityInit,
): Fields | undefined {
  const before = current.metadata.labels ?? {};
  const given = allowedLabels(report.labels);
  const labels: Record<string, string | null> = {};
  for (const key of KEPT_LABELS) {
    const label = given[key];
    if (label !== undefined && before[key] !== label) labels[key] = label;
  }
  for (const [key, label] of Object.entries(allowedLabels(topologyOf(report)))) {
    // The node's own labels are those above: no driver changes them.
    if (given[key] === undefined && before[key] !== label) labels[key] = label;
  }
  if (before[HUB_LABEL] !== hub) labels[HUB_LABEL] = hub;
  const annotations: Record<string, string | null> = {};
  for (const [key, value] of Object.entries(annotationsOf(report))) {
    if (current.metadata.annotations?.[key] !== value) annotations[key] = value;
  }
  // Not written as "" on each of a fleet's Nodes.
  const shown = current.metadata.annotations?.[DEVICES_ANNOTATION];
  if (report.devices === "" && shown !== undefined) annotations[DEVICES_ANNOTATION] = null;
  const isBound = typeof fieldsAt(current, "spec").providerID === "string";
  const providerID = report.providerID !== "" && !isBound ? report.providerID : undefined;
  const metadata = defined({
    labels: Object.keys(labels).length === 0 ? undefined : labels,
    annotations: Object.keys(annotations).length === 0 ? undefined : annotations,
  });
  if (Object.keys(metadata).length === 0 && providerID === undefined) return undefined;
  return {
    metadata: { uid: current.metadata.uid, ...metadata },
    ...(providerID === undefined ? {} : { spec: { providerID } }),
  };
}

const driversOf = (report: NodeReportContent): readonly CsiDriverReport[] => parseCsiReport(report.csi ?? "") ?? [];

/** Labels by which CSI drivers find their nodes. */
const topologyOf = (report: NodeReportContent): Readonly<Record<string, string>> =>
  Object.assign({}, ...driversOf(report).map(({ topology }) => topology));

/** The kubelet's annotation of each driver's ID of the node. */
const CSI_NODE_IDS = "csi.volume.kubernetes.io/nodeid";

const annotationsOf = (report: NodeReportContent): Readonly<Record<string, string>> => {
  const packed = packReport(report);
  const { addresses } = report.status;
  return {
    ...(packed === undefined ? {} : { [REPORT_ANNOTATION]: packed }),
    [CONTROLLER_ATTACHES]: "true",
    [BOARD_ADDRESSES_ANNOTATION]: JSON.stringify(Array.isArray(addresses) ? addresses : []),
    ...(report.updates === undefined ? {} : { [UPDATE_STATUS_ANNOTATION]: report.updates }),
    ...(report.devices === undefined || report.devices === "" ? {} : { [DEVICES_ANNOTATION]: report.devices }),
    ...(report.csi === undefined
      ? {}
      : {
          [CSI_NODE_IDS]: JSON.stringify(Object.fromEntries(driversOf(report).map((each) => [each.name, each.nodeID]))),
        }),
  };
};

/**
 * API servers dial the first address of the type that comes first in --kubelet-preferred-address-types: Hostname by
 * default, InternalIP as kubeadm sets it. So both lead to the hub, and a board's own addresses, which no client in the
 * cluster can reach, stand in an annotation.
 */
export function hubAddresses({ address }: Endpoint): readonly Fields[] {
  const isIp = /^[\d.]+$/.test(address) || address.includes(":");
  return isIp
    ? [
        { type: "InternalIP", address },
        { type: "Hostname", address },
      ]
    : [
        { type: "InternalDNS", address },
        { type: "Hostname", address },
      ];
}

/** Types that the hub never writes: a cloud controller manager's addresses. */
const OUTSIDE_TYPES: readonly unknown[] = ["ExternalIP", "ExternalDNS"];

function outsideAddresses({ addresses }: Fields): readonly unknown[] {
  return Array.isArray(addresses)
    ? addresses.filter((each) => isFields(each) && OUTSIDE_TYPES.includes(each.type))
    : [];
}

/**
 * Strategic merge patch of a Node's status. Conditions of others and addresses outside of the cluster stay; everything
 * else is the node's.
 */
export function nodeStatusPatch(current: Fields, report: NodeReportContent, endpoint: Endpoint, at: string): Fields {
  const { addresses: _addresses, conditions: _conditions, daemonEndpoints: _endpoints, ...rest } = report.status;
  const status: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(rest)) status[field] = replaced(fieldsAt(current, field), value);
  return {
    status: {
      ...status,
      conditions: conditionPatch(current, report, at),
      addresses: [{ $patch: "replace" }, ...hubAddresses(endpoint), ...outsideAddresses(current)],
      daemonEndpoints: { kubeletEndpoint: { Port: endpoint.port } },
    },
  };
}

/** A map replaces the one before: what it no longer has is taken out. Lists of a Node's status are replaced anyway. */
function replaced(before: Fields, value: unknown): unknown {
  if (!isFields(value)) return value;
  const gone = Object.keys(before).filter((key) => !(key in value));
  return { ...Object.fromEntries(gone.map((key) => [key, null])), ...value };
}

/**
 * The node's conditions with their heartbeat. A condition keeps the cluster's date of its transition while its status
 * stays, even if an agent that has restarted dates it otherwise. A new one and a change are dated by the node, which
 * knew of it earlier than we come to write it; by us where its clock cannot be right.
 */
export function conditionPatch(current: Fields, report: NodeReportContent, at: string): readonly Fields[] {
  const before = new Map(conditionsOf(current).map((each) => [each.type, each]));
  return conditionsOf(report.status).map((condition) => {
    const old = before.get(condition.type);
    const told = condition.lastTransitionTime ?? at;
    const known = old?.lastTransitionTime ?? told;
    const isChange = old !== undefined && old.status !== condition.status;
    // Times of the API are ordered as text is.
    const isPossible = String(told) >= String(known) && String(told) <= at;
    const since = !isChange ? known : isPossible ? told : at;
    return { ...condition, lastTransitionTime: since, lastHeartbeatTime: at };
  });
}

/** Finds who runs a Node. The hub takes over no Node of a real kubelet or of another hub. */
export function ownerOf(node: KubeObject): "nobody" | "hub" | "kubelet" {
  if (node.metadata.labels?.[HUB_LABEL] !== undefined) return "hub";
  const version = fieldsAt(fieldsAt(node, "status"), "nodeInfo").kubeletVersion;
  return typeof version === "string" && version !== "" && !version.includes("picolet") ? "kubelet" : "nobody";
}
