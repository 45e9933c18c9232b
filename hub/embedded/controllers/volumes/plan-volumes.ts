/** Plans the binding of a claim or a volume, with the reasons and messages of Kubernetes 1.34. Pure. */
import type { NodeObject } from "../../api/typed-objects.ts";
import {
  bestVolume,
  type Claim,
  classOf,
  isReachableFrom,
  matchesClaim,
  refersToClaim,
  SELECTED_NODE,
  type StorageClass,
  type Volume,
  waitsForConsumer,
} from "./volume-objects.ts";

export interface VolumeEvent {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly message: string;
}

export type ClaimPlan =
  | { readonly kind: "wait"; readonly phase: "Pending" | "Lost"; readonly event: VolumeEvent | undefined }
  /** The volume is set aside for the claim first, which names it then. */
  | { readonly kind: "bind"; readonly volume: Volume };

export interface ClaimView {
  readonly claim: Claim;
  readonly volumes: readonly Volume[];
  readonly storageClass: StorageClass | undefined;
  readonly node: (name: string) => NodeObject | undefined;
}

const BOUND_BEFORE = "pv.kubernetes.io/bind-completed";

export function planClaim({ claim, volumes, storageClass, node }: ClaimView): ClaimPlan {
  const { volumeName = "" } = claim.spec ?? {};
  if (volumeName !== "")
    return planNamed(
      claim,
      volumes.find(({ metadata }) => metadata.name === volumeName),
    );
  const selected = claim.metadata.annotations?.[SELECTED_NODE];
  const own = volumes.find((volume) => refersToClaim(claim, volume.spec?.claimRef) && matchesClaim(volume, claim));
  if (own !== undefined) return { kind: "bind", volume: own };
  if (waitsForConsumer(storageClass) && selected === undefined) {
    return pending("Normal", "WaitForFirstConsumer", "waiting for first consumer to be created before binding");
  }
  const place = selected === undefined ? undefined : node(selected);
  const volume = bestVolume(claim, volumes, (each) => place === undefined || isReachableFrom(each, place));
  return volume === undefined ? unmet(claim, storageClass) : { kind: "bind", volume };
}

function planNamed(claim: Claim, volume: Volume | undefined): ClaimPlan {
  const wasBound = claim.metadata.annotations?.[BOUND_BEFORE] !== undefined;
  if (volume === undefined) {
    if (!wasBound) return { kind: "wait", phase: "Pending", event: undefined };
    const message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    return { kind: "wait", phase: "Lost", event: { type: "Warning", reason: "ClaimLost", message } };
  }
  const { claimRef } = volume.spec ?? {};
  if (claimRef !== undefined && !refersToClaim(claim, claimRef)) {
    if (wasBound) {
      const message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
      return { kind: "wait", phase: "Lost", event: { type: "Warning", reason: "ClaimMisbound", message } };
    }
    return pending("Warning", "FailedBinding", `volume "${volume.metadata.name}" already bound to a different claim.`);
  }
  if (claimRef === undefined && !matchesClaim(volume, claim)) {
    const message = `Cannot bind to requested volume "${volume.metadata.name}": ${mismatch(volume, claim)}`;
    return pending("Warning", "VolumeMismatch", message);
  }
  return { kind: "bind", volume };
}

function mismatch(volume: Volume, claim: Claim): string {
  if ((volume.spec?.volumeMode ?? "Filesystem") !== (claim.spec?.volumeMode ?? "Filesystem"))
    return "incompatible volumeMode";
  if (classOf(volume) !== classOf(claim)) return "storageClassName does not match";
  const modes = volume.spec?.accessModes ?? [];
  if (!(claim.spec?.accessModes ?? []).every((mode) => modes.includes(mode))) return "incompatible accessMode";
  return "requested PV is too small";
}

function unmet(claim: Claim, storageClass: StorageClass | undefined): ClaimPlan {
  const name = classOf(claim);
  if (name === "") {
    return pending(
      "Normal",
      "FailedBinding",
      "no persistent volumes available for this claim and no storage class is set",
    );
  }
  if (storageClass === undefined) {
    return pending("Warning", "ProvisioningFailed", `storageclass.storage.k8s.io "${name}" not found`);
  }
  const provisioner = storageClass.provisioner ?? "";
  if (provisioner === "kubernetes.io/no-provisioner") return { kind: "wait", phase: "Pending", event: undefined };
  return pending(
    "Normal",
    "ExternalProvisioning",
    `Waiting for a volume to be created either by the external provisioner '${provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.`,
  );
}

const pending = (type: VolumeEvent["type"], reason: string, message: string): ClaimPlan => ({
  kind: "wait",
  phase: "Pending",
  event: { type, reason, message },
});

export type VolumePlan =
  | { readonly kind: "phase"; readonly phase: string; readonly event: VolumeEvent | undefined }
  /** Its claim is bound to another one. */
  | { readonly kind: "free" };

/** @param claim the one that the volume is set aside for, as far as it is there under that UID */
export function planVolume(volume: Volume, claim: Claim | undefined): VolumePlan {
  const { claimRef, persistentVolumeReclaimPolicy: policy = "Retain" } = volume.spec ?? {};
  const phase = (name: string, event?: VolumeEvent): VolumePlan => ({ kind: "phase", phase: name, event });
  if (claimRef === undefined || (claimRef.uid ?? "") === "") return phase("Available");
  if (claim === undefined) {
    if (policy !== "Delete") return phase("Released");
    const message = `error getting deleter volume plugin for volume "${volume.metadata.name}": no deletable volume plugin matched`;
    return phase("Failed", { type: "Warning", reason: "VolumeFailedDelete", message });
  }
  const { volumeName = "" } = claim.spec ?? {};
  if (volumeName === volume.metadata.name) return phase("Bound");
  return volumeName === "" ? phase(volume.status?.phase ?? "Available") : { kind: "free" };
}
