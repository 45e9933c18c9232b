/** Reads CSI volumes from pods and from objects of the API server. Pure. */
import { createHash } from "node:crypto";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { isLarger } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Pod, Volume } from "@picolet/protocol/pod/pod.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { ExpandedClaim } from "@picolet/protocol/tunnel/csi-report.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import type { CsiDriver } from "./csi-drivers.ts";
import { AccessMode, NodeCapability } from "./csi-messages.ts";

type Fields = Readonly<Record<string, unknown>>;
type Objects = Pick<ClusterObjects, "object">;

interface SecretReference {
  readonly namespace: string;
  readonly name: string;
}

/** A volume of a driver as a pod uses it. */
export interface CsiVolume {
  /** The persistent volume's name, or that of the pod's inline volume. It is the name of the folder too. */
  readonly specName: string;
  readonly driver: string;
  readonly handle: string;
  readonly lifecycle: "Persistent" | "Ephemeral";
  readonly mode: "Filesystem" | "Block";
  readonly readOnly: boolean;
  /** "" where neither the volume nor its class names one; the driver chooses then. */
  readonly fsType: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly accessModes: readonly string[];
  readonly mountOptions: readonly string[];
  readonly stageSecret: SecretReference | undefined;
  readonly publishSecret: SecretReference | undefined;
  readonly expandSecret: SecretReference | undefined;
}

/** A CSIDriver's `spec`, or what counts without one. */
export interface DriverSpec {
  readonly exists: boolean;
  readonly attachRequired: boolean;
  readonly podInfoOnMount: boolean;
  readonly lifecycleModes: readonly string[];
  readonly fsGroupPolicy: string;
  readonly requiresRepublish: boolean;
  /** How often the driver is asked how many volumes it takes; undefined: when it registers. */
  readonly limitPeriod: Millis | undefined;
  readonly tokenRequests: readonly { readonly audience: string; readonly expirationSeconds: number }[];
}

const DEFAULT_TOKEN_SECONDS = 3600;
/** Bounds `nodeAllocatableUpdatePeriodSeconds`: the API's least value, and a day, which a timer can wait. */
const LIMIT_SECONDS = { least: 10, most: 86_400 };

export const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

/** The kubelet's handle of an inline volume, which has no other. */
const inlineHandle = (podUid: string, volume: string): string => `csi-${sha256(`${podUid}${volume}`)}`;

/** The kubelet's and the attach/detach controller's name of the VolumeAttachment. */
export const attachmentName = (driver: string, handle: string, nodeName: string): string =>
  `csi-${sha256(`${handle}${driver}${nodeName}`)}`;

/** The name of the volume in a Node's `volumesAttached` and `volumesInUse`. */
export const uniqueName = ({ driver, handle }: { readonly driver: string; readonly handle: string }): string =>
  `kubernetes.io/csi/${driver}^${handle}`;

export function inlineVolume(pod: Pod, uid: string, { name, csi }: Volume): CsiVolume {
  if (csi === undefined) throw new PicoletError("internal", `cannot find a CSI driver in volume ${name}`);
  const secret = csi.nodePublishSecretRef?.name;
  return {
    specName: name,
    driver: csi.driver,
    handle: inlineHandle(uid, name),
    lifecycle: "Ephemeral",
    mode: "Filesystem",
    readOnly: csi.readOnly === true,
    fsType: csi.fsType ?? "",
    attributes: csi.volumeAttributes ?? {},
    accessModes: ["ReadWriteOnce"],
    mountOptions: [],
    stageSecret: undefined,
    publishSecret: secret === undefined ? undefined : { namespace: pod.metadata.namespace, name: secret },
    expandSecret: undefined,
  };
}

/** @param spec of the PersistentVolume, which the API server has validated */
export function persistentVolume(name: string, spec: Fields, readOnly: boolean): CsiVolume {
  const source = fields(spec.csi);
  return {
    specName: name,
    driver: text(source.driver),
    handle: text(source.volumeHandle),
    lifecycle: "Persistent",
    mode: spec.volumeMode === "Block" ? "Block" : "Filesystem",
    readOnly,
    fsType: text(source.fsType),
    attributes: textMap(source.volumeAttributes),
    accessModes: texts(spec.accessModes),
    mountOptions: texts(spec.mountOptions),
    stageSecret: secretReference(source.nodeStageSecretRef),
    publishSecret: secretReference(source.nodePublishSecretRef),
    expandSecret: secretReference(source.nodeExpandSecretRef),
  };
}

export function driverSpec(objects: Objects, name: string): DriverSpec {
  const object = objects.object(objectKey("CSIDriver", "", name));
  const spec = fields(object?.spec);
  const modes = texts(spec.volumeLifecycleModes);
  const period = spec.nodeAllocatableUpdatePeriodSeconds;
  return {
    exists: object !== undefined,
    // Without an object the attach/detach controller attaches, as the kubelet assumes too.
    attachRequired: spec.attachRequired !== false,
    podInfoOnMount: spec.podInfoOnMount === true,
    lifecycleModes: modes.length === 0 ? ["Persistent"] : modes,
    fsGroupPolicy: text(spec.fsGroupPolicy) || "ReadWriteOnceWithFSType",
    requiresRepublish: spec.requiresRepublish === true,
    limitPeriod:
      typeof period === "number"
        ? seconds(Math.min(Math.max(period, LIMIT_SECONDS.least), LIMIT_SECONDS.most))
        : undefined,
    tokenRequests: list(spec.tokenRequests).map((each) => {
      const { audience, expirationSeconds } = fields(each);
      return {
        audience: text(audience),
        expirationSeconds: typeof expirationSeconds === "number" ? expirationSeconds : DEFAULT_TOKEN_SECONDS,
      };
    }),
  };
}

/** @throws `unavailable` in the kubelet's words where the driver must not be used so */
export function checkLifecycle({ driver, lifecycle }: CsiVolume, spec: DriverSpec): void {
  if (spec.lifecycleModes.includes(lifecycle)) return;
  const modes = spec.exists ? `only supports [${quotedList(spec.lifecycleModes)}]` : "no CSIDriver object";
  throw waiting(`volume mode "${lifecycle}" not supported by driver ${driver} (${modes})`);
}

/**
 * The attachment's metadata, which the driver's controller left for its node part.
 * @throws `unavailable` in the kubelet's words until the volume is attached
 */
export function attachmentOf(objects: Objects, volume: CsiVolume, nodeName: string): Readonly<Record<string, string>> {
  const { driver, handle, specName } = volume;
  const node = fields(objects.object(objectKey("Node", "", nodeName))?.status);
  if (!texts(node.volumesInUse).includes(uniqueName(volume)))
    throw waiting("volume has not been added to the list of VolumesInUse in the node's volume status");
  const attached = list(node.volumesAttached).map((each) => text(fields(each).name));
  if (!attached.includes(uniqueName(volume)))
    throw waiting(
      `volume not attached according to node status for volume ${JSON.stringify(specName)} (UniqueName: "${uniqueName(volume)}")`,
    );
  const name = attachmentName(driver, handle, nodeName);
  const attachment = objects.object(objectKey("VolumeAttachment", "", name));
  const status = fields(attachment?.status);
  if (attachment === undefined) throw waiting(`volumeattachments.storage.k8s.io ${JSON.stringify(name)} not found`);
  if (fields(attachment.metadata).deletionTimestamp !== undefined)
    throw waiting(`volume attachment ${name} is being deleted`);
  if (status.attached !== true) {
    const why = text(fields(status.attachError).message);
    throw waiting(`volume attachment ${name} is not attached${why === "" ? "" : `: ${why}`}`);
  }
  return textMap(status.attachmentMetadata);
}

/**
 * @returns the claim of the volume, with the capacity that the volume has, where the claim's status shows less: the
 *   file system on the node is smaller than the volume
 */
export function pendingExpansion(objects: Objects, volume: CsiVolume): ExpandedClaim | undefined {
  if (volume.lifecycle === "Ephemeral" || volume.readOnly) return undefined;
  const spec = fields(objects.object(objectKey("PersistentVolume", "", volume.specName))?.spec);
  const { namespace, name, uid } = fields(spec.claimRef);
  const claim = objects.object(objectKey("PersistentVolumeClaim", text(namespace), text(name)));
  const capacity = text(fields(spec.capacity).storage);
  // A hub that sends no capacity of claims is older than expansion.
  const shown = text(fields(fields(claim?.status).capacity).storage);
  if (text(fields(claim?.metadata).uid) !== uid || !isLarger(capacity, shown)) return undefined;
  return { namespace: text(namespace), name: text(name), uid: text(uid), capacity };
}

/** @throws `unavailable` in the kubelet's words for a Secret that is not there */
export function secretData(
  objects: Objects,
  field: string,
  reference: SecretReference | undefined,
): ReadonlyMap<string, string> {
  if (reference === undefined) return new Map();
  const { namespace, name } = reference;
  const secret = objects.object(objectKey("Secret", namespace, name));
  if (secret === undefined)
    throw waiting(`fetching ${field} ${namespace}/${name} failed: secrets ${JSON.stringify(name)} not found`);
  const data = Object.entries(textMap(secret.data));
  return new Map(data.map(([key, value]) => [key, Buffer.from(value, "base64").toString("utf8")]));
}

/** `VolumeCapability`. @param fsGroup given to a driver that applies it by itself */
export function capabilityOf(volume: CsiVolume, driver: CsiDriver, fsGroup: number | undefined) {
  const accessMode = { mode: accessModeOf(volume.accessModes[0] ?? "ReadWriteOnce", driver) };
  if (volume.mode === "Block") return { block: {}, accessMode };
  const group =
    driver.capabilities.has(NodeCapability.volumeMountGroup) && fsGroup !== undefined ? String(fsGroup) : "";
  return { mount: { fsType: volume.fsType, mountFlags: volume.mountOptions, volumeMountGroup: group }, accessMode };
}

function accessModeOf(mode: string, { capabilities }: CsiDriver): number {
  const distinguishesPods = capabilities.has(NodeCapability.singleNodeMultiWriter);
  if (mode === "ReadOnlyMany") return AccessMode.multiNodeReaderOnly;
  if (mode === "ReadWriteMany") return AccessMode.multiNodeMultiWriter;
  if (!distinguishesPods) return AccessMode.singleNodeWriter;
  return mode === "ReadWriteOncePod" ? AccessMode.singleNodeSingleWriter : AccessMode.singleNodeMultiWriter;
}

const FOR_ONE_NODE: ReadonlySet<string> = new Set(["ReadWriteOnce", "ReadWriteOncePod"]);

/** @returns whether the node gives the volume's files to the pod's `fsGroup`, as the kubelet decides it */
export function appliesFsGroup(volume: CsiVolume, { fsGroupPolicy }: DriverSpec, driver: CsiDriver): boolean {
  if (volume.readOnly || fsGroupPolicy === "None" || driver.capabilities.has(NodeCapability.volumeMountGroup))
    return false;
  if (fsGroupPolicy === "File") return true;
  return volume.fsType !== "" && volume.accessModes.some((mode) => FOR_ONE_NODE.has(mode));
}

export const waiting = (message: string): PicoletError => new PicoletError("unavailable", message, { retryable: true });

const quotedList = (values: readonly string[]): string => values.map((each) => JSON.stringify(each)).join(" ");

function secretReference(value: unknown): SecretReference | undefined {
  const { namespace, name } = fields(value);
  return text(name) === "" ? undefined : { namespace: text(namespace), name: text(name) };
}

const fields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const texts = (value: unknown): string[] => list(value).filter((each) => typeof each === "string");
const textMap = (value: unknown): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(fields(value)).filter((each): each is [string, string] => typeof each[1] === "string"),
  );
