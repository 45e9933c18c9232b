/** Persistent volumes, claims and storage classes as those read them who bring them together. */

import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { compareQuantities, parseQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import { selects } from "../../api/label-selector.ts";
import type { LabelSelector, NodeObject } from "../../api/typed-objects.ts";
import { matchesTerm, type NodeSelectorTerm } from "../node-affinity.ts";

export interface Claim extends KubeObject {
  readonly spec?: {
    readonly accessModes?: readonly string[];
    readonly volumeMode?: string;
    readonly storageClassName?: string;
    readonly volumeName?: string;
    readonly selector?: LabelSelector;
    readonly resources?: { readonly requests?: { readonly storage?: string } };
  };
  readonly status?: {
    readonly phase?: string;
    readonly accessModes?: readonly string[];
    readonly capacity?: Readonly<Record<string, string>>;
  };
}

export interface ClaimRef {
  readonly namespace?: string;
  readonly name?: string;
  readonly uid?: string;
}

export interface Volume extends KubeObject {
  readonly spec?: {
    readonly accessModes?: readonly string[];
    readonly volumeMode?: string;
    readonly storageClassName?: string;
    readonly capacity?: Readonly<Record<string, string>>;
    readonly claimRef?: ClaimRef;
    readonly persistentVolumeReclaimPolicy?: string;
    readonly nodeAffinity?: { readonly required?: { readonly nodeSelectorTerms?: readonly NodeSelectorTerm[] } };
  };
  readonly status?: { readonly phase?: string };
}

export interface StorageClass extends KubeObject {
  readonly provisioner?: string;
  readonly volumeBindingMode?: string;
}

/** Put there by the scheduler: where the first pod that uses the claim will run. */
export const SELECTED_NODE = "volume.kubernetes.io/selected-node";

/** An older way of naming the class, which still counts first. */
const CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class";

export const classOf = ({ metadata, spec }: Claim | Volume): string =>
  metadata.annotations?.[CLASS_ANNOTATION] ?? spec?.storageClassName ?? "";

export const waitsForConsumer = (storageClass: StorageClass | undefined): boolean =>
  storageClass?.volumeBindingMode === "WaitForFirstConsumer";

export const refersToClaim = ({ metadata }: Claim, claimRef: ClaimRef | undefined): boolean =>
  claimRef !== undefined &&
  claimRef.name === metadata.name &&
  claimRef.namespace === metadata.namespace &&
  ["", undefined, metadata.uid].includes(claimRef.uid);

export function isReachableFrom(volume: Volume, node: NodeObject): boolean {
  const terms = volume.spec?.nodeAffinity?.required?.nodeSelectorTerms;
  return terms === undefined || terms.some((term) => matchesTerm(node, term));
}

const storageOf = (text: string | undefined): ReturnType<typeof parseQuantity> => parseQuantity(text ?? "0");

function isLargeEnough(volume: Volume, claim: Claim): boolean {
  const [has, wants] = [volume.spec?.capacity?.storage, claim.spec?.resources?.requests?.storage].map(storageOf);
  return has?.ok === true && wants?.ok === true && compareQuantities(has.quantity, wants.quantity) >= 0;
}

/** True when the volume meets the claim's spec, bound or not. */
export function matchesClaim(volume: Volume, claim: Claim): boolean {
  const modes = volume.spec?.accessModes ?? [];
  return (
    (volume.spec?.volumeMode ?? "Filesystem") === (claim.spec?.volumeMode ?? "Filesystem") &&
    classOf(volume) === classOf(claim) &&
    (claim.spec?.accessModes ?? []).every((mode) => modes.includes(mode)) &&
    isLargeEnough(volume, claim)
  );
}

/** The volume that was set aside for the claim, or the smallest free one. */
export function bestVolume(
  claim: Claim,
  volumes: readonly Volume[],
  reachable: (volume: Volume) => boolean,
): Volume | undefined {
  const candidates = volumes.filter(
    (volume) => volume.metadata.deletionTimestamp === undefined && matchesClaim(volume, claim) && reachable(volume),
  );
  const own = candidates.find(({ spec }) => refersToClaim(claim, spec?.claimRef));
  if (own !== undefined) return own;
  const free = candidates.filter(
    ({ metadata, spec, status }) =>
      spec?.claimRef === undefined &&
      status?.phase === "Available" &&
      (claim.spec?.selector === undefined || selects(claim.spec.selector, metadata.labels)),
  );
  return free.sort(bySize)[0];
}

function bySize(left: Volume, right: Volume): number {
  const [one, other] = [left, right].map(({ spec }) => storageOf(spec?.capacity?.storage));
  const order = one?.ok === true && other?.ok === true ? compareQuantities(one.quantity, other.quantity) : 0;
  return order !== 0 ? order : left.metadata.name < right.metadata.name ? -1 : 1;
}
