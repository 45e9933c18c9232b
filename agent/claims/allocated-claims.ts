/** The claims of a pod, found and judged as the kubelet does before it asks a driver. Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { ClusterObjects } from "../core/hub/cluster-objects.ts";

export interface AllocatedClaim {
  /** In `spec.resourceClaims`. */
  readonly podClaim: string;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** The drivers of the allocated devices, sorted, each once. */
  readonly drivers: readonly string[];
}

/** The resource claim controller's mark on a claim that it made of a template. */
export const POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name";

type Objects = Pick<ClusterObjects, "object" | "keys">;
type Fields = Readonly<Record<string, unknown>>;

/**
 * @returns the claims of an API server's pod
 * @throws `unavailable` (retryable), in the kubelet's words, while a claim is missing, is not allocated, or is not
 *   reserved for the pod
 */
export function allocatedClaims({ metadata, spec }: Pod, objects: Objects): readonly AllocatedClaim[] {
  const { namespace, name: pod, uid: podUid = "" } = metadata;
  return (spec.resourceClaims ?? []).map(({ name: podClaim, resourceClaimName }) => {
    const name = resourceClaimName ?? claimOfTemplate(objects, namespace, podUid, podClaim);
    if (name === undefined) throw waiting(`pod "${namespace}/${pod}": ResourceClaim not created yet`);
    const claim = objects.object(objectKey("ResourceClaim", namespace, name));
    if (claim === undefined) {
      throw waiting(`fetch ResourceClaim ${name}: resourceclaims.resource.k8s.io ${JSON.stringify(name)} not found`);
    }
    const uid = textOf(fieldsOf(claim.metadata).uid);
    const { reservedFor, allocation } = fieldsOf(claim.status);
    if (!listOf(reservedFor).some((consumer) => isPod(consumer, pod, podUid))) {
      throw waiting(`pod ${pod} (${podUid}) is not allowed to use ResourceClaim ${name} (${uid})`);
    }
    if (allocation === undefined) throw waiting(`ResourceClaim ${name}: not allocated`);
    const results = listOf(fieldsOf(fieldsOf(allocation).devices).results);
    const drivers = [...new Set(results.map((result) => textOf(fieldsOf(result).driver)))].sort();
    return { podClaim, namespace, name, uid, drivers };
  });
}

/** The name that `status.resourceClaimStatuses` has for the claim, found by what the controller wrote on the claim. */
function claimOfTemplate(objects: Objects, namespace: string, podUid: string, podClaim: string): string | undefined {
  return objects
    .keys("ResourceClaim", namespace)
    .map((key) => fieldsOf(objects.object(key)?.metadata))
    .filter(({ annotations }) => fieldsOf(annotations)[POD_CLAIM_ANNOTATION] === podClaim)
    .filter(({ ownerReferences }) => listOf(ownerReferences).some((owner) => isController(owner, podUid)))
    .map(({ name }) => textOf(name))
    .sort()[0];
}

function isController(owner: unknown, podUid: string): boolean {
  const { uid, controller } = fieldsOf(owner);
  return controller === true && uid === podUid && podUid !== "";
}

function isPod(consumer: unknown, pod: string, podUid: string): boolean {
  const { apiGroup = "", resource, name, uid } = fieldsOf(consumer);
  return apiGroup === "" && resource === "pods" && name === pod && uid === podUid && podUid !== "";
}

const waiting = (message: string): PicoletError => new PicoletError("unavailable", message, { retryable: true });
const fieldsOf = (value: unknown): Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const textOf = (value: unknown): string => (typeof value === "string" ? value : "");
