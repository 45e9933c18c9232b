/** ResourceSlices of DRA drivers that are gone from a node. */
import type { KubeClient, KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { RESOURCE_SLICES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { retryableRefusal, undefinedOn } from "./node-connection.ts";
import { fieldsAt } from "./remote-object.ts";

/** Slices of one node that are read: a driver has one slice for 128 devices. Further ones stay. */
const MAX_SLICES = 256;

/**
 * Deletes the slices of `node` whose driver is not in `drivers`, as a kubelet does, so that no pod waits on the node
 * for them. Acts as the node. An API server without the kind, or one that gives nodes no right to it, is left alone.
 * @returns how many it has deleted
 * @throws retryable when a driver writes its slice at the same time
 */
export async function removeSlices(
  client: KubeClient,
  node: string,
  drivers: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<number> {
  const options = { fieldSelector: `spec.nodeName=${node}`, limit: MAX_SLICES };
  const listed = client.list(RESOURCE_SLICES, options, signal);
  const slices = await undefinedOn(["not_found", "permission_denied", "invalid"], listed);
  let removed = 0;
  for (const slice of slices?.items ?? []) {
    // A server that does not know the selector sends all slices.
    const { driver, nodeName } = fieldsAt(slice, "spec");
    if (nodeName !== node || typeof driver !== "string" || drivers.has(driver)) continue;
    if (await removeSlice(client, slice, signal)) removed += 1;
  }
  return removed;
}

async function removeSlice(client: KubeClient, { metadata }: KubeObject, signal: AbortSignal): Promise<boolean> {
  const { name, uid } = metadata;
  const precondition = uid === undefined ? {} : { uid };
  try {
    const deleted = client.delete(RESOURCE_SLICES, { namespace: "", name }, precondition, signal).then(() => true);
    return (await undefinedOn(["not_found", "permission_denied"], deleted)) ?? false;
  } catch (error) {
    if (!isPicoletError(error, "conflict")) throw error;
    throw retryableRefusal(error, `delete ResourceSlice ${name}`);
  }
}
