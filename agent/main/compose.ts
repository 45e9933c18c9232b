import { createHash } from "node:crypto";
import { mkdirSync, realpathSync, statfsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { aborted } from "../../protocol/async/abort.ts";
import type { Component } from "../../protocol/async/component.ts";
import { supervise } from "../../protocol/async/supervisor.ts";
import { type Watch, WatchSource } from "../../protocol/async/watch.ts";
import type { CgroupSettings } from "../../protocol/cgroup-values.ts";
import { PicoletError } from "../../protocol/errors.ts";
import type { SourceProblem } from "../../protocol/local-api.ts";
import { type Clock, type Log, podUid, type Random, seconds } from "../../protocol/ports.ts";
import { KUBERNETES_VERSION, RELEASED_AT_MS } from "../../protocol/version.ts";
import type { BoardServices } from "../../runtime-adapters/contract/board-services.ts";
import type { KilledContainers } from "../../runtime-adapters/contract/killed-containers.ts";
import type { RuntimeAdapter } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { CriAdapter } from "../../runtime-adapters/cri/cri-adapter.ts";
import { GrpcHealthClient } from "../../runtime-adapters/cri/grpc-health.ts";
import { endLeakedShims } from "../../runtime-adapters/cri/leaked-shims.ts";
import { WasmAdapter } from "../../runtime-adapters/wasm/wasm-adapter.ts";
import { HealthPort } from "../api/health-port.ts";
import { LocalApi } from "../api/local-api.ts";
import type { Configuration, ConfigurationOrigins } from "../config/configuration.ts";
import type { ClusterObjects } from "../core/cluster-objects.ts";
import type { ContainerPlacement } from "../core/container-placement.ts";
import type { NodeShutdownControl } from "../core/node-shutdown-control.ts";
import type { OutgoingTelemetry } from "../core/outgoing-telemetry.ts";
import type { PodObserver } from "../core/pod-observer.ts";
import type { ImageManager, RuntimeChoices } from "../core/pod-ports.ts";
import type { PushedPods } from "../core/pushed-pods.ts";
import type { EventRecorder } from "../core/store.ts";
import { type LoggedContainer, LogRotation } from "../logs/log-rotation.ts";
import { PodLogs } from "../logs/pod-logs.ts";
import { type Machine, maxPids, type NodeCapacity, nodeCapacity, podCapacity, readMachine } from "../node/machine.ts";
import { NodeConditions } from "../node/node-conditions.ts";
import { Pleg } from "../observe/pleg.ts";
import { type CrashBackoffLimits, DEFAULT_CRASH_BACKOFF } from "../plan/crash-backoff.ts";
import type { NodeAllocatable } from "../plan/node-allocatable.ts";
import { HttpGetter } from "../probes/http-getter.ts";
import { LifecycleHooks } from "../probes/lifecycle-hooks.ts";
import { PodProber } from "../probes/pod-prober.ts";
import type { CgroupTree } from "../resources/cgroup-tree.ts";
import type { PodCgroups } from "../resources/pod-cgroups.ts";
import { CorrectedClock } from "../security/corrected-clock.ts";
import { FileSource } from "../sources/file-source.ts";
import { StatusManager } from "../status/status-manager.ts";
import { Store } from "../store/store.ts";
import { expandReferences } from "../volumes/expand.ts";
import { SystemMounter } from "../volumes/mounter.ts";
import { PodEnvironmentOnDisk } from "../volumes/pod-environment.ts";
import { warnOfPod } from "../volumes/pod-warning.ts";
import { PodEvents } from "../workers/pod-events.ts";
import { PodWorkers } from "../workers/pod-workers.ts";
import { NodeAgentView } from "./agent-view.ts";
import { type AgentArguments, DEFAULT_ROOT_DIR } from "./arguments.ts";
import { NodeBoardServices } from "./board-services.ts";
import { makeBudget } from "./budget.ts";
import { lookAtCgroups, makePodCgroups, type NodeCgroups } from "./cgroups.ts";
import { componentPrograms } from "./component-programs.ts";
import { makeEviction } from "./eviction.ts";
import { makeGarbage } from "./garbage.ts";
import { type HealthSources, healthChecks } from "./health-checks.ts";
import type { HubLink } from "./hub-link.ts";
import { IdleCollection } from "./idle-collection.ts";
import { makeImages } from "./images.ts";
import { NodeAddresses } from "./node-addresses.ts";
import { allocatableOf } from "./node-allocatable.ts";
import { makeNodeGuards, type NodeGuards, type PressureSources } from "./node-guards.ts";
import { kernelsOomKills, makeOomWatch } from "./oom.ts";
import { OrphanSweep, type OrphanSweepComponents } from "./orphan-sweep.ts";
import { letGoOf } from "./passing-parts.ts";
import { makePlacement } from "./placement.ts";
import { registryProxies } from "./registry-proxies.ts";
import { runtimeChoices } from "./runtime-choices.ts";
import { RuntimeReports } from "./runtime-reports.ts";
import { NodeRuntimes } from "./runtime-router.ts";
import { SpareGuard } from "./spare-guard.ts";
import { ComponentSwitch, roomBeside } from "./stand-ins.ts";
import { makeStorageKeepers, nodeStorage } from "./storage.ts";
import { StoreEvents } from "./store-events.ts";
import { NodeTelemetry } from "./telemetry.ts";
import { makeNodeUsage } from "./usage.ts";

export interface AgentPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

export interface AgentInit {
  readonly args: AgentArguments;
  readonly configuration: Configuration;
  /** `file`: null when there was none. */
  readonly origins: ConfigurationOrigins & { readonly file: string | null };
  /** Told who ends the pods when the machine goes down; asked for a new agent when this one has grown too large. */
  readonly stops?: { through(shutdown: NodeShutdownControl): void; beginAnew(): void };
}

/** The kubelet's `--seccomp-profile-root` below its root directory. */
const SECCOMP_FOLDER = "seccomp";
/** All logs together may take this share of the file system they are on: a full disk would stop everything else. */
const LOG_SHARE_OF_DISK = 0.2;
/** A look at all processes takes some 10 ms on a small board. */
const SHIM_COLLECTION_INTERVAL = seconds(30);

/** What this node is, and where its things are; found out once. */
interface Node {
  readonly machine: Machine;
  readonly capacity: NodeCapacity;
  readonly maxPids: number | undefined;
  readonly share: NodeAllocatable;
  readonly podCgroups: NodeCgroups;
  readonly cgroups: CgroupTree;
  readonly cgroupSettings: CgroupSettings;
  readonly addresses: NodeAddresses;
}

async function lookAround(ports: AgentPorts, { args, configuration }: AgentInit, signal: AbortSignal): Promise<Node> {
  const machine = await readMachine();
  const capacity = await nodeCapacity(machine, args.rootDir, podCapacity(configuration, machine));
  const pids = await maxPids();
  const share = allocatableOf(configuration, capacity, pids);
  const { memoryBytes } = machine;
  const podCgroups = await lookAtCgroups(ports, { configuration, share, memoryBytes }, signal);
  return {
    machine,
    capacity,
    maxPids: pids,
    share,
    podCgroups,
    cgroups: podCgroups.tree,
    cgroupSettings: podCgroups.settings,
    addresses: new NodeAddresses(ports.clock),
  };
}

/**
 * Tells this agent's sandboxes from those of another on the same runtime. By the root directory, of which each agent has
 * its own: a board that is given another name must still find its pods, and `npm start` must leave a real node's alone.
 */
function ownerOf(rootDir: string): string {
  if (rootDir === DEFAULT_ROOT_DIR) return "picolet";
  return `picolet-${createHash("sha256").update(resolve(rootDir)).digest("hex").slice(0, 16)}`;
}

interface RuntimeSurroundings {
  readonly events: EventRecorder;
  readonly services: BoardServices;
  readonly killed: KilledContainers;
}

function makeRuntimes(
  { clock, log }: AgentPorts,
  { args, configuration }: AgentInit,
  node: Node,
  { events, services, killed }: RuntimeSurroundings,
): NodeRuntimes {
  // The bundles lie side by side; this is one of them.
  const programs = dirname(realpathSync(process.argv[1] ?? ""));
  const { wasm, containerRuntimeEndpoint: endpoint, imageServiceEndpoint } = configuration;
  const components = new WasmAdapter(
    {
      ...{ clock, log, cgroups: node.cgroups },
      hostIps: () => node.addresses.current,
      warn: (pod, reason, message) => warnOfPod(events, pod, reason, message),
      services,
    },
    {
      rootDirectory: join(args.rootDir, "wasm"),
      // What runs is forgotten at a reboot, as the processes are: beside the socket, on a tmpfs.
      stateDirectory: join(dirname(args.socketPath), "wasm"),
      nodePath: process.execPath,
      ...componentPrograms(programs),
      cgroupSettings: node.cgroupSettings,
      transpileCgroup: join("/", configuration.cgroupRoot, "picolet-transpile"),
      pullCgroup: join("/", configuration.cgroupRoot, "picolet-pull"),
      registries: wasm.registries.map(({ caFile, ...each }) => ({ ...each, caFile: caFile || undefined })),
      caFile: wasm.http.caFile || undefined,
      p3: wasm.p3,
      proxies: registryProxies(wasm.proxy, process.env, log),
      spareCgroup: join("/", configuration.cgroupRoot, "picolet-spare"),
      denseCgroup: join("/", configuration.cgroupRoot, "picolet-dense"),
      limits: {
        maxComponentBytes: wasm.maxComponentSize,
        transpileMemoryLimitBytes: wasm.transpileMemory,
        transpileTimeout: wasm.transpileTimeout,
        startTimeout: wasm.startTimeout,
        spareRunners: wasm.spareRunners,
      },
    },
  );
  if (endpoint === "") return new NodeRuntimes(components, undefined);
  const containers = new CriAdapter(
    { clock, log, killed },
    {
      endpoint,
      ...(imageServiceEndpoint === "" ? {} : { imageEndpoint: imageServiceEndpoint }),
      owner: ownerOf(args.rootDir),
      requestTimeoutMs: configuration.runtimeRequestTimeout,
      cgroups: node.cgroupSettings,
      cgroupDriver: node.podCgroups.driver,
      memoryCapacityBytes: node.machine.memoryBytes,
      seccompProfileRoot: join(args.rootDir, SECCOMP_FOLDER),
      seccompDefault: configuration.seccompDefault,
      limitedSwap: configuration.memorySwap.swapBehavior === "LimitedSwap",
      singleProcessOomKill: configuration.singleProcessOOMKill ?? false,
    },
  );
  return new NodeRuntimes(components, containers);
}

type PodSource = Component & { readonly problems: Watch<readonly SourceProblem[]> };

async function makeSources(
  { clock, random, log }: AgentPorts,
  configuration: Configuration,
  { desired: store, events }: Store,
): Promise<readonly PodSource[]> {
  const { staticPodPath: path, nodeName, staticPodURL: url } = configuration;
  const components = { clock, random, log, store, events };
  const checkFrequency = configuration.fileCheckFrequency;
  const files = path === "" ? [] : [new FileSource(components, { path, nodeName, checkFrequency })];
  if (url === "") {
    // Pods of a URL that is no longer configured: nobody would ever say that they are not wanted.
    const isLeft = [...store.desired.current.pods.values()].some(({ source }) => source === "http");
    if (isLeft) store.replace("http", store.revision("http") + 1, []);
    return files;
  }
  const [{ HttpSource }, { SYSTEM_CA_FILES: caFiles }] = await Promise.all([
    import("../sources/http-source.ts"),
    import("../sources/http-fetch.ts"),
  ]);
  const { httpCheckFrequency, staticPodURLHeader: headers } = configuration;
  return [
    ...files,
    new HttpSource(components, { url, headers, checkFrequency: httpCheckFrequency, nodeName, caFiles }),
  ];
}

function crashBackoffOf({ crashLoopBackOff }: Configuration): CrashBackoffLimits {
  const { initialContainerRestartPeriod: initial, maxContainerRestartPeriod: max } = crashLoopBackOff;
  return { ...DEFAULT_CRASH_BACKOFF, initial, max };
}

/** An adapter's life is that of the agent; it does nothing by itself. */
function whileItRuns(adapter: RuntimeAdapter): Component {
  return {
    name: `${adapter.name} runtime`,
    run: (signal) => aborted(signal),
    [Symbol.asyncDispose]: async () => await adapter[Symbol.asyncDispose](),
  };
}

interface Observed {
  readonly adapters: readonly RuntimeAdapter[];
  readonly observer: PodObserver;
  readonly statuses: StatusManager;
}

function makeLogRotation({ clock, log }: AgentPorts, configuration: Configuration, observed: Observed): LogRotation {
  const { adapters, observer, statuses } = observed;
  const {
    podLogsDir,
    containerLogMaxSize,
    containerLogMaxFiles,
    containerLogMonitorInterval: interval,
  } = configuration;
  const { blocks, bsize } = statfsSync(podLogsDir);
  const reopen = async ({ uid, id }: LoggedContainer, signal: AbortSignal): Promise<void> => {
    const owner = adapters.find((adapter) => observer.listing(adapter)?.has(uid));
    await owner?.reopenLog(uid, id, signal);
  };
  return new LogRotation(
    {
      containers: () => runningContainers(statuses),
      reopen,
      owns: (uid) => statuses.pods.has(podUid(uid)),
      clock,
      log,
    },
    {
      podLogsDir,
      maxSizeBytes: containerLogMaxSize,
      maxFiles: containerLogMaxFiles,
      interval,
      maxWorkers: configuration.containerLogMaxWorkers,
      totalMaxBytes: Math.floor(blocks * bsize * LOG_SHARE_OF_DISK),
    },
  );
}

/** Containers that run now, as the log rotation needs them. */
function* runningContainers(statuses: StatusManager): Iterable<LoggedContainer> {
  for (const { view } of statuses.pods.values()) {
    for (const { id, logPath, state } of view.observed?.containers ?? []) {
      if (state.kind === "running") yield { uid: view.desired.uid, id, logPath };
    }
  }
}

function makeHealthPorts(
  { clock, log }: AgentPorts,
  { healthzPort, healthzBindAddress, readOnlyPort, address }: Configuration,
  health: HealthSources,
  view: NodeAgentView,
  probeMetrics: () => Iterable<string>,
): HealthPort[] {
  const checks = healthChecks(health);
  const healthz = new HealthPort({ checks, clock, log }, { address: healthzBindAddress, port: healthzPort });
  const readOnly = new HealthPort({ checks, view, probeMetrics, clock, log }, { address, port: readOnlyPort });
  return [...(healthzPort === 0 ? [] : [healthz]), ...(readOnlyPort === 0 ? [] : [readOnly])];
}

/** V8 compacts and drops compiled code that was not used lately. Without `--expose-gc`, as in tests, nothing happens. */
function collectGarbage(): void {
  letGoOf("manifest-pods", "push-source", "shown-configuration");
  globalThis.gc?.({ type: "major", execution: "sync", flavor: "last-resort" });
}

/** What the workers need of this node, and what removes it again when nobody knows it any more. */
/** containerd's shims that nobody can reach any more, when whatever may have left some is over. */
function shimCollection(endpoint: string, changes: Watch<unknown>, { clock, log }: Pick<AgentPorts, "clock" | "log">) {
  if (endpoint === "") return [];
  const collect = (): void => {
    const pids = endLeakedShims(endpoint);
    if (pids.length > 0) log.info("ended shims that containerd has lost", { pids });
  };
  const init = { name: "collection of lost shims", minInterval: SHIM_COLLECTION_INTERVAL };
  return [new IdleCollection({ changes, collect, clock }, init)];
}

function makeSurroundings(
  { clock, log }: AgentPorts,
  { args, configuration }: AgentInit,
  node: Node,
  store: Store,
  link: HubLink | undefined,
  runs: { readonly router: NodeRuntimes; readonly runtimes: RuntimeReports },
  cgroups: PodCgroups,
) {
  const { events } = store;
  const objects = link ?? WITHOUT_CLUSTER;
  const { nodeName, podLogsDir, resolvConf, clusterDNS, clusterDomain } = configuration;
  const { memoryBytes } = node.machine;
  const hostIPs = (): readonly string[] => node.addresses.current;
  return new PodEnvironmentOnDisk(
    {
      cgroups,
      mounter: new SystemMounter(),
      events,
      clock,
      log,
      hostIPs,
      objects,
      ...nodeStorage(configuration, node.machine, objects, runs),
      objectsChanged: link?.changes ?? new WatchSource(undefined),
    },
    {
      rootDir: args.rootDir,
      podLogsDir,
      nodeName,
      resolvConf,
      clusterDNS: { servers: clusterDNS, domain: clusterDomain },
      allocatable: node.share.allocatable,
      memoryBytes,
    },
  );
}

/** What pods get of a cluster that the node is not part of. */
const WITHOUT_CLUSTER: ClusterObjects = {
  object: () => undefined,
  keys: () => [],
  requestToken: () => Promise.reject(new PicoletError("unavailable", "cannot ask for a token: no hub is configured")),
};

/** Undefined: this node belongs to no hub. */
async function makeHubLink(
  { clock, random, log }: Omit<AgentPorts, "clock"> & { readonly clock: CorrectedClock },
  { args, configuration }: AgentInit,
  store: Store,
  telemetry: OutgoingTelemetry,
): Promise<HubLink | undefined> {
  const { hub } = configuration;
  if (hub === null) return undefined;
  const { HubLink } = await import("./hub-link.ts");
  return new HubLink({ clock, random, log, store, telemetry }, { configuration, hub, rootDir: args.rootDir });
}

/** What asks containers how they are, and what runs their hooks. */
function makeProbes({ clock, random }: AgentPorts, node: Node, events: EventRecorder) {
  const http = new HttpGetter();
  const grpc = new GrpcHealthClient({ clock }, { userAgent: `kube-probe/${KUBERNETES_VERSION}` });
  const hostIps = (): readonly string[] => node.addresses.current;
  const told = new PodEvents(events);
  const prober = new PodProber({ clock, random, http, grpc, expand: expandReferences, hostIps, events: told });
  return { prober, hooks: new LifecycleHooks({ clock, http }) };
}

interface WorkersSurroundings {
  readonly store: Store;
  readonly router: NodeRuntimes;
  readonly environment: PodEnvironmentOnDisk;
  readonly pleg: Pleg;
  readonly statuses: StatusManager;
  readonly runtimes: RuntimeReports;
  readonly images: ImageManager;
  readonly choices: RuntimeChoices;
  readonly probes: ReturnType<typeof makeProbes>;
  readonly guards: NodeGuards;
  readonly podResources: PodCgroups;
  readonly placement: ContainerPlacement | undefined;
  readonly objectsChanged: Watch<unknown> | undefined;
}

function makeWorkers(
  { clock, random, log }: AgentPorts,
  configuration: Configuration,
  node: Node,
  {
    store,
    router,
    environment,
    pleg: observer,
    statuses,
    runtimes,
    images,
    choices,
    probes,
    guards,
    podResources,
    placement,
    objectsChanged,
  }: WorkersSurroundings,
): PodWorkers {
  const { desired, events } = store;
  const { admission } = guards;
  return new PodWorkers(
    {
      store: desired,
      router,
      environment,
      images,
      choices,
      observer,
      statuses,
      admission,
      podResources,
      placement,
      objectsChanged,
      ...probes,
      events,
      clock,
      random,
      log,
    },
    {
      crashBackoff: crashBackoffOf(configuration),
      hostIps: () => node.addresses.current,
      runtimeName: (adapter) => runtimes.runtimeName(adapter),
      recursiveReadOnly: environment.recursiveReadOnly,
      terminationMessage: (pod, container, { attempt, state: ended }) =>
        environment.readTerminationMessage(pod, container, attempt, ended.kind === "exited" ? ended.exitCode : 0),
    },
  );
}

/** Builds every part of the agent and runs them until `signal` aborts. @throws what a part that fails throws */
export async function runAgent(machine: AgentPorts, init: AgentInit, signal: AbortSignal): Promise<void> {
  const { args, configuration } = init;
  const clock = new CorrectedClock(machine.clock, { floorMs: RELEASED_AT_MS });
  const { random, log } = machine;
  const ports = { clock, random, log };
  const { nodeName } = configuration;
  const startedAt = clock.wall();
  for (const folder of [args.rootDir, configuration.podLogsDir]) mkdirSync(folder, { recursive: true });
  const { eventRecordQPS: perSecond, eventBurst: burst } = configuration;
  const database = { path: join(args.rootDir, "picolet.db"), nodeName, eventRate: { perSecond, burst } };
  const store = new Store({ clock, log }, database);
  const { desired, events, statuses: outbox, state } = store;
  const node = await lookAround(ports, init, signal);
  const telemetry = new NodeTelemetry({ clock, log }, { rootDir: args.rootDir, settings: configuration.telemetry });
  const link = await makeHubLink(ports, init, store, telemetry);
  const labelsOf = (uid: string) => {
    const pods = [...desired.desired.current.pods.values()];
    return Object.entries(pods.find((each) => (each.pod.metadata.uid ?? each.uid) === uid)?.pod.metadata.labels ?? {});
  };
  const boardServices = new NodeBoardServices(
    { clock, log, store, link, conditions: () => conditions.conditions },
    { configuration, rootDir: args.rootDir },
  );
  const services: BoardServices = { ...boardServices.services, telemetry: () => telemetry.service(labelsOf) };
  const kills = kernelsOomKills(log);
  const router = makeRuntimes(ports, init, node, { events, services, killed: kills });
  const { adapters } = router;
  const pleg = new Pleg({ adapters, clock, random, log });
  const runtimes = new RuntimeReports({ adapters, relists: pleg.health, clock, log });
  const { allocatable } = node.share;
  const budget = makeBudget(
    {
      ...{ clock, log, store, boardServices, adapters, collectGarbage, hierarchies: node.cgroups.hierarchies },
      pods: () => view.pods(),
      podCgroup: (pod) => cgroups.pathOf(pod),
      restart: () => init.stops?.beginAnew(),
      stretch: (factor) => telemetry.stretch(factor),
    },
    { configuration, rootDir: args.rootDir },
  );
  const topology = await makePlacement({ log }, { configuration, rootDir: args.rootDir, ...node });
  const placement = topology?.placement;
  const pressures: PressureSources = () => [eviction.pressure, budget.pressure];
  const apiNode = link?.node ?? new WatchSource(undefined);
  const guards = await makeNodeGuards(
    { ...ports, store, workers: () => workers, router, runtimes, node: apiNode, pressures, placement },
    { configuration, machine: node.machine, allocatable },
  );
  const { shutdown } = guards;
  init.stops?.through(shutdown);
  const conditions = new NodeConditions(
    { health: runtimes.health, shutdown: shutdown.state, pressures, events, clock, log },
    { nodeName },
  );
  const statuses = new StatusManager({ outbox, log });
  const { cgroups, parts: cgroupParts } = await makePodCgroups(
    {
      ...{ clock, log, node: node.podCgroups, events, changes: statuses.changes, placement },
      pods: () => [...desired.desired.current.pods.values()].map(({ pod }) => pod),
      views: () => [...statuses.pods.values()].map((entry) => entry.view),
    },
    { configuration, share: node.share, memoryBytes: node.machine.memoryBytes },
  );
  const environment = makeSurroundings(ports, init, node, store, link, { router, runtimes }, cgroups);
  const probes = makeProbes(ports, node, events);
  const probeMetrics = (): Iterable<string> => probes.prober.metrics();
  const imageParts = await makeImages(
    {
      ...ports,
      events,
      router,
      desired: desired.desired,
      objects: link ?? WITHOUT_CLUSTER,
      objectsChanged: link?.changes ?? new WatchSource(undefined),
      pods: () => view.pods(),
    },
    init,
  );
  const { puller, prefetcher, images } = imageParts;
  const workers = makeWorkers(ports, configuration, node, {
    ...{ store, router, environment, pleg, statuses, runtimes, probes, guards, podResources: cgroups, placement },
    images: environment.withImages(puller, adapters),
    choices: runtimeChoices({ router, puller, store: desired, events, log }),
    objectsChanged: link?.changes,
  });
  const sources = await makeSources(ports, configuration, store);
  const problems = (): SourceProblem[] => [
    ...sources.flatMap((source) => source.problems.current),
    ...(link?.problems.current ?? []),
  ];
  const view = new NodeAgentView(
    {
      ...{ router, runtimes, desired, statuses, events, problems, tunnel: link },
      conditions: conditions.conditions,
      flash: () => budget.report(),
      telemetry: () => telemetry.report(),
    },
    { ...init, capacity: node.capacity, allocatable, memoryBytes: node.machine.memoryBytes, startedAt },
  );
  const allPodsCgroup = configuration.cgroupsPerQOS ? node.podCgroups.names.tier("Guaranteed") : "";
  const usage = makeNodeUsage(
    {
      ...{ clock, log, adapters, hierarchies: node.cgroups.hierarchies },
      pods: () => view.pods(),
      podCgroup: (pod) => cgroups.pathOf(pod),
    },
    {
      ...configuration,
      rootDir: args.rootDir,
      allPodsCgroup,
    },
  );
  const pushed: PushedPods = {
    replace: async (text, options) => {
      const { PushSource } = await import("../sources/push-source.ts");
      return new PushSource({ clock, log, store: desired }, { nodeName }).replace(text, options);
    },
  };
  const health: HealthSources = {
    runtimes: runtimes.health,
    store: state,
    wantedPods: () => desired.desired.current.pods.size,
    workers: () => workers.size,
  };
  const sweeps: OrphanSweepComponents["sweeps"] = [
    (known, stop) => environment.sweep(known, stop),
    (known) => cgroups.sweep(known),
    (known, stop) => environment.sweepLogs({ adapters, clock }, known, stop),
  ];
  await runtimes.askOnce(signal);
  const { capacity, machine: board } = node;
  const logs = new PodLogs({ pods: view, clock: machine.clock });
  const linked = link?.connect({
    machine: board,
    capacity,
    allocatable,
    router,
    runtimes,
    conditions: conditions.conditions,
    addresses: () => node.addresses.current,
    usage,
    view,
    logs,
    probeMetrics,
    startedAt,
  });
  const logRotation = makeLogRotation(ports, configuration, { adapters, observer: pleg, statuses });
  const garbage = makeGarbage(
    {
      clock,
      log,
      store,
      images: imageParts,
      adapters,
      observer: pleg,
      statuses,
      view,
      usage,
      workers,
      logs: logRotation,
    },
    configuration,
  );
  const switcher =
    router.containers &&
    new ComponentSwitch({
      ...{ ...ports, events, puller, store: desired, adapter: router.components },
      pods: () => view.pods(),
      changes: statuses.changes,
      conditions: conditions.conditions,
      hasRoom: roomBeside(configuration, node.machine.memoryBytes),
      ...{ containers: router.containers, observer: pleg },
      mover: () => workers,
    });
  const eviction = makeEviction(
    {
      ...{ clock, log, events, usage, ender: workers, switcher, reclaim: garbage.reclaim },
      ...{ cgroups: node.cgroups, podCgroups: cgroups },
      release: (pod, stop) => environment.release(pod, stop),
      pods: () => view.pods(),
    },
    { configuration, allPodsCgroup, maxPids: node.maxPids },
  );
  const oomWatch = makeOomWatch(
    {
      ...{ clock, log, events, kills },
      uids: () => statuses.pods.keys(),
      killed: (uid) => {
        for (const adapter of adapters) if (pleg.listing(adapter)?.has(uid)) workers.podChanged(adapter, uid, "hint");
      },
    },
    configuration,
  );
  // Disposed of in reverse: the store is closed last, when nobody writes any more.
  const parts: readonly Component[] = [
    store,
    telemetry,
    boardServices,
    ...adapters.map(whileItRuns),
    new StoreEvents({ state, events }, { nodeName }),
    new LocalApi(
      { clock, log, view, logs, pushed, images, shutdown, keyvalue: () => boardServices.keyvalueBuckets() },
      { socketPath: args.socketPath },
    ),
    ...makeHealthPorts(ports, configuration, health, view, probeMetrics),
    conditions,
    runtimes,
    pleg,
    probes.prober,
    ...guards.parts,
    ...cgroupParts,
    workers,
    prefetcher,
    environment.projected,
    ...sources,
    logRotation,
    ...garbage.parts,
    eviction,
    ...(switcher === undefined ? [] : [switcher]),
    oomWatch,
    ...makeStorageKeepers(
      { clock, log, events },
      { rootDir: args.rootDir, podLogsDir: configuration.podLogsDir },
      { view, usage, statuses, adapters, observer: pleg, ender: workers, environment },
    ),
    new OrphanSweep({ adapters, observer: pleg, store: desired, sweeps, clock, log }),
    ...(topology?.parts({ router, observer: pleg, statuses, desired, clock }) ?? []),
    ...(linked ?? []),
    ...budget.parts,
    new SpareGuard({ adapters, pressure: eviction.pressure }),
    new IdleCollection({ changes: statuses.changes, collect: collectGarbage, clock }),
    ...shimCollection(configuration.containerRuntimeEndpoint, statuses.changes, { clock, log }),
  ];
  await supervise(parts, { clock, log }, signal);
}
