import { statfsSync } from "node:fs";
import { freemem } from "node:os";
import { join } from "node:path";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type {
  ConfigAnswer,
  FlashReport,
  IsolationAnswer,
  NodeCondition,
  ResourceReport,
  SecretsAtRestReport,
  SourceProblem,
  StatusAnswer,
  TelemetryReport,
  TunnelReport,
} from "@picolet/protocol/local-api/status.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentView, ImageStore, NodeView } from "../../api/agent-view.ts";
import { anonBytes } from "../../budget/own-memory.ts";
import type { Configuration, ConfigurationOrigins } from "../../config/configuration.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { DeviceResources } from "../../core/pods/container-devices.ts";
import type { RuntimeRouter } from "../../core/pods/pod-ports.ts";
import type { DesiredStore, EventStore } from "../../core/store/store-ports.ts";
import type { NodeCapacity } from "../../node/machine.ts";
import type { RuntimeReports } from "../../observe/runtime-reports.ts";
import type { PodEntry, StatusManager } from "../../status/status-manager.ts";
import type { AgentArguments } from "./agent-init.ts";

export interface NodeAgentViewComponents {
  readonly router: RuntimeRouter;
  readonly runtimes: RuntimeReports;
  readonly desired: DesiredStore;
  readonly statuses: StatusManager;
  readonly conditions: Watch<readonly NodeCondition[]>;
  readonly facts: AgentView["facts"];
  readonly events: EventStore;
  readonly problems: () => readonly SourceProblem[];
  readonly warnings: () => readonly SourceProblem[];
  readonly flash: () => FlashReport;
  readonly telemetry: () => TelemetryReport;
  readonly secretsAtRest: () => SecretsAtRestReport | null;
  readonly devices: Watch<DeviceResources>;
  /** Undefined: this node belongs to no hub. */
  readonly tunnel: { report(): TunnelReport } | undefined;
}

export interface NodeAgentViewInit {
  readonly args: AgentArguments;
  readonly configuration: Configuration;
  readonly origins: ConfigurationOrigins & { readonly file: string | null };
  readonly capacity: NodeCapacity;
  readonly allocatable: Readonly<Record<string, string>>;
  readonly memoryBytes: number;
  readonly startedAt: Date;
  readonly upMs: () => number;
}

/** Gathers the local API's answers from all parts of the agent. */
export class NodeAgentView implements AgentView {
  readonly #components: NodeAgentViewComponents;
  readonly #init: NodeAgentViewInit;

  constructor(components: NodeAgentViewComponents, init: NodeAgentViewInit) {
    this.#components = components;
    this.#init = init;
  }

  get events(): EventStore {
    return this.#components.events;
  }

  get podsChanged(): Watch<unknown> {
    return this.#components.statuses.changes;
  }

  node(): NodeView {
    return { name: this.#init.configuration.nodeName, conditions: this.#components.conditions.current };
  }

  facts(): ReturnType<AgentView["facts"]> {
    return this.#components.facts();
  }

  runtimes(): RuntimeReports["reports"] {
    return this.#components.runtimes.reports;
  }

  /** Pods with a worker, and desired pods without one yet. */
  pods(): readonly AgentPod[] {
    const entries = this.#components.statuses.pods;
    const { pods, removed } = this.#components.desired.desired.current;
    const known = [...entries.values()].map((entry) => this.#podOf(entry.view.desired, entry));
    const unseen = [...pods.values(), ...removed.values()].filter(({ uid }) => !entries.has(uid));
    return [...known, ...unseen.map((desired) => this.#podOf(desired, undefined))];
  }

  async isolation({ desired }: AgentPod, signal: AbortSignal): Promise<IsolationAnswer["containers"]> {
    return (await this.#runtimeOf(desired)?.isolation?.(desired.uid, signal)) ?? [];
  }

  problems(): readonly SourceProblem[] {
    return this.#components.problems();
  }

  warnings(): readonly SourceProblem[] {
    return this.#components.warnings();
  }

  tunnel(): TunnelReport {
    return this.#components.tunnel?.report() ?? { state: "disabled", since: null, rttMs: null };
  }

  resources(): ResourceReport {
    const { capacity, allocatable, memoryBytes } = this.#init;
    const { rootDir } = this.#init.args;
    const disk = statfsSync(rootDir);
    const { current: devices } = this.#components.devices;
    return {
      capacity: { ...capacity, ...devices.capacity },
      allocatable: { ...allocatable, ...devices.allocatable },
      memoryBytes,
      memoryAvailableBytes: freemem(),
      diskBytes: disk.blocks * disk.bsize,
      diskAvailableBytes: disk.bavail * disk.bsize,
    };
  }

  agent(): StatusAnswer["agent"] {
    const { startedAt, upMs } = this.#init;
    const budgetBytes = this.#init.configuration.budget.memoryBytes;
    const rssBytes = process.memoryUsage.rss();
    const report = { rssBytes, budgetBytes, anonBytes: anonBytes(), version: VERSION };
    return { ...report, startedAt: startedAt.toISOString(), upMs: Math.floor(upMs()) };
  }

  flash(): FlashReport {
    return this.#components.flash();
  }

  telemetry(): TelemetryReport {
    return this.#components.telemetry();
  }

  secretsAtRest(): SecretsAtRestReport | null {
    return this.#components.secretsAtRest();
  }

  async configuration(): Promise<ConfigAnswer> {
    const { shownConfiguration } = await import("../../config/shown-configuration.ts");
    const { configuration, origins } = this.#init;
    return { configuration: shownConfiguration(configuration), ...origins };
  }

  /** Components first: an archive that holds none is left to the containers' runtime. */
  imageStores(): readonly ImageStore[] {
    return [...this.#components.router.adapters].reverse().map(({ name, images }) => ({ name, images }));
  }

  #podOf(desired: DesiredPod, entry: PodEntry | undefined): AgentPod {
    const { namespace, name } = desired.pod.metadata;
    const worker = entry?.view.worker;
    return {
      desired,
      status: entry?.status,
      terminatingSinceMs: worker?.kind === "terminating" ? worker.sinceMs : undefined,
      endsAs: worker?.kind === "finished" ? worker.outcome.phase : undefined,
      runtime: this.#runtimeOf(desired)?.name ?? "",
      containers: entry?.view.observed?.containers ?? [],
      logDirectory: join(this.#init.configuration.podLogsDir, `${namespace}_${name}_${desired.uid}`),
    };
  }

  #runtimeOf(pod: DesiredPod): RuntimeAdapter | undefined {
    try {
      return this.#components.router.adapterFor(pod);
    } catch {
      // Its pod has an event and a status that say so.
      return undefined;
    }
  }
}
