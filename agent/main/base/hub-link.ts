/**
 * Everything of a node that belongs to a hub. Loaded only where one is configured: TLS and the WebSocket take 3 MiB.
 */
import { join } from "node:path";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { SourceProblem, TunnelReport } from "@picolet/protocol/local-api/status.ts";
import type { Log, Random } from "@picolet/protocol/ports.ts";
import { type ShownDevice, shownDevices } from "@picolet/protocol/tunnel/device-report.ts";
import type { ReviewParams, TokenParams } from "@picolet/protocol/tunnel/stream.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { ClientReviews, ClusterObjects, IssuedToken } from "../../core/hub/cluster-objects.ts";
import { type HubAddress, parseHubAddress, parseHubProxy } from "../../core/hub/hub-address.ts";
import type { OutgoingTelemetry, SampleSource } from "../../core/hub/outgoing-telemetry.ts";
import type { StreamHandlers } from "../../core/hub/tunnel-ports.ts";
import type { DeviceResources } from "../../core/pods/container-devices.ts";
import type { RuntimeRouter } from "../../core/pods/pod-ports.ts";
import type { DecisionRecorder } from "../../core/store/decisions.ts";
import type { Machine, NodeCapacity } from "../../node/machine.ts";
import type { NodeCondition } from "../../node/node-conditions.ts";
import { type CsiState, taintsAtRegistration } from "../../node/node-report.ts";
import { NodeReports } from "../../node/node-reports.ts";
import type { RuntimeReports } from "../../observe/runtime-reports.ts";
import type { CorrectedClock } from "../../security/corrected-clock.ts";
import type { OpenSocket } from "../../security/hub-connection.ts";
import { NodeIdentityOnDisk } from "../../security/node-identity.ts";
import { ApiSource, type PodParser } from "../../sources/api-source.ts";
import { MirrorPods } from "../../sources/mirror-pods.ts";
import type { Store } from "../../store/store.ts";
import { SystemNetworkChanges } from "../../tunnel/dialing/network-changes.ts";
import { TlsDialer } from "../../tunnel/dialing/tls-dialer.ts";
import { KeptFleet } from "../../tunnel/known-fleet.ts";
import { Tunnel } from "../../tunnel/tunnel.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";

export interface HubLinkComponents {
  readonly clock: CorrectedClock;
  readonly random: Random;
  readonly log: Log;
  readonly store: Store;
  readonly decisions: DecisionRecorder;
  readonly telemetry: OutgoingTelemetry;
  readonly parser: PodParser;
}

export interface HubLinkInit {
  readonly configuration: Configuration;
  readonly hub: NonNullable<Configuration["hub"]>;
  readonly rootDir: string;
}

/** Parts of the node that the hub reads. */
export interface LinkedNode {
  readonly machine: Machine;
  readonly capacity: NodeCapacity;
  readonly allocatable: Readonly<Record<string, string>>;
  readonly router: RuntimeRouter;
  readonly runtimes: RuntimeReports;
  readonly conditions: Watch<readonly NodeCondition[]>;
  /** JSON of an `UpdateReport`; undefined: nothing is reported. */
  readonly updates: Watch<string | undefined>;
  readonly csi: Watch<CsiState | undefined>;
  readonly devices: Watch<DeviceResources>;
  readonly listDevices: () => readonly ShownDevice[];
  readonly draDrivers: Watch<string | undefined>;
  readonly addresses: () => readonly string[];
  readonly view: NodeAgentView;
  readonly streams: StreamHandlers;
  readonly samples: SampleSource;
}

/** The kubelet's `--cert-dir` has another layout: one key and one file for each certificate. */
const IDENTITY_FOLDER = "identity";

export class HubLink implements ClusterObjects, ClientReviews {
  readonly #components: HubLinkComponents;
  readonly #init: HubLinkInit;
  readonly #source: ApiSource;
  #tunnel: Tunnel | undefined;
  #identity: NodeIdentityOnDisk | undefined;

  constructor(components: HubLinkComponents, init: HubLinkInit) {
    const { clock, log, store, parser } = components;
    const { objects, desired, statuses, events } = store;
    this.#components = components;
    this.#init = init;
    this.#source = new ApiSource(
      { clock, log, parser, objects, store: desired, statuses, events },
      { nodeName: init.configuration.nodeName },
    );
  }

  get changes(): Watch<unknown> {
    return this.#source.changes;
  }

  get problems(): Watch<readonly SourceProblem[]> {
    return this.#source.problems;
  }

  /** This node's object as the API server has it. */
  get node(): Watch<Readonly<Record<string, unknown>> | undefined> {
    return this.#source.node;
  }

  object(key: string): Readonly<Record<string, unknown>> | undefined {
    return this.#source.object(key);
  }

  keys(kind: string, namespace: string): readonly string[] {
    return this.#source.keys(kind, namespace);
  }

  requestToken(params: TokenParams, signal: AbortSignal): Promise<IssuedToken> {
    if (this.#tunnel === undefined) throw new PicoletError("internal", "a token was asked for before the tunnel stood");
    return this.#tunnel.requestToken(params, signal);
  }

  review(params: ReviewParams, signal: AbortSignal): Promise<unknown> {
    if (this.#tunnel === undefined)
      throw new PicoletError("unavailable", "there is no connection to a hub yet", { retryable: true });
    return this.#tunnel.review(params, signal);
  }

  /** Waits until the hub has every status of a pod. Returns at once while there is no session with a hub. */
  async statusesDelivered(signal: AbortSignal): Promise<void> {
    const { statuses } = this.#components.store;
    for await (const _ of statuses.acknowledged.changes(signal))
      if (this.report().state !== "connected" || statuses.pendingCount() === 0) return;
  }

  report(): TunnelReport {
    return this.#tunnel?.report() ?? { state: "connecting", since: null, rttMs: null };
  }

  /** @returns when the node's certificate expires, in milliseconds since 1970; undefined: it has none */
  certificateExpiresMs(): number | undefined {
    const state = this.#identity?.state.current;
    return state?.kind === "joined" ? state.credentials.notAfterMs : undefined;
  }

  /** Once, when everything else of the node stands. */
  connect(node: LinkedNode): readonly Component[] {
    const { clock, random, log, store, decisions, telemetry } = this.#components;
    const { configuration, hub } = this.#init;
    const { nodeName } = configuration;
    const reports = this.#makeReports(node);
    const fleet = new KeptFleet(store.kept);
    const identity = this.#makeIdentity(fleet);
    this.#identity = identity;
    const { statuses, events, desired } = store;
    const tunnel = new Tunnel(
      {
        clock,
        random,
        log,
        node: {
          objects: this.#source,
          fleet,
          statuses,
          events,
          mirrors: new MirrorPods({ desired: desired.desired }),
          report: reports.report,
          telemetry,
          samples: node.samples,
        },
        identity,
        handlers: node.streams,
        events,
        decisions,
        dialer: new TlsDialer({ clock, identity, openSocket: openerOf(hub.proxy) }),
        network: new SystemNetworkChanges(clock),
      },
      {
        nodeName,
        hubs: hub.server.map(addressOf),
        heartbeatInterval: hub.heartbeatInterval,
        reconnectBackoff: hub.reconnectBackoff,
      },
    );
    this.#tunnel = tunnel;
    return [reports, identity, tunnel];
  }

  #makeReports(node: LinkedNode): NodeReports {
    const { router, runtimes, conditions, updates, csi, devices, addresses, view, machine, capacity, allocatable } =
      node;
    const { listDevices, draDrivers } = node;
    const { clock, log } = this.#components;
    const { configuration } = this.#init;
    const { nodeName, registerNode, nodeLabels, providerID, nodeStatusMaxImages } = configuration;
    return new NodeReports(
      {
        adapters: router.adapters,
        conditions,
        updates,
        csi,
        ...{ devices, draDrivers, shownDevices: () => shownDevices(listDevices()) },
        podsChanged: view.podsChanged,
        addresses,
        runtimeStatus: (adapter) => runtimes.answer(adapter),
        clock,
        log,
      },
      {
        nodeName,
        register: registerNode,
        labels: nodeLabels,
        taints: taintsAtRegistration(configuration),
        providerID,
        maxImages: nodeStatusMaxImages,
        machine,
        capacity,
        allocatable,
        interval: configuration.nodeStatusReportFrequency,
      },
    );
  }

  #makeIdentity(fleet: KeptFleet): NodeIdentityOnDisk {
    const { clock, random, log } = this.#components;
    const { configuration, hub, rootDir } = this.#init;
    return new NodeIdentityOnDisk(
      // A new token means that the node must join the token's fleet.
      { clock, random, log, onJoin: () => fleet.set(""), openSocket: openerOf(hub.proxy) },
      {
        nodeName: configuration.nodeName,
        hubs: hub.server.map(addressOf),
        pins: { caHashes: hub.caHash, caFile: hub.caFile },
        token: hub.token,
        tokenFile: hub.tokenFile,
        folder: join(rootDir, IDENTITY_FOLDER),
      },
    );
  }
}

/** Undefined: hubs are reached directly. */
function openerOf(text: string): OpenSocket | undefined {
  if (text === "") return undefined;
  const proxy = parseHubProxy(text);
  if (typeof proxy === "string")
    throw new PicoletError("internal", `the configuration let a wrong proxy pass: ${proxy}`);
  return async (hub, signal) => {
    const { connectThrough } = await import("../../tunnel/dialing/proxy-connection.ts");
    return await connectThrough(proxy, hub, signal);
  };
}

function addressOf(url: string): HubAddress {
  const address = parseHubAddress(url);
  if (typeof address === "string") throw new PicoletError("internal", `the configuration let a wrong URL pass: ${url}`);
  return address;
}
