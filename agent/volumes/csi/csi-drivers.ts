import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import {
  dnsSubdomainProblems,
  labelValueProblems,
  qualifiedNameProblems,
} from "@picolet/protocol/kubernetes/name-rules.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { type CsiDriverReport, MAX_CSI_REPORT_LENGTH } from "@picolet/protocol/tunnel/csi-report.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { GrpcClient, type GrpcMethod } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { statusName } from "@picolet/runtime-cri/wire/grpc-status.ts";
import { type NodeCounts, timed } from "../../core/node/node-counts.ts";
import { csiNode, NodeCapability } from "./csi-messages.ts";

/** The kubelet's limit for one call of a driver. */
const CALL_TIMEOUT_MS = 120_000;
/** Bounds what a driver can make the agent read; answers of the node service have a few hundred bytes. */
const MAX_ANSWER_BYTES = MEBIBYTE;
/** Bounds memory against plugins without end. Nodes have a handful of drivers. */
const MAX_DRIVERS = 64;
/** The API's limits for `nodeID`, `allocatable.count` and the name of a driver (CSINode). */
const MAX_NODE_ID_BYTES = 192;
const MAX_VOLUMES = 2 ** 31 - 1;
const MAX_NAME_LENGTH = 63;
/** A topology has region, zone and the like; each becomes a label of the Node. */
const MAX_TOPOLOGY_KEYS = 16;
/** The share of one driver in `MAX_CSI_REPORT_LENGTH`: a hub refuses the report of a node beyond it. */
const MAX_REPORT_LENGTH = Math.floor(MAX_CSI_REPORT_LENGTH / MAX_DRIVERS) - 2;
/** A driver may list anything; others have no meaning here. */
const CAPABILITIES: ReadonlySet<number> = new Set(Object.values(NodeCapability));

/** A registered driver, as it described itself. */
export interface CsiDriver {
  readonly name: string;
  /** The path of its socket. */
  readonly endpoint: string;
  /** The socket that registered it, which tells two registrations of one name apart. */
  readonly registration: string;
  readonly nodeId: string;
  /** 0: no limit. */
  readonly maxVolumes: number;
  readonly topology: ReadonlyMap<string, string>;
  /** Values of `NodeCapability`. */
  readonly capabilities: ReadonlySet<number>;
}

export interface CsiRegistration extends Pick<CsiDriver, "name" | "endpoint" | "registration"> {
  readonly versions: readonly string[];
}

export interface CsiDriversComponents {
  readonly clock: Clock;
  readonly counts?: NodeCounts | undefined;
}

/** The label `migrated`: no volume here was migrated from a driver within Kubernetes. */
export const NOT_MIGRATED = "false";

/** The CSI drivers of the node: those whose sockets are registered. */
export class CsiDrivers {
  readonly #components: CsiDriversComponents;
  readonly #drivers = new Map<string, CsiDriver>();
  readonly #changed = new WatchSource(0);

  constructor(components: CsiDriversComponents) {
    this.#components = components;
  }

  /** Counts registrations and removals. */
  get changed(): Watch<number> {
    return this.#changed;
  }

  /** JSON of `CsiDriverReport`s; undefined before the first registration: an earlier agent's drivers come back. */
  report(): string | undefined {
    if (this.#changed.current === 0) return undefined;
    const drivers = [...this.#drivers.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    return JSON.stringify(drivers.map(reportOf));
  }

  get(name: string): CsiDriver | undefined {
    return this.#drivers.get(name);
  }

  /**
   * Asks the driver who it is on this node. A second registration of a name replaces the first.
   * @throws `invalid` for a name, an answer or a number of drivers that cannot be; what the driver answered
   */
  async register({ name, endpoint, versions, registration }: CsiRegistration, signal: AbortSignal): Promise<void> {
    const refused = (why: string): PicoletError =>
      new PicoletError("invalid", `cannot register the CSI driver ${JSON.stringify(name.slice(0, 80))}: ${why}`);
    if (!versions.some((version) => /^v?1\./.test(version))) throw refused("it supports no version 1 of CSI");
    if (name.length > MAX_NAME_LENGTH || dnsSubdomainProblems(name.toLowerCase()).length > 0)
      throw refused("it is no driver's name");
    if (!this.#drivers.has(name) && this.#drivers.size >= MAX_DRIVERS)
      throw new PicoletError("resource_exhausted", `cannot register more than ${MAX_DRIVERS} CSI drivers`);
    const info = await this.call({ name, endpoint }, csiNode.getInfo, {}, signal);
    const { capabilities } = await this.call({ name, endpoint }, csiNode.getCapabilities, {}, signal);
    const topology = info.accessibleTopology?.segments ?? new Map<string, string>();
    const wrong = problemOf(info.nodeId, topology);
    if (wrong !== undefined) throw refused(wrong);
    const driver = {
      ...{ name, endpoint, registration, topology },
      nodeId: info.nodeId,
      maxVolumes: limitOf(info),
      capabilities: new Set(capabilities.map(({ rpc }) => rpc?.type ?? 0).filter((type) => CAPABILITIES.has(type))),
    };
    const { length } = JSON.stringify(reportOf(driver));
    if (length > MAX_REPORT_LENGTH)
      throw refused(`its node ID and topology have ${length} characters, more than ${MAX_REPORT_LENGTH}`);
    this.#drivers.set(name, driver);
    this.#changed.set(this.#changed.current + 1);
  }

  /** Asks the driver again how many volumes it takes. @throws what the driver answered */
  async refreshLimit(name: string, signal: AbortSignal): Promise<void> {
    const driver = this.#drivers.get(name);
    if (driver === undefined) return;
    const maxVolumes = limitOf(await this.call(driver, csiNode.getInfo, {}, signal));
    // It may have gone or registered again in the meantime.
    if (maxVolumes === driver.maxVolumes || this.#drivers.get(name) !== driver) return;
    this.#drivers.set(name, { ...driver, maxVolumes });
    this.#changed.set(this.#changed.current + 1);
  }

  /** @param registration the one that ended; a later one of the same name stays */
  deregister(name: string, registration: string): void {
    if (this.#drivers.get(name)?.registration !== registration) return;
    this.#drivers.delete(name);
    this.#changed.set(this.#changed.current + 1);
  }

  /** One call over a connection of its own, because calls are rare. @throws what the driver answered */
  async call<Q, A>(
    { name, endpoint: path }: Pick<CsiDriver, "name" | "endpoint">,
    method: GrpcMethod<Q, A>,
    request: Q,
    signal: AbortSignal,
    timeoutMs = CALL_TIMEOUT_MS,
  ): Promise<A> {
    using client = new GrpcClient(this.#components, { path, maxMessageBytes: MAX_ANSWER_BYTES });
    const labelsOf = (error: unknown) => [name, statusName(error), method.path, NOT_MIGRATED];
    const call = () => client.unary(method, request, timeoutMs, signal);
    return await timed(this.#components, "csi_operations_seconds", labelsOf, call);
  }
}

const limitOf = ({ maxVolumesPerNode }: { readonly maxVolumesPerNode: number }): number =>
  Math.min(Math.max(0, maxVolumesPerNode), MAX_VOLUMES);

/** As the API server judges CSINode and the labels of a Node, which it would refuse as a whole. */
function problemOf(nodeId: string, topology: ReadonlyMap<string, string>): string | undefined {
  const bytes = Buffer.byteLength(nodeId);
  if (bytes === 0 || bytes > MAX_NODE_ID_BYTES) return `its node ID has ${bytes} bytes, not 1 to ${MAX_NODE_ID_BYTES}`;
  if (topology.size > MAX_TOPOLOGY_KEYS)
    return `its topology has ${topology.size} keys, more than ${MAX_TOPOLOGY_KEYS}`;
  for (const [key, value] of topology) {
    const shown = `its topology ${JSON.stringify(key.slice(0, 80))}`;
    const [problem] = [...qualifiedNameProblems(key), ...labelValueProblems(value)];
    if (problem !== undefined) return `${shown} is no label: ${problem}`;
    if (value === "") return `${shown} has no value`;
  }
  return undefined;
}

const reportOf = ({ name, nodeId, topology, maxVolumes }: CsiDriver): CsiDriverReport => {
  return { name, nodeID: nodeId, topology: Object.fromEntries(topology), count: maxVolumes };
};
