/** Makes what a Node object gets from its node, in the kubelet's shape. Pure. */
import type { NodeReportContent } from "@picolet/protocol/tunnel/messages.ts";
import { KUBERNETES_VERSION, VERSION } from "@picolet/protocol/version.ts";
import type { ImageInfo, RuntimeStatus } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type Machine, type NodeCapacity, nodeInfo } from "./machine.ts";
import type { NodeCondition } from "./node-conditions.ts";

export interface NodeReportInit {
  readonly nodeName: string;
  /** `registerNode` */
  readonly register: boolean;
  /** Beside those that the node gives itself; they win over them where Kubernetes lets a node set them. */
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: NodeReportContent["taints"];
  readonly providerID: string;
  /** -1: all. */
  readonly maxImages: number;
  readonly machine: Machine;
  readonly capacity: NodeCapacity;
  /** The part of `capacity` that pods may use together. */
  readonly allocatable: Readonly<Record<string, string>>;
}

/** The node's CSI drivers and volumes. */
export interface CsiState {
  /** JSON of `CsiDriverReport`s; undefined: none has registered. */
  readonly drivers: string | undefined;
  /** Attached volumes in use; undefined: not known yet. */
  readonly volumesInUse: readonly string[] | undefined;
  /** JSON of `ExpandedClaim`s; undefined: there are none. */
  readonly expandedClaims: string | undefined;
}

export interface NodeReportView {
  readonly conditions: readonly NodeCondition[];
  /** JSON of an `UpdateReport`; undefined: nothing is reported. */
  readonly updates?: string | undefined;
  readonly csi?: CsiState | undefined;
  /** JSON of the DRA drivers whose ResourceSlices stay; undefined: not known yet. */
  readonly draDrivers?: string | undefined;
  /** As the Node's annotation shows them; undefined: not known yet. */
  readonly devices?: string | undefined;
  /** The node's own, IPv4 first. */
  readonly addresses: readonly string[];
  /** The status of the runtimes that have answered, that of containers first. */
  readonly runtimes: readonly RuntimeStatus[];
  readonly images: readonly ImageInfo[];
}

/** As the kubelet names an image in a Node's status. */
const MAX_NAMES_OF_IMAGE = 5;
/** The API's version that the node speaks; Kubernetes refuses to schedule by nothing of it, tools show it. */
const KUBELET_VERSION = `v${KUBERNETES_VERSION}.0-picolet.${VERSION}`;

export function nodeReport(init: NodeReportInit, view: NodeReportView): NodeReportContent {
  const { nodeName, register, taints, providerID, machine, capacity, allocatable, maxImages } = init;
  return {
    register,
    labels: { ...ownLabels(nodeName, machine), ...init.labels },
    taints,
    providerID,
    ...(view.updates === undefined ? {} : { updates: view.updates }),
    ...(view.csi?.drivers === undefined ? {} : { csi: view.csi.drivers }),
    ...(view.csi?.expandedClaims === undefined ? {} : { expandedClaims: view.csi.expandedClaims }),
    ...(view.draDrivers === undefined ? {} : { draDrivers: view.draDrivers }),
    ...(view.devices === undefined ? {} : { devices: view.devices }),
    status: {
      capacity,
      allocatable,
      conditions: view.conditions,
      addresses: [
        ...view.addresses.map((address) => ({ type: "InternalIP", address })),
        { type: "Hostname", address: nodeName },
      ],
      nodeInfo: nodeInfo(machine, KUBELET_VERSION, view.runtimes),
      images: imagesOf(view.images, maxImages),
      ...(view.csi?.volumesInUse === undefined ? {} : { volumesInUse: view.csi.volumesInUse }),
    },
  };
}

/** Keeps pods off the node until a cloud controller manager has seen it (k8s.io/cloud-provider/api). */
const UNINITIALIZED = { key: "node.cloudprovider.kubernetes.io/uninitialized", value: "true", effect: "NoSchedule" };

interface RegistrationSettings {
  readonly registerWithTaints: readonly {
    readonly key: string;
    readonly value?: string | undefined;
    readonly effect: string;
  }[];
  /** "external", or "" for none. */
  readonly cloudProvider: string;
}

/** @returns the taints of a new Node, with the kubelet's for one that a cloud controller manager has to initialise */
export function taintsAtRegistration(settings: RegistrationSettings): NodeReportContent["taints"] {
  const given = settings.registerWithTaints.map(({ key, value = "", effect }) => ({ key, value, effect }));
  const isGiven = given.some(({ key }) => key === UNINITIALIZED.key);
  return settings.cloudProvider === "external" && !isGiven ? [...given, UNINITIALIZED] : given;
}

/** Kubernetes' well-known labels that every kubelet gives its node. */
export function ownLabels(nodeName: string, { architecture }: Machine): Readonly<Record<string, string>> {
  return {
    "kubernetes.io/hostname": nodeName,
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": architecture,
    "beta.kubernetes.io/os": "linux",
    "beta.kubernetes.io/arch": architecture,
  };
}

/** The largest first: these are what a scheduler would spare a node from pulling. */
function imagesOf(
  images: readonly ImageInfo[],
  most: number,
): readonly { names: readonly string[]; sizeBytes: number }[] {
  const bySize = [...images].sort((a, b) => b.sizeBytes - a.sizeBytes || (a.id < b.id ? -1 : 1));
  return (most < 0 ? bySize : bySize.slice(0, most)).map(({ digests, tags, sizeBytes }) => ({
    names: [...digests, ...tags].slice(0, MAX_NAMES_OF_IMAGE),
    sizeBytes,
  }));
}
