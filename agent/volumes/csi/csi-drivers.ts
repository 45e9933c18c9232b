import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { CsiDriverReport } from "@picolet/protocol/tunnel/csi-report.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { GrpcClient, type GrpcMethod } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { statusName } from "@picolet/runtime-cri/wire/grpc-status.ts";
import { type NodeCounts, timed } from "../../core/node/node-counts.ts";
import { csiNode } from "./csi-messages.ts";

/** The kubelet's limit for one call of a driver. */
const CALL_TIMEOUT_MS = 120_000;
/** Bounds what a driver can make the agent read; answers of the node service have a few hundred bytes. */
const MAX_ANSWER_BYTES = MEBIBYTE;
/** Bounds memory against plugins without end. Nodes have a handful of drivers. */
const MAX_DRIVERS = 64;
/** The API's limits for `nodeID` and for the name of a driver (CSINode). */
const MAX_NODE_ID_LENGTH = 192;
const DRIVER_NAME = /^(?=.{1,63}$)[a-z0-9A-Z]([-a-z0-9A-Z.]*[a-z0-9A-Z])?$/;
/** A topology has region, zone and the like; each becomes a label of the Node. */
const MAX_TOPOLOGY_KEYS = 16;

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

/** No volume of ours is one that was migrated from a driver in the tree. */
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
    return JSON.stringify(
      drivers.map(({ name, nodeId, topology, maxVolumes }): CsiDriverReport => {
        return { name, nodeID: nodeId, topology: Object.fromEntries(topology), count: maxVolumes };
      }),
    );
  }

  get(name: string): CsiDriver | undefined {
    return this.#drivers.get(name);
  }

  /**
   * Asks the driver who it is on this node. A second registration of a name replaces the first.
   * @throws `invalid` for a name, an answer or a number of drivers that cannot be; what the driver answered
   */
  async register({ name, endpoint, versions, registration }: CsiRegistration, signal: AbortSignal): Promise<void> {
    if (!versions.some((version) => /^v?1\./.test(version)))
      throw new PicoletError(
        "invalid",
        `cannot register the CSI driver ${name.slice(0, 80)}: it supports no version 1 of CSI`,
      );
    if (!DRIVER_NAME.test(name))
      throw new PicoletError(
        "invalid",
        `cannot register the CSI driver ${JSON.stringify(name.slice(0, 80))}: it is no driver's name`,
      );
    if (!this.#drivers.has(name) && this.#drivers.size >= MAX_DRIVERS)
      throw new PicoletError("resource_exhausted", `cannot register more than ${MAX_DRIVERS} CSI drivers`);
    const info = await this.call({ name, endpoint }, csiNode.getInfo, {}, signal);
    const { capabilities } = await this.call({ name, endpoint }, csiNode.getCapabilities, {}, signal);
    if (info.nodeId === "" || info.nodeId.length > MAX_NODE_ID_LENGTH)
      throw new PicoletError(
        "invalid",
        `cannot register the CSI driver ${name}: its node ID has ${info.nodeId.length} characters`,
      );
    const topology = info.accessibleTopology?.segments ?? new Map<string, string>();
    if (topology.size > MAX_TOPOLOGY_KEYS)
      throw new PicoletError(
        "invalid",
        `cannot register the CSI driver ${name}: its topology has ${topology.size} keys`,
      );
    this.#drivers.set(name, {
      ...{ name, endpoint, registration, topology },
      nodeId: info.nodeId,
      maxVolumes: Math.max(0, info.maxVolumesPerNode),
      capabilities: new Set(capabilities.map(({ rpc }) => rpc?.type ?? 0)),
    });
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
