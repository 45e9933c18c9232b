/** Puts together the admission of pods and the graceful shutdown of the node. */
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import type { PressureCondition } from "../../core/node/node-pressure.ts";
import type { ContainerPlacement } from "../../core/pods/container-placement.ts";
import type { DecisionRecorder } from "../../core/store/decisions.ts";
import { isApparmorEnabled } from "../../node/apparmor.ts";
import type { Machine } from "../../node/machine.ts";
import { NodeAdmission } from "../../node/node-admission.ts";
import { nodeLabelsAndTaints } from "../../node/node-labels.ts";
import { NodeShutdown, type NodeShutdownComponents } from "../../node/node-shutdown.ts";
import type { RuntimeReports } from "../../observe/runtime-reports.ts";
import { sysctlAllowlist } from "../../plan/admission/sysctls.ts";
import { type ShutdownPeriod, shutdownPeriods, totalPeriod } from "../../plan/node/shutdown-groups.ts";
import type { Store } from "../../store/store.ts";
import type { PodWorkers } from "../../workers/pod-workers.ts";
import type { NodeRuntimes } from "./runtime-router.ts";

export interface NodeGuardsComponents extends Pick<NodeShutdownComponents, "statusesDelivered"> {
  readonly clock: Clock;
  readonly counts?: NodeCounts | undefined;
  readonly random: Random;
  readonly log: Log;
  readonly store: Store;
  readonly decisions: DecisionRecorder;
  /** Made with these guards, and so not there before. */
  readonly workers: () => PodWorkers;
  readonly router: NodeRuntimes;
  readonly runtimes: RuntimeReports;
  /** This node's object as the API server has it. */
  readonly node: Watch<Readonly<Record<string, unknown>> | undefined>;
  readonly pressures: PressureSources;
  /** Missing: no pod gets CPUs or memory for itself alone. */
  readonly placement?: ContainerPlacement | undefined;
}

/** Sources of pressure conditions. A function, because they are made after their readers. */
export type PressureSources = () => readonly Watch<readonly PressureCondition[]>[];

export interface NodeGuardsInit {
  readonly configuration: Configuration;
  readonly machine: Machine;
  readonly allocatable: Readonly<Record<string, string>>;
}

export interface NodeGuards {
  readonly admission: NodeAdmission;
  readonly shutdown: NodeShutdown;
  readonly parts: readonly Component[];
}

export async function makeNodeGuards(components: NodeGuardsComponents, init: NodeGuardsInit): Promise<NodeGuards> {
  const { clock, log, counts, store, decisions, workers, router, runtimes, node, pressures, placement } = components;
  const { statusesDelivered } = components;
  const { configuration, machine, allocatable } = init;
  const { events, desired } = store;
  const { nodeName, nodeLabels: labels, registerWithTaints: taints, allowedUnsafeSysctls } = configuration;
  const periods = shutdownPeriods(configuration);
  const shutdown = new NodeShutdown(
    {
      ender: workers,
      pods: () => [...desired.desired.current.pods.values()],
      revive: () => workers().revive(),
      statusesDelivered,
      events,
      decisions,
      clock,
      log,
      counts,
    },
    { nodeName, periods },
  );
  const admission = new NodeAdmission(
    {
      ender: workers,
      events,
      log,
      counts,
      placement,
      node: () => nodeLabelsAndTaints({ nodeName, machine, labels, taints }, node.current),
      // Without devices: the placement decides about them first, as in a kubelet.
      allocatable: () => allocatable,
      pressures: () => pressures().flatMap(({ current }) => current),
      isShuttingDown: () => shutdown.isShuttingDown,
      supplementalGroupsPolicy: (pod) => reportsGroups(pod, router, runtimes),
    },
    {
      sysctls: sysctlAllowlist(allowedUnsafeSysctls, machine.kernelVersion),
      apparmor: isApparmorEnabled(),
      limitedSwap: configuration.memorySwap.swapBehavior === "LimitedSwap",
    },
  );
  const follower = periods.length === 0 ? [] : await makeLogind(components, shutdown, periods);
  return { admission, shutdown, parts: [admission, shutdown, ...follower] };
}

/** Loaded only where a shutdown is to wait for pods. */
async function makeLogind(
  { clock, random, log }: NodeGuardsComponents,
  shutdown: NodeShutdown,
  periods: readonly ShutdownPeriod[],
): Promise<readonly Component[]> {
  const [{ LOGIND_DROP_INS, LogindShutdown }, { systemBusPath }] = await Promise.all([
    import("../../node/logind.ts"),
    import("../../node/dbus-connection.ts"),
  ]);
  // As D-Bus' own tools have it: there is a bus, and it is not for this process.
  if (process.env.DBUS_SYSTEM_BUS_ADDRESS === "disabled:") return [];
  const init = { busPath: systemBusPath(process.env), delay: totalPeriod(periods), dropInFolder: LOGIND_DROP_INS };
  return [new LogindShutdown({ shutdown, clock, random, log }, init)];
}

function reportsGroups(pod: DesiredPod, router: NodeRuntimes, runtimes: RuntimeReports): boolean {
  const adapter = router.findAdapter(pod);
  return adapter !== undefined && runtimes.answer(adapter)?.supplementalGroupsPolicy === true;
}
