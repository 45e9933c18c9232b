/** Puts together the parts that provide and bound pods' storage. */
import { join } from "node:path";
import type { Component } from "@picolet/protocol/async/component.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { ClaimsOnDemand } from "../../claims/claims-on-demand.ts";
import type { DraDrivers } from "../../claims/dra-driver.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import type { PodEnder } from "../../core/pods/pod-admission.ts";
import type { PodObserver } from "../../core/pods/pod-observer.ts";
import { LogLinks } from "../../logs/log-links.ts";
import { ownLabels } from "../../node/node-report.ts";
import type { PodView } from "../../plan/pod-view.ts";
import type { PodCgroups } from "../../resources/pod-cgroups.ts";
import type { StatusManager } from "../../status/status-manager.ts";
import { EndedPods } from "../../volumes/ended-pods.ts";
import { StorageLimits, type StorageLimitsComponents } from "../../volumes/ephemeral-storage/storage-limits.ts";
import { SystemMounter } from "../../volumes/files/mounter.ts";
import { PodEnvironmentOnDisk } from "../../volumes/pod-environment.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";
import type { NodeUsageSampler } from "../node/node-usage.ts";
import type { Runtimes } from "./runtimes.ts";

/** The devices that pods get by resource claims. */
export const makeClaims = ({ ports, init, cluster: { objects } }: AgentBase, drivers: DraDrivers) =>
  new ClaimsOnDemand({ ...ports, drivers, objects }, { rootDir: init.args.rootDir });

/** What is on this node's disk for its pods. */
export function makeEnvironment(
  { ports: { clock, log, counts }, init, node, keys, store, cluster }: AgentBase,
  { router, reports }: Pick<Runtimes, "router" | "reports">,
  held: { readonly cgroups: PodCgroups; readonly claims: ClaimsOnDemand },
): PodEnvironmentOnDisk {
  const { nodeName, nodeLabels, podLogsDir, resolvConf, clusterDNS, clusterDomain } = init.configuration;
  const { objects, objectsChanged } = cluster;
  const { machine, share } = node;
  const { rootDir } = init.args;
  return new PodEnvironmentOnDisk(
    {
      ...{ clock, log, counts, events: store.events, objects, objectsChanged, ...held },
      sealer: keys,
      mounter: new SystemMounter(),
      hostIPs: node.hostIps,
      // Labels from the API server have precedence, if the hub sends them.
      nodeLabels: () => ({ ...ownLabels(nodeName, machine), ...nodeLabels, ...labelsOf(objects, nodeName) }),
      recursiveReadOnly: (pod, handler) => {
        const adapter = router.findAdapter(pod);
        const handlers = adapter === undefined ? [] : (reports.answer(adapter)?.handlers ?? []);
        return handlers.find(({ name }) => name === handler)?.recursiveReadOnlyMounts === true;
      },
    },
    {
      ...{ rootDir, podLogsDir, nodeName, resolvConf },
      clusterDNS: { servers: clusterDNS, domain: clusterDomain },
      allocatable: share.allocatable,
      memoryBytes: machine.memoryBytes,
    },
  );
}

function labelsOf(objects: Pick<ClusterObjects, "object">, nodeName: string): Readonly<Record<string, string>> {
  const metadata = objects.object(objectKey("Node", "", nodeName))?.metadata;
  return (metadata as { labels?: Readonly<Record<string, string>> } | undefined)?.labels ?? {};
}

/** Makes the parts that evict pods above their storage limit, free storage of ended pods, and link to logs. */
export function makeStorageKeepers(
  ports: Pick<StorageLimitsComponents, "clock" | "log" | "events">,
  init: { readonly rootDir: string; readonly podLogsDir: string },
  node: {
    readonly view: NodeAgentView;
    readonly usage: NodeUsageSampler;
    readonly statuses: StatusManager;
    readonly adapters: readonly RuntimeAdapter[];
    readonly observer: PodObserver;
    readonly ender: PodEnder;
    readonly environment: PodEnvironmentOnDisk;
  },
): readonly Component[] {
  const { view, usage, statuses, adapters, observer, ender, environment } = node;
  const limits = new StorageLimits({
    ...ports,
    pods: () => view.pods(),
    podsChanged: statuses.changes,
    disk: usage.disk,
    ender,
  });
  const { changes } = statuses;
  const views = (): PodView[] => [...statuses.pods.values()].map((entry) => entry.view);
  const ended = new EndedPods({
    views,
    changes,
    release: (pod, signal) => environment.release(pod, signal),
    clock: ports.clock,
    log: ports.log,
  });
  const isSettled = (): boolean => adapters.every((adapter) => isRuntimeListed(observer.listing(adapter), statuses));
  const { podLogsDir } = init;
  const links = new LogLinks(
    { ...ports, views, changes, isSettled },
    // The kubelet's are in /var/log/containers, beside /var/log/pods.
    { podLogsDir, folder: join(podLogsDir, "..", "containers") },
  );
  return [limits, ended, links];
}

/** @returns whether the workers have inspected all pods of the listing */
export function isRuntimeListed(listing: ReturnType<PodObserver["listing"]>, { pods }: StatusManager): boolean {
  return listing !== undefined && [...listing.keys()].every((uid) => pods.get(uid)?.view.observed !== undefined);
}
