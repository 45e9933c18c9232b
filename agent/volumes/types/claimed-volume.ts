/** Finds the persistent volume of a pod's claim from objects of the API server. Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { HostPathType, Pod, Volume } from "@picolet/protocol/pod/pod.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import type { NodeSelectorTerm } from "../../plan/admission/admission-node.ts";
import type { VolumeUse } from "./volume-type.ts";

export interface ClaimedVolume {
  /** The name of the persistent volume. */
  readonly name: string;
  readonly readOnly: boolean;
  readonly mode: "Filesystem" | "Block";
  /** ReadWriteOncePod. */
  readonly forOnePod: boolean;
  readonly mountOptions: readonly string[];
  /** The group of its files, which the pod's processes get; undefined: none. */
  readonly group: number | undefined;
  /** The nodes that can use it; `undefined`: all. */
  readonly nodeSelectorTerms: readonly NodeSelectorTerm[] | undefined;
  readonly source: VolumeSource;
}

export type VolumeSource =
  | { readonly kind: "local"; readonly path: string; readonly fsType: string }
  | { readonly kind: "hostPath"; readonly path: string; readonly type: HostPathType }
  | { readonly kind: "nfs"; readonly server: string; readonly path: string; readonly readOnly: boolean }
  /** `spec` is the persistent volume's. */
  | { readonly kind: "csi"; readonly spec: Readonly<Record<string, unknown>> }
  /** A type that no node of ours has. */
  | { readonly kind: "other"; readonly type: string };

/** A claim that keeps another one's deletion from being over. */
const PROTECTION = "kubernetes.io/pvc-protection";
const DEFAULT_FS_TYPE = "ext4";
/** Annotations of a persistent volume. The options count in the place of the field `mountOptions`. */
const MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options";
const GROUP = "pv.beta.kubernetes.io/gid";

type Fields = Readonly<Record<string, unknown>>;

/** @returns the claim's name, which of an ephemeral volume has the pod's in it; `undefined`: the volume is no claim */
export function claimNameOf(pod: Pod, volume: Volume): string | undefined {
  if (volume.persistentVolumeClaim !== undefined) return volume.persistentVolumeClaim.claimName;
  return volume.ephemeral === undefined ? undefined : `${pod.metadata.name}-${volume.name}`;
}

/** @throws PicoletError with the kubelet's words; all but a wrong use may mend itself */
export function claimedVolume(
  pod: Pod,
  volume: Volume,
  use: VolumeUse,
  objects: Pick<ClusterObjects, "object">,
): ClaimedVolume {
  const { namespace } = pod.metadata;
  const name = claimNameOf(pod, volume) ?? "";
  const claim = boundClaim(objects, namespace, name);
  if (volume.ephemeral !== undefined && !isControlledBy(claim, pod))
    throw waiting(
      `PVC ${namespace}/${name} was not created for pod ${namespace}/${pod.metadata.name} (pod is not owner)`,
    );
  const volumeName = text(fields(claim.spec).volumeName);
  const found = persistentVolume(objects, volumeName, text(fields(claim.metadata).uid), `${namespace}/${name}`);
  const { spec, annotations } = found;
  const options = text(annotations[MOUNT_OPTIONS]);
  const mode = spec.volumeMode === "Block" ? "Block" : "Filesystem";
  if (use.mounted && mode === "Block")
    throw new PicoletError("invalid", `volume ${volume.name} has volumeMode Block, but is specified in volumeMounts`);
  if (use.asDevice && mode === "Filesystem")
    throw new PicoletError(
      "invalid",
      `volume ${volume.name} has volumeMode Filesystem, but is specified in volumeDevices`,
    );
  return {
    name: volumeName,
    readOnly: volume.persistentVolumeClaim?.readOnly === true,
    mode,
    forOnePod: texts(spec.accessModes).includes("ReadWriteOncePod"),
    mountOptions: options === "" ? texts(spec.mountOptions) : options.split(","),
    group: groupOf(text(annotations[GROUP])),
    nodeSelectorTerms: nodeSelectorTerms(spec),
    source: sourceOf(spec),
  };
}

function boundClaim(objects: Pick<ClusterObjects, "object">, namespace: string, name: string): Fields {
  const about = `error processing PVC ${namespace}/${name}`;
  const claim = objects.object(objectKey("PersistentVolumeClaim", namespace, name));
  if (claim === undefined)
    throw waiting(
      `${about}: failed to fetch PVC from API server: persistentvolumeclaims ${JSON.stringify(name)} not found`,
    );
  const { deletionTimestamp, finalizers } = fields(claim.metadata);
  // Without finalizers in the object the deletion waits for the protection of a claim that is in use.
  const isProtected = finalizers === undefined || texts(finalizers).includes(PROTECTION);
  if (deletionTimestamp !== undefined && !isProtected) throw waiting(`${about}: PVC is being deleted`);
  if (fields(claim.status).phase !== "Bound") throw waiting(`${about}: PVC is not bound`);
  if (text(fields(claim.spec).volumeName) === "") throw waiting(`${about}: PVC has empty pvc.Spec.VolumeName`);
  return claim;
}

function persistentVolume(
  objects: Pick<ClusterObjects, "object">,
  name: string,
  claimUid: string,
  claim: string,
): { readonly spec: Fields; readonly annotations: Fields } {
  const about = `error processing PVC ${claim}`;
  const volume = objects.object(objectKey("PersistentVolume", "", name));
  if (volume === undefined)
    throw waiting(
      `${about}: failed to fetch PV ${name} from API server: persistentvolumes ${JSON.stringify(name)} not found`,
    );
  const spec = fields(volume.spec);
  if (spec.claimRef === undefined)
    throw waiting(
      `${about}: found PV object ${name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim`,
    );
  const uid = text(fields(spec.claimRef).uid);
  if (uid !== claimUid)
    throw waiting(
      `${about}: found PV object ${name} but its pv.Spec.ClaimRef.UID ${uid} does not point to claim.UID ${claimUid}`,
    );
  return { spec, annotations: fields(fields(volume.metadata).annotations) };
}

/** As the kubelet, which passes over what is no number. */
const groupOf = (value: string): number | undefined => (/^\+?\d{1,10}$/.test(value) ? Number(value) : undefined);

function isControlledBy(claim: Fields, { metadata }: Pod): boolean {
  const owners = list(fields(claim.metadata).ownerReferences).map(fields);
  return owners.some(({ uid, controller }) => controller === true && uid === metadata.uid && uid !== undefined);
}

/** Fields of a volume's spec that are not its source. */
const NO_SOURCES: ReadonlySet<string> = new Set([
  "capacity",
  "accessModes",
  "claimRef",
  "persistentVolumeReclaimPolicy",
  "storageClassName",
  "mountOptions",
  "volumeMode",
  "nodeAffinity",
  "volumeAttributesClassName",
]);

function sourceOf(spec: Fields): VolumeSource {
  if (spec.local !== undefined) {
    const { path, fsType } = fields(spec.local);
    return { kind: "local", path: text(path), fsType: text(fsType) || DEFAULT_FS_TYPE };
  }
  if (spec.hostPath !== undefined) {
    const { path, type } = fields(spec.hostPath);
    return { kind: "hostPath", path: text(path), type: text(type) as HostPathType };
  }
  if (spec.nfs !== undefined) {
    const { server, path, readOnly } = fields(spec.nfs);
    return { kind: "nfs", server: text(server), path: text(path), readOnly: readOnly === true };
  }
  if (spec.csi !== undefined) return { kind: "csi", spec };
  const type = Object.keys(spec).find((field) => !NO_SOURCES.has(field)) ?? "unknown";
  return { kind: "other", type };
}

/** The API server has validated them; what is no list of terms matches nothing. */
function nodeSelectorTerms(spec: Fields): readonly NodeSelectorTerm[] | undefined {
  const { required } = fields(spec.nodeAffinity);
  if (required === undefined) return undefined;
  return list(fields(required).nodeSelectorTerms).map((term) => ({
    matchExpressions: list(fields(term).matchExpressions).map(requirement),
    matchFields: list(fields(term).matchFields).map(requirement),
  }));
}

function requirement(input: unknown): { readonly key: string; readonly operator: string; readonly values: string[] } {
  const { key, operator, values } = fields(input);
  return { key: text(key), operator: text(operator), values: texts(values) };
}

const waiting = (message: string): PicoletError => new PicoletError("unavailable", message, { retryable: true });
const fields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const texts = (value: unknown): string[] => list(value).filter((each) => typeof each === "string");
