/** The cgroups of this node's pods: which there are, who makes them, and what they get. */
import { join } from "node:path";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { type CgroupDriver, type CgroupNames, cgroupNames } from "@picolet/protocol/cgroup/cgroup-names.ts";
import type { CgroupSettings, NodeCgroupSettings } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { runtimeCgroupDriver } from "@picolet/runtime-cri/cgroup-driver.ts";
import { readRuntimeMachine } from "@picolet/runtime-cri/pods/runtime-machine.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import type { ContainerPlacement } from "../../core/pods/container-placement.ts";
import { type EventRecorder, nodeReference } from "../../core/store/store-ports.ts";
import type { NodeAllocatable } from "../../plan/node/node-allocatable.ts";
import type { PodView } from "../../plan/pod-view.ts";
import { isResizing } from "../../plan/resize-status.ts";
import { type CgroupHierarchies, detectCgroups } from "../../resources/cgroup-hierarchies.ts";
import { CgroupKeeper } from "../../resources/cgroup-keeper.ts";
import { CgroupTree } from "../../resources/cgroup-tree.ts";
import {
  type MissingController,
  missingControllers,
  removeControllers,
  withheldControllers,
} from "../../resources/missing-controllers.ts";
import { pageBytes } from "../../resources/page-bytes.ts";
import { PodCgroups } from "../../resources/pod-cgroups.ts";
import type { Reservation, ReservedCgroups } from "../../resources/reserved-cgroups.ts";
import { TierCgroups } from "../../resources/tier-cgroups.ts";

interface Ports {
  readonly clock: Clock;
  readonly log: Log;
}

/** Facts about cgroups, detected before any part of the agent is made. */
export interface NodeCgroups {
  readonly tree: CgroupTree;
  readonly driver: CgroupDriver;
  readonly names: CgroupNames;
  readonly settings: CgroupSettings;
  readonly node: NodeCgroupSettings;
  readonly missing: readonly MissingController[];
  readonly units: Disposable | undefined;
}

/** The runtime's answer is there in milliseconds, or it does not run yet: then what is configured counts. */
const RUNTIME_LIMIT = seconds(3);

export async function detectNodeCgroups(
  ports: Ports,
  { configuration, share, memoryBytes }: CgroupsInit,
  signal: AbortSignal,
): Promise<NodeCgroups> {
  const { log } = ports;
  const detected = await detectCgroups();
  const withheld = await withheldControllers(detected);
  const hierarchies = removeControllers(detected, withheld);
  const missing = await missingControllers(hierarchies, withheld);
  for (const { message } of missing) log.warn(message);
  const driver = await driverOf(ports, configuration, signal);
  const units = driver === "systemd" ? await systemdUnits(ports) : undefined;
  return {
    tree: new CgroupTree(ports, { hierarchies, units }),
    driver,
    names: cgroupNames(driver, configuration.cgroupRoot),
    settings: await settingsOf(hierarchies, { configuration, share, memoryBytes }),
    node: nodeSettings(configuration, share),
    missing,
    units,
  };
}

export interface CgroupsInit {
  readonly configuration: Configuration;
  readonly share: Pick<NodeAllocatable, "podLimits" | "capacity" | "kubeReserved" | "systemReserved">;
  /** The node's. */
  readonly memoryBytes: number;
}

/** The runtime's own driver counts, as with the kubelet: two that differ would place a pod and its containers apart. */
async function driverOf(ports: Ports, configuration: Configuration, signal: AbortSignal): Promise<CgroupDriver> {
  const { containerRuntimeEndpoint: endpoint, runtimeRequestTimeout: requestTimeoutMs } = configuration;
  const configured: CgroupDriver = configuration.cgroupDriver === "systemd" ? "systemd" : "cgroupfs";
  if (endpoint === "") return configured;
  try {
    const ask = (deadline: AbortSignal) => runtimeCgroupDriver(ports, { endpoint, requestTimeoutMs }, deadline);
    const reported = await withDeadline(
      ports.clock,
      RUNTIME_LIMIT,
      "ask the runtime for its cgroup driver",
      ask,
      signal,
    );
    if (reported === undefined || reported === configured) return configured;
    ports.log.warn("the container runtime's cgroup driver is used, not the configured one", {
      runtime: reported,
      configured,
    });
    return reported;
  } catch (error) {
    if (isCancelled(error)) throw error;
    const fields = { configured, error: describeError(error) };
    ports.log.info("the container runtime does not report its cgroup driver: the configured one is used", fields);
    return configured;
  }
}

/** Loaded only where cgroups are systemd's. */
async function systemdUnits(ports: Ports) {
  const [{ SystemdUnits }, { systemBusPath }] = await Promise.all([
    import("../../node/systemd-units.ts"),
    import("../../node/dbus-connection.ts"),
  ]);
  return new SystemdUnits(ports, { busPath: systemBusPath(process.env) });
}

async function settingsOf(
  hierarchies: CgroupHierarchies,
  { configuration, share, memoryBytes }: CgroupsInit,
): Promise<CgroupSettings> {
  const { featureGates, memoryThrottlingFactor: throttlingFactor, memorySwap } = configuration;
  const machine = readRuntimeMachine();
  const isV2 = hierarchies.kind === "v2";
  const hasHugePages = hierarchies.kind !== "none" && hierarchies.controllers.has("hugetlb");
  const allocatableBytes = Number(share.podLimits.get("memory") ?? 0n);
  const limited = memorySwap.swapBehavior === "LimitedSwap";
  return {
    cpuCFSQuota: configuration.cpuCFSQuota,
    cpuPeriodUs: configuration.cpuCFSQuotaPeriod * 1000,
    podPidsLimit: configuration.podPidsLimit,
    ...(isV2 && featureGates.MemoryQoS !== false
      ? { memoryQos: { throttlingFactor, allocatableBytes, pageBytes: await pageBytes() } }
      : {}),
    ...(hasHugePages ? { hugePageSizes: machine.hugePageSizes } : {}),
    ...(isV2 ? { oomGroup: !(configuration.singleProcessOOMKill ?? false) } : {}),
    ...(isV2 && machine.swapAccounting
      ? { swap: { limited, swapBytes: machine.swapBytes, memoryCapacityBytes: memoryBytes } }
      : {}),
  };
}

function nodeSettings(configuration: Configuration, share: CgroupsInit["share"]): NodeCgroupSettings {
  const { enforceNodeAllocatable: enforced, qosReserved } = configuration;
  const percent = /^(\d+)%$/.exec(qosReserved.memory ?? "")?.[1];
  return {
    limits: enforced.includes("pods") ? share.podLimits : share.capacity,
    ...(percent === undefined ? {} : { memoryReservedPercent: Number(percent) }),
  };
}

export interface PodCgroupsComponents extends Ports {
  readonly node: NodeCgroups;
  readonly events: EventRecorder;
  readonly counts: NodeCounts;
  /** Every pod this node is to run. */
  readonly pods: () => Iterable<DesiredPod["pod"]>;
  /** The workers' views of the pods. */
  readonly views: () => Iterable<PodView>;
  readonly changes: Watch<unknown>;
  /** Missing: no pod gets CPUs for itself alone. */
  readonly placement?: ContainerPlacement | undefined;
}

/** @throws PicoletError `invalid` when a cgroup with reserved resources does not exist */
export async function makePodCgroups(
  { node, events, counts, pods, views, changes, placement, clock, log }: PodCgroupsComponents,
  init: CgroupsInit,
): Promise<{ readonly cgroups: PodCgroups; readonly parts: readonly Component[] }> {
  const { nodeName, cgroupRoot, cgroupsPerQOS } = init.configuration;
  const { tree, names, settings, missing, units } = node;
  const enforcement = enforcementEvents(events, nodeName, log);
  for (const { message } of missing) enforcement.record("Warning", "MissingCgroupController", message);
  const onEnforced = (path: string, problem: string | undefined): void =>
    problem === undefined
      ? enforcement.done("Updated Node Allocatable limit across pods")
      : enforcement.failed(`Failed to update Node Allocatable Limits ${JSON.stringify(path)}: ${problem}`);
  const tiers = new TierCgroups({ cgroups: tree, pods, onEnforced, log }, { names, settings, node: node.node });
  const hasExclusiveCpus = placement && ((uid: PodUid) => placement.hasExclusiveCpus(uid));
  const cgroups = new PodCgroups(
    { cgroups: tree, tiers, clock, log, counts, hasExclusiveCpus },
    { cgroupRoot, names, cgroupsPerQOS, settings },
  );
  const reserved = await reservedCgroups(node, init, enforcement);
  const steady = (): DesiredPod[] => [...views()].filter(isSteady).map(({ desired }) => desired);
  const keeper = new CgroupKeeper({ cgroups, reserved, pods: steady, changes, units, clock, log });
  return { cgroups, parts: [keeper] };
}

/** Its cgroup is made, and is as the pod is granted it. */
function isSteady(view: PodView): boolean {
  const { worker, observed, prepared, resize } = view;
  const isMade = prepared || observed?.containers.some(({ state }) => state.kind === "running") === true;
  return worker.kind === "active" && isMade && resize.sized && !isResizing(view);
}

type Enforcement = ReturnType<typeof enforcementEvents>;

/** The kubelet's events of the node. */
function enforcementEvents(events: EventRecorder, nodeName: string, log: Log) {
  const record = (type: "Normal" | "Warning", reason: string, message: string): void =>
    events.record({ regarding: nodeReference(nodeName), type, reason, message });
  return {
    record,
    done: (message: string): void => record("Normal", "NodeAllocatableEnforced", message),
    failed: (message: string): void => {
      log.warn(message);
      record("Warning", "FailedNodeAllocatableEnforcement", message);
    },
  };
}

async function reservedCgroups(
  { tree, names, settings }: NodeCgroups,
  { configuration, share }: CgroupsInit,
  enforcement: Enforcement,
): Promise<ReservedCgroups | undefined> {
  const { enforceNodeAllocatable: enforced, systemReservedCgroup, kubeReservedCgroup } = configuration;
  const of = (key: string, title: string, name: string, amounts: Reservation["amounts"]): Reservation[] => {
    const isCompressible = enforced.includes(`${key}-compressible`);
    if (!enforced.includes(key) && !isCompressible) return [];
    const full = isCompressible ? `${title} Compressible` : title;
    return [{ title: full, path: names.existing(join("/", name)), name, amounts, isCompressible }];
  };
  const reservations = [
    ...of("system-reserved", "System Reserved", systemReservedCgroup, share.systemReserved),
    ...of("kube-reserved", "Kube Reserved", kubeReservedCgroup, share.kubeReserved),
  ];
  if (reservations.length === 0) return undefined;
  const { ReservedCgroups } = await import("../../resources/reserved-cgroups.ts");
  const failed = ({ title, name }: Reservation, problem: string): void =>
    enforcement.failed(`Failed to enforce ${title} Cgroup Limits on ${JSON.stringify(name)}: ${problem}`);
  const onEnforced = (reservation: Reservation, problem: string | undefined): void => {
    const { title, name } = reservation;
    const which = title.replace(" Compressible", "").toLowerCase();
    if (problem === undefined) enforcement.done(`Updated limits on ${which} cgroup ${name}`);
    else failed(reservation, problem);
  };
  const reserved = new ReservedCgroups({ cgroups: tree, onEnforced }, { reservations, settings });
  await reserved.check();
  await reserved.reconcile();
  return reserved;
}
