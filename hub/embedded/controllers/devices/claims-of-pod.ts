/** Resource claims of pods, read from cached objects. Pure. */
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { controllerOf, type NodeObject } from "../../api/typed-objects.ts";
import { matchesTerm, type NodeSelectorTerm } from "../node-affinity.ts";
import type { ObjectCache } from "../object-cache.ts";

export interface Consumer {
  readonly resource: string;
  readonly name: string;
  readonly uid: string;
}

interface AllocatedDevice {
  readonly driver: string;
  readonly pool: string;
  readonly device: string;
  readonly adminAccess?: boolean;
}

export interface ResourceClaim extends KubeObject {
  readonly status?: {
    readonly allocation?: {
      readonly devices?: { readonly results?: readonly AllocatedDevice[] };
      readonly nodeSelector?: { readonly nodeSelectorTerms?: readonly NodeSelectorTerm[] };
    };
    readonly reservedFor?: readonly Consumer[];
  };
}

/** Kubernetes' mark on a claim that was made of a template: the pod's name for it. */
export const POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name";
/** Kubernetes' limit of `reservedFor`. */
const MAX_CONSUMERS = 256;

export const podClaimsOf = (pod: Pod): NonNullable<Pod["spec"]["resourceClaims"]> => pod.spec.resourceClaims ?? [];

/** @returns undefined: the claim was not made yet. */
export function claimNameOf(pod: Pod, podClaim: string): string | undefined {
  const named = podClaimsOf(pod).find(({ name }) => name === podClaim)?.resourceClaimName;
  return named ?? pod.status?.resourceClaimStatuses?.find(({ name }) => name === podClaim)?.resourceClaimName;
}

export interface ClaimRules {
  /** Why no node takes the pod now. */
  readonly obstacle?: string | undefined;
  readonly nodeProblem?: ((node: NodeObject) => string | undefined) | undefined;
  /** Claims that have devices. */
  readonly allocated: readonly ResourceClaim[];
  /** Those of them that do not name the pod as their user yet. */
  readonly unreserved: readonly ResourceClaim[];
  readonly unallocated: readonly ResourceClaim[];
}

/** A pod waits until its claims are made, and goes where the allocated devices are. */
export function claimRules(pod: Pod, cache: Pick<ObjectCache, "find">): ClaimRules {
  const { namespace, uid = "" } = pod.metadata;
  const claims: ResourceClaim[] = [];
  for (const { name: podClaim, resourceClaimTemplateName } of podClaimsOf(pod)) {
    const name = claimNameOf(pod, podClaim);
    const claim = name === undefined ? undefined : (cache.find(namespace, name) as ResourceClaim | undefined);
    const obstacle = obstacleOf(claim, name, resourceClaimTemplateName, uid);
    if (obstacle !== undefined) return { obstacle, allocated: [], unreserved: [], unallocated: [] };
    if (claim !== undefined) claims.push(claim);
  }
  const allocated = claims.filter(({ status }) => status?.allocation !== undefined);
  const unallocated = claims.filter(({ status }) => status?.allocation === undefined);
  const rules = { allocated, unallocated, unreserved: allocated.filter((claim) => !isReserved(claim, uid)) };
  if (allocated.length === 0) return rules;
  const nodeProblem = (node: NodeObject): string | undefined =>
    allocated.every((claim) => isReachable(claim, node)) ? undefined : "resourceclaim not available on the node";
  return { ...rules, nodeProblem };
}

function obstacleOf(
  claim: ResourceClaim | undefined,
  name: string | undefined,
  template: string | undefined,
  pod: string,
): string | undefined {
  if (name === undefined) return `waiting for a resourceclaim to be created from template "${template}"`;
  if (claim === undefined) return `resourceclaim "${name}" not found`;
  const { metadata, status } = claim;
  if (metadata.deletionTimestamp !== undefined) return `resourceclaim "${name}" is being deleted`;
  const owner = controllerOf(metadata);
  if (template !== undefined && owner?.uid !== pod) return `resourceclaim "${name}" was not created for the pod`;
  const isFull = (status?.reservedFor ?? []).length >= MAX_CONSUMERS && !isReserved(claim, pod);
  return isFull ? `resourceclaim "${name}" has ${MAX_CONSUMERS} users already` : undefined;
}

export const isReserved = ({ status }: ResourceClaim, pod: string): boolean =>
  (status?.reservedFor ?? []).some(({ resource, uid }) => resource === "pods" && uid === pod);

function isReachable({ status }: ResourceClaim, node: NodeObject): boolean {
  const terms = status?.allocation?.nodeSelector?.nodeSelectorTerms;
  return terms === undefined || terms.some((term) => matchesTerm(node, term));
}
