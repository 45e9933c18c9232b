/** The status of claims whose volumes a node has expanded. */
import {
  type KubeClient,
  type KubeObject,
  PERSISTENT_VOLUME_CLAIMS,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { isLarger } from "@picolet/protocol/kubernetes/quantity.ts";
import type { ExpandedClaim } from "@picolet/protocol/tunnel/csi-report.ts";
import { retryableRefusal, undefinedOn } from "./node-connection.ts";
import { conditionsOf, type Fields, fieldsAt } from "./remote-object.ts";

/** Conditions that end with an expansion, as the kubelet ends them. */
const RESIZE_CONDITIONS: ReadonlySet<string> = new Set([
  "FileSystemResizePending",
  "Resizing",
  "ControllerResizeError",
  "NodeResizeError",
]);

/**
 * Shows the new capacity in claims that do not show it. A claim that the node may not write is skipped.
 * @throws retryable when another client writes a claim at the same time
 */
export async function putClaimCapacities(
  client: KubeClient,
  claims: readonly ExpandedClaim[],
  signal: AbortSignal,
): Promise<void> {
  for (const claim of claims) {
    try {
      await undefinedOn(["not_found", "permission_denied", "invalid"], putClaimCapacity(client, claim, signal));
    } catch (error) {
      if (!isPicoletError(error, "conflict")) throw error;
      throw retryableRefusal(error, `write the capacity of claim ${claim.namespace}/${claim.name}`);
    }
  }
}

async function putClaimCapacity(client: KubeClient, claim: ExpandedClaim, signal: AbortSignal): Promise<void> {
  const { namespace, name, uid, capacity } = claim;
  const ref = { namespace, name };
  const current = await client.get(PERSISTENT_VOLUME_CLAIMS, ref, signal);
  const shown = fieldsAt(fieldsAt(current, "status"), "capacity").storage;
  if (current.metadata.uid !== uid || typeof shown !== "string" || !isLarger(capacity, shown)) return;
  const patch = expandedPatch(current, capacity);
  await client.patch(PERSISTENT_VOLUME_CLAIMS, ref, "merge", patch, { subresource: "status" }, signal);
}

function expandedPatch(claim: KubeObject, storage: string): Fields {
  const { uid, resourceVersion } = claim.metadata;
  const conditions = conditionsOf(claim.status).filter(({ type }) => !RESIZE_CONDITIONS.has(type));
  const resizing = fieldsAt(fieldsAt(claim, "status"), "allocatedResourceStatuses").storage;
  return {
    metadata: { uid, resourceVersion },
    status: {
      capacity: { storage },
      conditions: conditions.length === 0 ? null : conditions,
      ...(resizing === undefined ? {} : { allocatedResourceStatuses: { storage: null } }),
    },
  };
}
