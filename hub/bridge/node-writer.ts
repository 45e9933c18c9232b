import type { KubeletEndpoints } from "@picolet/hub-core/fleet.ts";
import { type KubeClient, type KubeObject, NODES } from "@picolet/hub-core/kube-client/kube-client.ts";
import { RESOURCE_SLICES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { parseCsiReport, parseExpandedClaims } from "@picolet/protocol/tunnel/csi-report.ts";
import { parseDraDrivers } from "@picolet/protocol/tunnel/device-report.ts";
import type { NodeReportContent } from "@picolet/protocol/tunnel/messages.ts";
import { putClaimCapacities } from "./claim-capacities.ts";
import { putCsiNode } from "./csi-node.ts";
import { type NodeConnection, retryableRefusal, undefinedOn } from "./node-connection.ts";
import { conditionPatch, newNode, nodePatch, nodeStatusPatch, ownerOf } from "./node-object.ts";
import { unpackReport } from "./node-report-annotation.ts";
import { conditionsOf, fieldsAt } from "./remote-object.ts";
import { conditionsText, endpointText, type StoredNode } from "./stored-objects.ts";
import { HUB_LABEL } from "./well-known.ts";

/** Shortest interval between writes of a node whose figures flutter. Kubelets check theirs every 10 s. */
const LEAST_INTERVAL = seconds(5);

export interface NodeWriterInit {
  readonly hub: string;
  readonly endpoints: KubeletEndpoints;
}

/** One node's Node object. */
export class NodeWriter {
  readonly #connection: NodeConnection;
  readonly #init: NodeWriterInit;
  /** Between the two writes of a report the Node contradicts itself. */
  #isWriting = false;
  #writtenAtMs = Number.NEGATIVE_INFINITY;
  /** As the report had it when slices were removed last. */
  #draDrivers: string | undefined;

  constructor(connection: NodeConnection, init: NodeWriterInit) {
    this.#connection = connection;
    this.#init = init;
  }

  /** The last that any replica has written. */
  report(): NodeReportContent | undefined {
    const packed = this.#connection.cache.node(this.#connection.node)?.report;
    return packed === undefined ? undefined : unpackReport(packed);
  }

  /** @throws `permission_denied` when the Node is a kubelet's or another hub's; retryable while it may not be made */
  async put(report: NodeReportContent, signal: AbortSignal): Promise<void> {
    const { clock, client, node } = this.#connection;
    const left = this.#writtenAtMs + LEAST_INTERVAL - clock.monotonic();
    if (left > 0) await clock.sleep(millis(left), signal);
    this.#isWriting = true;
    try {
      const current = await this.#ensure(report, signal);
      const endpoint = this.#init.endpoints.endpointOf(node);
      const patch = nodeStatusPatch(fieldsAt(current, "status"), report, endpoint, kubeTime(clock.wall()));
      await client.patch(NODES, { namespace: "", name: node }, "strategic", patch, { subresource: "status" }, signal);
      this.#writtenAtMs = clock.monotonic();
      const drivers = parseCsiReport(report.csi ?? "");
      if (drivers !== undefined) await putCsiNode(client, current, drivers, signal);
      await putClaimCapacities(client, parseExpandedClaims(report.expandedClaims ?? "") ?? [], signal);
      await this.#removeSlices(report.draDrivers, signal);
    } finally {
      this.#isWriting = false;
    }
  }

  /** Once for each change of the drivers: a board that has none costs a list for each of its sessions. */
  async #removeSlices(draDrivers: string | undefined, signal: AbortSignal): Promise<void> {
    const { client, node, log } = this.#connection;
    const drivers = parseDraDrivers(draDrivers ?? "");
    if (drivers !== undefined && draDrivers !== this.#draDrivers) {
      const removed = await removeSlices(client, node, drivers, signal);
      if (removed > 0) log.info("removed ResourceSlices of drivers that are gone", { node, slices: removed });
    }
    this.#draDrivers = draDrivers;
  }

  /**
   * `lastHeartbeatTime` of the node's conditions; brings back what others (the node lifecycle controller) made of them.
   */
  async heartbeat(signal: AbortSignal): Promise<void> {
    const { client, node, clock } = this.#connection;
    const report = this.report();
    if (report === undefined) return;
    const current = await undefinedOn(["not_found"], client.get(NODES, { namespace: "", name: node }, signal));
    if (current === undefined) return;
    const endpoint = this.#init.endpoints.endpointOf(node);
    const status = fieldsAt(current, "status");
    const at = kubeTime(clock.wall());
    // The endpoint moves with the agent from replica to replica.
    const patch = isEndpoint(endpointText(status), endpoint)
      ? { status: { conditions: conditionPatch(status, report, at) } }
      : nodeStatusPatch(status, report, endpoint, at);
    await client.patch(NODES, { namespace: "", name: node }, "strategic", patch, { subresource: "status" }, signal);
  }

  /** True when the stored conditions differ from those that the node reported. */
  isDisputed(stored: StoredNode): boolean {
    const report = stored.report === undefined ? undefined : unpackReport(stored.report);
    if (report === undefined || this.#isWriting) return false;
    const types = new Set(conditionsOf(report.status).map(({ type }) => type));
    const shown = stored.conditions.split(",").filter((each) => types.has(each.slice(0, each.indexOf("="))));
    return shown.join(",") !== conditionsText(report.status);
  }

  /** True when the stored endpoint of the node's kubelet is not this hub's. */
  isElsewhere(stored: StoredNode): boolean {
    try {
      return (
        stored.report !== undefined &&
        !isEndpoint(stored.endpoint, this.#init.endpoints.endpointOf(this.#connection.node, portIn(stored.endpoint)))
      );
    } catch (error) {
      // Its port is being opened, and will be another one.
      if (isPicoletError(error, "unavailable")) return true;
      throw error;
    }
  }

  /** Writes that the node has not been heard of since `since`. */
  async markAway(since: Date, signal: AbortSignal): Promise<void> {
    const { client, node, clock } = this.#connection;
    const at = kubeTime(clock.wall());
    const ready = {
      type: "Ready",
      status: "Unknown",
      reason: "AgentNotConnected",
      message: `The picolet agent is away since ${kubeTime(since)}. Its pods run on without it being seen.`,
      lastHeartbeatTime: kubeTime(since),
      lastTransitionTime: at,
    };
    const patch = { status: { conditions: [ready] } };
    const write = client.patch(
      NODES,
      { namespace: "", name: node },
      "strategic",
      patch,
      { subresource: "status" },
      signal,
    );
    await undefinedOn(["not_found"], write);
  }

  async #ensure(report: NodeReportContent, signal: AbortSignal): Promise<KubeObject> {
    const { client, node } = this.#connection;
    const ref = { namespace: "", name: node };
    const identity = { node, hub: this.#init.hub };
    const current = await undefinedOn(["not_found"], client.get(NODES, ref, signal));
    if (current === undefined) {
      if (report.register) return await client.create(NODES, ref, newNode(report, identity), {}, signal);
      const message = `cannot report on node ${node}: it does not exist, and its agent does not register itself`;
      throw new PicoletError("unavailable", message, { retryable: true });
    }
    const owner = ownerOf(current);
    if (owner === "kubelet" || (owner === "hub" && current.metadata.labels?.[HUB_LABEL] !== identity.hub)) {
      throw new PicoletError("permission_denied", `cannot take node ${node}: it belongs to another ${owner}`);
    }
    const patch = nodePatch(current, report, identity);
    return patch === undefined ? current : await client.patch(NODES, ref, "merge", patch, {}, signal);
  }
}

/** The port in a text of `endpointText`; undefined when there is none. */
const portIn = (text: string): number | undefined => {
  const port = Number(text.slice(text.lastIndexOf(":") + 1));
  return Number.isInteger(port) && port > 0 ? port : undefined;
};

const isEndpoint = (text: string, { address, port }: { readonly address: string; readonly port: number }): boolean =>
  text === `${address}:${port}`;

/** Slices of one node that are read: a driver has one slice for 128 devices. Further ones stay. */
const MAX_SLICES = 256;

/**
 * Deletes the slices of `node` whose driver is not in `drivers`, as a kubelet does, so that no pod waits on the node
 * for them. Acts as the node. An API server without the kind, or one that gives nodes no right to it, is left alone.
 * @returns how many it has deleted
 * @throws retryable when a driver writes its slice at the same time
 */
async function removeSlices(
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
