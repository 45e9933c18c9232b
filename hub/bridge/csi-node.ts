/** A node's CSINode object, by which schedulers and attachers find the CSI drivers of the node. */
import { CSI_NODES, type KubeClient, type KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { CsiDriverReport } from "@picolet/protocol/tunnel/csi-report.ts";
import { undefinedOn } from "./node-connection.ts";
import { defined, type Fields, fieldsAt } from "./remote-object.ts";

/** As the kubelet writes a driver into `spec.drivers`. */
const driverOf = ({ name, nodeID, topology, count }: CsiDriverReport): Fields =>
  defined({
    name,
    nodeID,
    topologyKeys: Object.keys(topology).sort(),
    allocatable: count === 0 ? undefined : { count },
  });

/** Makes the object of `node` have exactly these drivers; nothing is written where it has. Acts as the node. */
export async function putCsiNode(
  client: KubeClient,
  node: KubeObject,
  reported: readonly CsiDriverReport[],
  signal: AbortSignal,
): Promise<void> {
  const { name, uid } = node.metadata;
  const ref = { namespace: "", name };
  const drivers = reported.map(driverOf);
  const current = await undefinedOn(["not_found"], client.get(CSI_NODES, ref, signal));
  if (current === undefined) {
    const ownerReferences = [{ apiVersion: "v1", kind: "Node", name, uid }];
    const metadata = { name, ownerReferences };
    const object = { apiVersion: "storage.k8s.io/v1", kind: "CSINode", metadata, spec: { drivers } };
    await client.create(CSI_NODES, ref, object, {}, signal);
    return;
  }
  if (isSame(fieldsAt(current, "spec").drivers, drivers)) return;
  const put = (list: readonly Fields[]): Promise<KubeObject> =>
    client.patch(
      CSI_NODES,
      ref,
      "merge",
      { metadata: { uid: current.metadata.uid }, spec: { drivers: list } },
      {},
      signal,
    );
  try {
    await put(drivers);
  } catch (error) {
    if (!isPicoletError(error, "invalid")) throw error;
    // A driver's node ID and topology cannot change; the driver can go, and come again.
    await put([]);
    await put(drivers);
  }
}

/** Compares what is written; an API server may add fields. */
function isSame(stored: unknown, drivers: readonly Fields[]): boolean {
  if (!Array.isArray(stored) || stored.length !== drivers.length) return false;
  const text = (driver: Fields): string => {
    const { name, nodeID, topologyKeys, allocatable } = driver;
    const keys = Array.isArray(topologyKeys) ? topologyKeys : [];
    return JSON.stringify([name, nodeID, keys, fieldsAt({ allocatable }, "allocatable").count]);
  };
  const known = new Set(stored.map((each: unknown) => text((each ?? {}) as Fields)));
  return drivers.every((driver) => known.has(text(driver)));
}
