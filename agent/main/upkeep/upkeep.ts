/** Puts together the maintenance of the node while pods run: logs, garbage, eviction, budgets, orphans. */
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { NodeCondition } from "@picolet/protocol/local-api/status.ts";
import type { EvictionManager } from "../../eviction/eviction-manager.ts";
import { OrphanSweep, type OrphanSweepComponents } from "../../observe/orphan-sweep.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";
import type { NodeUsageSampler } from "../node/node-usage.ts";
import type { Pods } from "../pods/make-pods.ts";
import { makeOomWatch } from "../pods/oom.ts";
import type { Runtimes } from "../pods/runtimes.ts";
import { makeStorageKeepers } from "../pods/storage.ts";
import { ComponentSwitch, makeRoomCheck } from "./component-switch.ts";
import { makeEviction } from "./eviction.ts";
import { makeGarbage } from "./garbage.ts";
import { makeLogRotation } from "./make-log-rotation.ts";

export interface UpkeepComponents {
  readonly runtimes: Runtimes;
  readonly pods: Pods;
  readonly view: NodeAgentView;
  readonly usage: NodeUsageSampler;
  readonly conditions: Watch<readonly NodeCondition[]>;
}

export interface Upkeep {
  readonly eviction: EvictionManager;
  /** With the eviction manager. */
  readonly parts: readonly Component[];
}

export function makeUpkeep(base: AgentBase, components: UpkeepComponents): Upkeep {
  const { ports, init, node, store, decisions } = base;
  const { args, configuration } = init;
  const { clock, log } = ports;
  const { events } = store;
  const { runtimes, pods: running, view, usage } = components;
  const { adapters, pleg: observer, kills } = runtimes;
  const { statuses, workers, environment, cgroups, images } = running;
  const logs = makeLogRotation(base, runtimes, statuses);
  const garbage = makeGarbage(
    { ...{ clock, log, store, images, adapters, observer, statuses, view, usage, workers }, logs },
    configuration,
  );
  const pods = () => view.pods();
  const switcher = makeSwitch(base, components);
  const eviction = makeEviction(
    {
      ...{ clock, log, events, decisions, usage, ender: workers, switcher, reclaim: garbage.reclaim, pods },
      ...{ cgroups: node.cgroups, podCgroups: cgroups },
      release: (pod, stop) => environment.release(pod, stop),
    },
    { configuration, allPodsCgroup: node.allPodsCgroup, maxPids: node.maxPids },
  );
  const oomWatch = makeOomWatch(
    {
      ...{ clock, log, events, decisions, kills },
      uids: () => statuses.pods.keys(),
      killed: (uid) => {
        for (const adapter of adapters)
          if (observer.listing(adapter)?.has(uid)) workers.podChanged(adapter, uid, "hint");
      },
    },
    configuration,
  );
  const storage = makeStorageKeepers(
    { clock, log, events },
    { rootDir: args.rootDir, podLogsDir: configuration.podLogsDir },
    { view, usage, statuses, adapters, observer, ender: workers, environment },
  );
  const ofPressure = [eviction, ...(switcher === undefined ? [] : [switcher]), oomWatch];
  return {
    eviction,
    parts: [logs, ...garbage.parts, ...ofPressure, ...storage, orphanSweep(base, runtimes, running)],
  };
}

/** Only where there are containers, in whose place components can run. */
function makeSwitch(
  { ports, init, node, store }: AgentBase,
  { runtimes: { router, pleg }, pods: { images, statuses, workers }, view, conditions }: UpkeepComponents,
): ComponentSwitch | undefined {
  const { components: adapter, containers } = router;
  if (containers === undefined) return undefined;
  return new ComponentSwitch({
    ...{ ...ports, events: store.events, puller: images.puller, store: store.desired, adapter },
    ...{ containers, observer: pleg, changes: statuses.changes, conditions },
    pods: () => view.pods(),
    hasRoom: makeRoomCheck(init.configuration, node.machine.memoryBytes),
    mover: () => workers,
  });
}

function orphanSweep(
  { ports: { clock, log }, store }: AgentBase,
  { adapters, pleg: observer }: Runtimes,
  { environment, cgroups }: Pods,
): OrphanSweep {
  const sweeps: OrphanSweepComponents["sweeps"] = [
    (known, stop) => environment.sweep(known, stop),
    (known) => cgroups.sweep(known),
    (known, stop) => environment.sweepLogs({ adapters, clock }, known, stop),
  ];
  return new OrphanSweep({ adapters, observer, store: store.desired, sweeps, clock, log });
}
