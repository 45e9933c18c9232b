import { NODES, type ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type NodeConnection, undefinedOn } from "./node-connection.ts";
import { fieldsAt } from "./remote-object.ts";
import { NODE_LEASE_NAMESPACE } from "./well-known.ts";

export const LEASES: ResourceType = {
  group: "coordination.k8s.io",
  version: "v1",
  plural: "leases",
  kind: "Lease",
  namespaced: true,
};

/** metav1.MicroTime. */
const microTime = (at: Date): string => at.toISOString().replace("Z", "000Z");

/** One node's Lease in kube-node-lease, by which the cluster sees that the node is alive. */
export class NodeLease {
  readonly #connection: NodeConnection;
  readonly #durationSeconds: number;
  #renewTime = "";
  /** Renew time of the last attempt, which may have reached the cluster although its answer did not reach the hub. */
  #triedTime = "";

  constructor(connection: NodeConnection, durationSeconds: number) {
    this.#connection = connection;
    this.#durationSeconds = durationSeconds;
  }

  /** True when the node has a Lease. */
  get isHeld(): boolean {
    return this.#renewTime !== "";
  }

  /** One request, but for a Lease that is not there. A node without a Node object has none, as the kubelet has it. */
  async renew(signal: AbortSignal): Promise<void> {
    const { client, node, clock } = this.#connection;
    const renewTime = microTime(clock.wall());
    this.#triedTime = renewTime;
    const spec = { holderIdentity: node, leaseDurationSeconds: this.#durationSeconds, renewTime };
    const ref = { namespace: NODE_LEASE_NAMESPACE, name: node };
    try {
      await client.patch(LEASES, ref, "merge", { spec }, {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
      if (!(await this.#create(spec, signal))) return;
    }
    this.#renewTime = renewTime;
  }

  /** True when another hub renews it: the agent has gone to another replica. */
  async isRenewedElsewhere(signal: AbortSignal): Promise<boolean> {
    const { client, node } = this.#connection;
    const ref = { namespace: NODE_LEASE_NAMESPACE, name: node };
    const lease = await undefinedOn(["not_found"], client.get(LEASES, ref, signal));
    const renewTime = fieldsAt(lease ?? {}, "spec").renewTime;
    // Both are RFC 3339 in UTC with six digits, so that their order is that of the texts.
    return typeof renewTime === "string" && renewTime > this.#triedTime;
  }

  /** @returns false when there is no Node that it would belong to */
  async #create(spec: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<boolean> {
    const { client, node, cache } = this.#connection;
    const uid =
      cache.node(node)?.uid ??
      (await undefinedOn(["not_found"], client.get(NODES, { namespace: "", name: node }, signal)))?.metadata.uid;
    if (uid === undefined) return false;
    const metadata = {
      name: node,
      namespace: NODE_LEASE_NAMESPACE,
      ownerReferences: [{ apiVersion: "v1", kind: "Node", name: node, uid }],
    };
    const ref = { namespace: NODE_LEASE_NAMESPACE, name: node };
    const lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec };
    await undefinedOn(["already_exists"], client.create(LEASES, ref, lease, {}, signal));
    return true;
  }
}
