/** Puts together the parts that prepare and run pods. */
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { KUBERNETES_VERSION } from "@picolet/protocol/version.ts";
import { GrpcHealthClient } from "@picolet/runtime-cri/grpc-health-client.ts";
import type { ClaimsOnDemand } from "../../claims/claims-on-demand.ts";
import { DraDriverTable } from "../../claims/dra-driver-table.ts";
import { DriverReport } from "../../claims/driver-report.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { ContainerDevices, DeviceResources } from "../../core/pods/container-devices.ts";
import type { ContainerPlacement } from "../../core/pods/container-placement.ts";
import type { RuntimeChoices } from "../../core/pods/pod-ports.ts";
import type { RuntimeChooserComponents } from "../../images/runtime-chooser.ts";
import { type CrashBackoffLimits, DEFAULT_CRASH_BACKOFF } from "../../plan/crash-backoff.ts";
import type { PluginHandler } from "../../plugins/plugin-handler.ts";
import { HttpGetter } from "../../probes/handlers/http-getter.ts";
import { LifecycleHooks } from "../../probes/handlers/lifecycle-hooks.ts";
import { PodProber } from "../../probes/pod-prober.ts";
import type { PodCgroups } from "../../resources/pod-cgroups.ts";
import { StatusManager } from "../../status/status-manager.ts";
import type { PodEnvironmentOnDisk } from "../../volumes/pod-environment.ts";
import { expandReferences } from "../../volumes/values/expand.ts";
import { PodWorkers } from "../../workers/pod-workers.ts";
import { PodEvents } from "../../workers/ports/pod-events.ts";
import type { AgentBase } from "../base/agent-base.ts";
import { makePodCgroups } from "../node/cgroups.ts";
import { type Images, makeImages } from "./make-images.ts";
import type { NodeGuards } from "./node-guards.ts";
import type { NodeRuntimes } from "./runtime-router.ts";
import type { Runtimes } from "./runtimes.ts";
import { makeClaims, makeEnvironment } from "./storage.ts";

export interface PodsComponents {
  readonly runtimes: Runtimes;
  readonly guards: Pick<NodeGuards, "admission">;
  /** Missing: no pod gets CPUs or memory for itself alone. */
  readonly placement: ContainerPlacement | undefined;
  /** The node's devices. */
  readonly devices: ContainerDevices & { readonly changes: Watch<DeviceResources> };
  /** All of this node; asked when there are some. */
  readonly pods: () => readonly AgentPod[];
}

export interface Pods {
  readonly claims: ClaimsOnDemand;
  /** Takes DRA drivers; loaded with the first that registers. */
  readonly draPlugins: () => Promise<PluginHandler>;
  readonly draReport: DriverReport;
  readonly statuses: StatusManager;
  readonly cgroups: PodCgroups;
  readonly cgroupParts: readonly Component[];
  readonly environment: PodEnvironmentOnDisk;
  readonly prober: PodProber;
  readonly images: Images;
  readonly workers: PodWorkers;
}

/** @throws `invalid` when what the configuration says of cgroups or of images cannot be */
export async function makePods(base: AgentBase, components: PodsComponents): Promise<Pods> {
  const { ports, init, node, keys, store, cluster } = base;
  const { runtimes, placement, pods } = components;
  const { clock, log, counts } = ports;
  const { desired, events, statuses: outbox } = store;
  const statuses = new StatusManager({ outbox, log });
  const { cgroups, parts: cgroupParts } = await makePodCgroups(
    {
      ...{ clock, log, counts, node: node.podCgroups, events, changes: statuses.changes, placement },
      pods: () => [...desired.desired.current.pods.values()].map(({ pod }) => pod),
      views: () => [...statuses.pods.values()].map((entry) => entry.view),
    },
    { configuration: init.configuration, share: node.share, memoryBytes: node.machine.memoryBytes },
  );
  const draDrivers = new DraDriverTable();
  const claims = makeClaims(base, draDrivers);
  const environment = makeEnvironment(base, runtimes, { cgroups, claims });
  const probes = makeProbes(base);
  const { objects, objectsChanged } = cluster;
  const fingerprint = keys && ((text: string): string => keys.fingerprint(text));
  const images = await makeImages(
    { ...ports, events, router: runtimes.router, desired: desired.desired, objects, objectsChanged, fingerprint, pods },
    init,
  );
  const workers = makeWorkers(base, { ...components, statuses, cgroups, environment, probes, images });
  const draPlugins = async (): Promise<PluginHandler> => {
    const { DraPlugins } = await import("../../claims/dra-plugins.ts");
    return new DraPlugins({ clock, counts, table: draDrivers });
  };
  const draReport = new DriverReport({ clock, table: draDrivers });
  return {
    claims,
    draPlugins,
    draReport,
    statuses,
    cgroups,
    cgroupParts,
    environment,
    prober: probes.prober,
    images,
    workers,
  };
}

/** Makes the prober and the hook runner. */
function makeProbes({ ports: { clock, random }, init, node: { hostIps }, store, decisions }: AgentBase) {
  const http = new HttpGetter();
  const grpc = new GrpcHealthClient({ clock }, { userAgent: `kube-probe/${KUBERNETES_VERSION}` });
  const events = new PodEvents(store.events);
  const prober = new PodProber({
    ...{ clock, random, http, grpc, expand: expandReferences, hostIps, events, decisions },
    runtimeRequestTimeout: init.configuration.runtimeRequestTimeout,
  });
  return { prober, hooks: new LifecycleHooks({ clock, http }) };
}

type WorkersSurroundings = Omit<PodsComponents, "pods"> &
  Pick<Pods, "statuses" | "cgroups" | "environment" | "images"> & { readonly probes: ReturnType<typeof makeProbes> };

function makeWorkers(
  { ports, init, node, store, decisions, cluster }: AgentBase,
  surroundings: WorkersSurroundings,
): PodWorkers {
  const { runtimes, guards, placement, devices, statuses, cgroups, environment, images, probes } = surroundings;
  const { router, adapters, pleg, reports } = runtimes;
  const { desired, events } = store;
  const { puller } = images;
  return new PodWorkers(
    {
      ...{
        ...ports,
        store: desired,
        router,
        environment,
        observer: pleg,
        statuses,
        placement,
        devices,
        events,
        decisions,
      },
      ...probes,
      images: environment.withImages(puller, adapters),
      choices: runtimeChoices({ router, puller, store: desired, events, log: ports.log }),
      admission: guards.admission,
      podResources: cgroups,
      objectsChanged: cluster.link?.changes,
    },
    {
      crashBackoff: crashBackoffOf(init.configuration),
      hostIps: node.hostIps,
      runtimeName: (adapter) => reports.runtimeName(adapter),
      recursiveReadOnly: environment.recursiveReadOnly,
      terminationMessage: (pod, container, { attempt, state: ended }) =>
        environment.readTerminationMessage(pod, container, attempt, ended.kind === "exited" ? ended.exitCode : 0),
    },
  );
}

function crashBackoffOf({ crashLoopBackOff }: Configuration): CrashBackoffLimits {
  const { initialContainerRestartPeriod: initial, maxContainerRestartPeriod: max } = crashLoopBackOff;
  return { ...DEFAULT_CRASH_BACKOFF, initial, max };
}

/** Loaded with the first pod that has a choice: most nodes never have one. */
function runtimeChoices({
  router: { components, containers },
  ...ports
}: Omit<RuntimeChooserComponents, "components" | "containers"> & { readonly router: NodeRuntimes }): RuntimeChoices {
  return {
    choose: async (pod, holder, signal) => {
      const { RuntimeChooser } = await import("../../images/runtime-chooser.ts");
      await new RuntimeChooser({ ...ports, components, containers }).choose(pod, holder, signal);
    },
  };
}
