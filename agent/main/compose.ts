import type { Component } from "@picolet/protocol/async/component.ts";
import { supervise } from "@picolet/protocol/async/supervisor.ts";
import { changesOf } from "@picolet/protocol/async/watch.ts";
import type { SourceProblem } from "@picolet/protocol/local-api/status.ts";
import { IdleCollection } from "../budget/idle-collection.ts";
import { anonBytes } from "../budget/own-memory.ts";
import { ShimCollection } from "../budget/shim-collection.ts";
import { SpareGuard } from "../budget/spare-guard.ts";
import { unloadModules } from "../budget/unload-modules.ts";
import type { BoardHealth } from "../node/board-health.ts";
import { NodeConditions } from "../node/node-conditions.ts";
import type { PluginHandlers } from "../plugins/plugin-handler.ts";
import { StoreEvents } from "../store/store-events.ts";
import type { StoreState } from "../store/store-file.ts";
import { type AgentBase, makeBase } from "./base/agent-base.ts";
import type { NodeCluster } from "./base/cluster.ts";
import type { LinkedNode } from "./base/hub-link.ts";
import type { StreamedNode } from "./base/make-node-streams.ts";
import { NodeBoardServices } from "./base/node-board-services.ts";
import { NodeStreamsOnDemand } from "./base/node-streams-on-demand.ts";
import { NodeDevices } from "./devices/node-devices.ts";
import { makeLocalServers } from "./local-ends.ts";
import { nodeMetrics } from "./metrics/node-metrics.ts";
import type { AgentInit, AgentPorts } from "./node/agent-init.ts";
import { NodeAgentView } from "./node/node-agent-view.ts";
import { makeNodeUsageSampler, type NodeUsageSampler } from "./node/node-usage.ts";
import { podLogs } from "./node/pod-logs-on-demand.ts";
import { SecretsAtRest } from "./node/secrets-at-rest.ts";
import { whyOnDemand } from "./node/why-on-demand.ts";
import type { NodePage, PagedNode } from "./page/make-page.ts";
import { csiPlugins } from "./plugins/csi-plugins.ts";
import { PluginsOnDemand } from "./plugins/plugins-on-demand.ts";
import { makePods, type Pods } from "./pods/make-pods.ts";
import {
  makeNodeGuards,
  type NodeGuards,
  type NodeGuardsComponents,
  type PressureSources,
} from "./pods/node-guards.ts";
import { makePlacement } from "./pods/placement.ts";
import { isActive, PodResourcesOnDemand } from "./pods/pod-resources-on-demand.ts";
import { makeSources } from "./pods/pod-sources.ts";
import { adapterComponent, makeRuntimes, type Runtimes } from "./pods/runtimes.ts";
import { SamplesOnDemand } from "./samples/samples-on-demand.ts";
import { UpdatesOnDemand } from "./updates/updates-on-demand.ts";
import { type Budget, type BudgetComponents, makeBudget } from "./upkeep/budget.ts";
import { makeUpkeep } from "./upkeep/upkeep.ts";

/**
 * Builds every part of the agent and runs them until `signal` aborts. What a part asks of one that is made after it, it
 * asks through a function.
 * @throws what a part that fails throws
 */
export async function runAgent(machine: AgentPorts, init: AgentInit, signal: AbortSignal): Promise<void> {
  const base = await makeBase(machine, init, signal);
  const { ports, store, node, telemetry, cluster } = base;
  const { clock, log } = ports;
  const { configuration } = init;
  const { rootDir } = init.args;
  const boardServices = new NodeBoardServices(
    { clock, log, store, link: cluster.link, telemetry, conditions: () => conditions.conditions },
    { configuration, rootDir },
  );
  const runtimes = makeRuntimes(base, boardServices.services);
  const budget = makeNodeBudget(base, runtimes, {
    boardServices,
    pods: () => view.pods(),
    podCgroup: (pod) => pods.cgroups.pathOf(pod),
  });
  const devices = new NodeDevices(base, {
    placement: () => topology?.placement,
    workers: () => pods.workers,
    pods: () => view.pods(),
    canRuntimeApplyCdi: async (signal) => (await runtimes.cri?.appliesCdi(signal)) === true,
  });
  await devices.open();
  const topology = await makePlacement({ log, devices }, { configuration, rootDir, ...node });
  const placement = devices;
  const { nodeName } = configuration;
  const secrets = new SecretsAtRest({ keys: base.keys, store }, { nodeName });
  const boardHealth = await boardHealthOf(base, machine);
  const pressures: PressureSources = () => [
    upkeep.eviction.pressure,
    budget.pressure,
    secrets.pressure,
    ...boardHealth.map((each) => each.conditions),
  ];
  const guards = await makeGuards(base, runtimes, { workers: () => pods.workers, pressures, placement });
  init.stops?.through(guards.shutdown);
  const conditions = makeConditions(base, runtimes, guards, pressures);
  const pods = await makePods(base, { runtimes, guards, placement, devices, pods: () => view.pods() });
  const sources = await makeSources(base);
  const problems = (): SourceProblem[] => [
    ...sources.flatMap((source) => source.problems.current),
    ...(cluster.link?.problems.current ?? []),
  ];
  const warnings = (): SourceProblem[] => sources.flatMap((source) => source.warnings.current);
  const { shutdown } = guards;
  const view = makeView(base, { devices, runtimes, pods, conditions, budget, secrets, shutdown, problems, warnings });
  const usage = makeUsage(base, runtimes, pods, view);
  await runtimes.reports.askOnce(signal);
  const logs = podLogs({ pods: view, clock: machine.clock });
  const updates = new UpdatesOnDemand(base, { pods, view, shutdown: guards.shutdown });
  const pulls = () => pods.images.images.pulls;
  const why = whyOnDemand({ ...base.ports, box: base.decisions, view: () => view, pulls });
  const metrics = nodeMetrics(base, { usage, view, conditions: conditions.conditions });
  const page = await pageOf(base, machine, { view, usage, logs, images: pods.images.images, workers: pods.workers });
  const streamed = { runtimes, pods, conditions, view, usage, logs, why, metrics, page: page?.answers };
  const streams = makeStreams(base, streamed);
  const samples = new SamplesOnDemand(base, { usage, flash: () => budget.report() });
  const linked = linkNode(base, {
    runtimes,
    pods,
    conditions,
    view,
    streams: streams.handlers(),
    samples,
    updates,
    devices,
  });
  const upkeep = makeUpkeep(base, { runtimes, pods, view, usage, conditions: conditions.conditions });
  const { statuses } = pods;
  // Disposed of in reverse: the store is closed last, after all parts that write to it.
  const parts: readonly Component[] = [
    // Its last record says that the agent has ended.
    base.decisions,
    store,
    telemetry,
    boardServices,
    ...runtimes.adapters.map(adapterComponent),
    new StoreEvents({ state: store.state, events: store.events }, { nodeName }),
    secrets,
    ...makeLocalServers(base, {
      pods,
      view,
      logs,
      shutdown: guards.shutdown,
      boardServices,
      devices,
      updates,
      streams,
      why,
    }),
    conditions,
    ...boardHealth,
    runtimes.reports,
    runtimes.pleg,
    pods.prober,
    ...guards.parts,
    ...pods.cgroupParts,
    pods.workers,
    pods.images.prefetcher,
    ...pods.environment.volumeTasks,
    new PluginsOnDemand({ ...base.ports, handlers: pluginHandlers(pods, devices) }, { rootDir }),
    ...sources,
    ...upkeep.parts,
    ...(topology?.parts({
      router: runtimes.router,
      observer: runtimes.pleg,
      statuses,
      desired: store.desired,
      clock,
    }) ?? []),
    ...linked,
    ...(page?.parts ?? []),
    ...(cluster.link === undefined ? [] : [samples, pods.draReport]),
    updates,
    devices,
    podResources(base, { pods, view, devices, topology }),
    ...budget.parts,
    new SpareGuard({ adapters: runtimes.adapters, pressure: upkeep.eviction.pressure }),
    new IdleCollection({
      ...{ memory: anonBytes, clock },
      // Also of plugins and drivers, which are loaded with the first of them.
      changes: changesOf(
        [statuses.changes, devices.changes, pods.environment.csi.state, pods.draReport.report],
        signal,
      ),
      collect: (after) => collectGarbage(cluster, after),
      collectYoung: () => globalThis.gc?.({ type: "minor" }),
    }),
    ...(runtimes.cri === undefined
      ? []
      : [new ShimCollection({ cri: runtimes.cri, changes: statuses.changes, clock, log })]),
  ];
  await supervise(parts, { clock, log }, signal);
}

/** Undefined where the configuration has it off: nothing of it is loaded then. */
async function pageOf(base: AgentBase, machine: AgentPorts, node: PagedNode): Promise<NodePage | undefined> {
  if (!base.init.configuration.page.enabled) return undefined;
  const { makePage } = await import("./page/make-page.ts");
  return makePage(base, machine, node);
}

/** Plugins of the node by their type. */
const pluginHandlers = ({ environment: { csi }, draPlugins }: Pods, devices: NodeDevices): PluginHandlers => ({
  DevicePlugin: () => devices.plugins(),
  DRAPlugin: draPlugins,
  CSIPlugin: async () => csiPlugins(csi),
});

/** The podresources API: what pods hold of the node's CPUs, memory, devices and claims. */
function podResources(
  { ports: { clock, log, counts }, init }: AgentBase,
  { pods, view, devices, topology }: ResourceHolders,
): PodResourcesOnDemand {
  const active = () => view.pods().filter(isActive);
  return new PodResourcesOnDemand(
    {
      ...{ clock, log, counts },
      open: () => pods.claims.open(),
      pods: () => active().map(({ desired }) => desired),
      cpuset: (pod, container) => devices.cpuset(pod, container),
      memory: (uid, container) => topology?.held.memory(uid, container) ?? [],
      claims: (pod, container) => pods.claims.listed(pod, container),
      devices: () => devices.list().map(({ device, ...held }) => ({ ...held, ...device })),
      allocatable: () => topology?.held.allocatable() ?? { cpus: [], memory: [] },
    },
    { rootDir: init.args.rootDir },
  );
}

interface ResourceHolders {
  readonly pods: Pods;
  readonly view: NodeAgentView;
  readonly devices: NodeDevices;
  readonly topology: Awaited<ReturnType<typeof makePlacement>>;
}

/** Empty where the configuration has it off: nothing of it is loaded then. */
async function boardHealthOf(
  { ports: { clock }, init: { args, configuration } }: AgentBase,
  { clock: machine }: AgentPorts,
): Promise<readonly BoardHealth[]> {
  if (!configuration.boardHealth.enabled) return [];
  const { makeBoardHealth } = await import("./node/make-board-health.ts");
  return [makeBoardHealth({ clock, machine }, { configuration, rootDir: args.rootDir })];
}

function makeNodeBudget(
  { ports: { clock, log }, init, store, decisions, node, telemetry, cluster }: AgentBase,
  { adapters }: Runtimes,
  pods: Pick<BudgetComponents, "boardServices" | "pods" | "podCgroup">,
): Budget {
  return makeBudget(
    {
      ...{ ...pods, clock, log, store, adapters, hierarchies: node.cgroups.hierarchies },
      collectGarbage: () => collectGarbage(cluster, "burst"),
      restart: () => init.stops?.restart(),
      stretch: (factor) => {
        telemetry.stretch(factor);
        decisions.stretch(factor);
      },
    },
    { configuration: init.configuration, rootDir: init.args.rootDir },
  );
}

/**
 * V8 compacts, by two collections in a row, and drops compiled code that has not run for three: after a burst all of
 * it, at rest what has not run since the last time. It is not "regular" collections, which give back no page that holds
 * anything. Without `--expose-gc`, as in tests, nothing happens.
 */
function collectGarbage({ unloadParser }: NodeCluster, after: "burst" | "rest"): void {
  unloadParser();
  unloadModules("manifest-pods", "push-source", "shown-configuration", "history-ring");
  for (let count = after === "burst" ? 2 : 1; count > 0; count -= 1)
    globalThis.gc?.({ type: "major", execution: "sync", flavor: "last-resort" });
}

function makeGuards(
  { ports, init, store, decisions, node, cluster }: AgentBase,
  { router, reports }: Runtimes,
  asked: Pick<NodeGuardsComponents, "workers" | "pressures" | "placement">,
): Promise<NodeGuards> {
  const { machine, share } = node;
  return makeNodeGuards(
    {
      ...{ ...ports, ...asked, store, decisions, router, runtimes: reports, node: cluster.node },
      statusesDelivered: (signal) => cluster.link?.statusesDelivered(signal) ?? Promise.resolve(),
    },
    { configuration: init.configuration, machine, allocatable: share.allocatable },
  );
}

function makeConditions(
  { ports: { clock, log }, init, store: { events }, decisions }: AgentBase,
  { reports: { health } }: Runtimes,
  { shutdown }: NodeGuards,
  pressures: PressureSources,
): NodeConditions {
  const { nodeName } = init.configuration;
  const components = { health, shutdown: shutdown.state, pressures, events, decisions, clock, log };
  return new NodeConditions(components, { nodeName });
}

/** Parts of the node that the local API and the hub read. */
interface ShownNode {
  readonly runtimes: Runtimes;
  readonly pods: Pods;
  readonly conditions: NodeConditions;
}

function makeView(
  { ports: { clock }, init, startedAt, store, decisions, node, telemetry, cluster }: AgentBase,
  shown: ShownNode & {
    readonly devices: NodeDevices;
    readonly budget: Budget;
    readonly secrets: SecretsAtRest;
    readonly shutdown: NodeGuards["shutdown"];
    readonly problems: () => readonly SourceProblem[];
    readonly warnings: () => readonly SourceProblem[];
  },
): NodeAgentView {
  const { devices, runtimes, pods, conditions, budget, secrets, shutdown, problems, warnings } = shown;
  const { desired, events, state } = store;
  const { capacity, share, machine } = node;
  const since = clock.monotonic();
  const upMs = (): number => clock.monotonic() - since;
  return new NodeAgentView(
    {
      ...{
        router: runtimes.router,
        runtimes: runtimes.reports,
        desired,
        statuses: pods.statuses,
        events,
        problems,
        warnings,
      },
      devices: devices.changes,
      tunnel: cluster.link,
      conditions: conditions.conditions,
      facts: () => ({
        runtimes: runtimes.reports.health.current,
        isShuttingDown: shutdown.isShuttingDown,
        storeProblem: storeProblem(state.current),
        podsWithoutWorker: Math.max(0, desired.desired.current.pods.size - pods.workers.size),
        nowMs: clock.wall().getTime(),
        isMachineClockRight: !clock.isConfirmed || clock.isMachineRight,
        kernelPanic: decisions.kernelPanic,
      }),
      flash: () => budget.report(),
      telemetry: () => telemetry.report(),
      secretsAtRest: () => secrets.report(),
    },
    { ...init, capacity, allocatable: share.allocatable, memoryBytes: machine.memoryBytes, startedAt, upMs },
  );
}

function storeProblem(state: StoreState): string | undefined {
  if (state.kind === "durable") return undefined;
  return `${state.kind === "unwritable" ? "cannot be written to" : "is in memory only"}: ${state.reason}`;
}

function makeUsage(
  { ports: { clock, log }, init, node }: AgentBase,
  { adapters }: Runtimes,
  { cgroups, environment }: Pods,
  view: NodeAgentView,
): NodeUsageSampler {
  return makeNodeUsageSampler(
    {
      ...{ clock, log, adapters, hierarchies: node.cgroups.hierarchies },
      pods: () => view.pods(),
      podCgroup: (pod) => cgroups.pathOf(pod),
      driverVolumes: ({ desired }) => environment.csi.stats(desired),
    },
    { ...init.configuration, rootDir: init.args.rootDir, allPodsCgroup: node.allPodsCgroup },
  );
}

function makeStreams(
  { ports, init, startedAt, node }: AgentBase,
  shown: ShownNode & Pick<StreamedNode, "view" | "usage" | "logs" | "why" | "metrics" | "page">,
): NodeStreamsOnDemand {
  const { runtimes, pods, conditions, view, usage, logs, why, metrics, page } = shown;
  return new NodeStreamsOnDemand(
    {
      ...ports,
      node: {
        ...{ machine: node.machine, router: runtimes.router, view, usage, logs, why, startedAt, page },
        conditions: conditions.conditions,
        ...{ metrics, counts: ports.counts },
        probeMetrics: (format) => pods.prober.metrics(format),
      },
    },
    { configuration: init.configuration, rootDir: init.args.rootDir },
  );
}

/** The hub, from now on, where this node has one. */
function linkNode(
  { node, cluster }: AgentBase,
  shown: ShownNode &
    Pick<LinkedNode, "view" | "streams" | "samples"> & {
      readonly updates: UpdatesOnDemand;
      readonly devices: NodeDevices;
    },
): readonly Component[] {
  const { runtimes, pods, conditions, view, streams, samples, updates, devices } = shown;
  const { machine, capacity, share, hostIps: addresses } = node;
  const { router, reports } = runtimes;
  const linked = cluster.link?.connect({
    ...{ machine, capacity, allocatable: share.allocatable, addresses, router, runtimes: reports },
    ...{ view, streams, samples },
    conditions: conditions.conditions,
    updates: updates.report,
    csi: pods.environment.csi.state,
    devices: devices.changes,
    listDevices: () =>
      devices.list().map(({ resource, device: { id, isHealthy } }) => ({ resource, device: id, isHealthy })),
    draDrivers: pods.draReport.report,
  });
  return linked ?? [];
}
