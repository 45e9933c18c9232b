/** Puts together the parts that hold the agent's memory and the disks' wear within their budgets. */
import { uptime } from "node:os";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import type { FlashReport } from "@picolet/protocol/local-api/status.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { flashDisks } from "../../budget/flash-disks.ts";
import { FlashMeter, type MeteredPod } from "../../budget/flash-meter.ts";
import { MemoryWatch } from "../../budget/memory-watch.ts";
import { ownMemory } from "../../budget/own-memory.ts";
import { WriteCounters } from "../../budget/write-counters.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { PressureCondition } from "../../core/node/node-pressure.ts";
import type { Shedder } from "../../core/node/shedder.ts";
import type { CgroupHierarchies } from "../../resources/cgroup-hierarchies.ts";
import type { Store } from "../../store/store.ts";
import type { NodeBoardServices } from "../base/node-board-services.ts";

export interface BudgetComponents {
  readonly store: Store;
  /** Their writes are the agent's. */
  readonly boardServices: NodeBoardServices;
  readonly adapters: readonly RuntimeAdapter[];
  readonly hierarchies: CgroupHierarchies;
  readonly podCgroup: (pod: DesiredPod) => string;
  readonly pods: () => readonly MeteredPod[];
  readonly collectGarbage: () => void;
  /** Ends the agent in order and starts it again. */
  readonly restart: (reason: string) => void;
  /** Called with the factor by which other writes are delayed. */
  readonly stretch: (factor: number) => void;
  readonly clock: Clock;
  readonly log: Log;
}

export interface BudgetInit {
  readonly configuration: Configuration;
  readonly rootDir: string;
}

export interface Budget {
  readonly pressure: Watch<readonly PressureCondition[]>;
  readonly parts: readonly Component[];
  report(): FlashReport;
}

export function makeBudget(components: BudgetComponents, { configuration, rootDir }: BudgetInit): Budget {
  const { store, boardServices, adapters, hierarchies, clock, log } = components;
  const { nodeName, podLogsDir, cgroupsPerQOS, budget } = configuration;
  const { events, kept } = store;
  const counters = new WriteCounters({ cgroups: cgroupsOf(hierarchies) });
  const meter = new FlashMeter(
    {
      ...{ counters, kept, events, clock, log },
      findDisks: async (signal) => flashDisks([rootDir, podLogsDir, ...(await imageFolders(adapters, signal))]),
      pods: components.pods,
      // Pods that share a cgroup cannot be distinguished.
      podCgroup: (pod) => (cgroupsPerQOS ? components.podCgroup(pod) : ""),
      stretch: (factor) => {
        store.stretch(factor);
        components.stretch(factor);
        void boardServices.stretch(factor);
      },
    },
    { nodeName, budgetBytes: budget.flashBytesPerDay, agentBudgetBytes: budget.agentFlashBytesPerDay },
  );
  const shedders: Shedder[] = [
    { name: "database", shed: () => store.shed() },
    { name: "key-value store", shed: () => void boardServices.shed() },
    { name: "garbage", shed: components.collectGarbage },
  ];
  const memory = new MemoryWatch(
    {
      ...{ shedders, kept, events, uptime, clock, log },
      read: ownMemory,
      bootId: counters.bootId,
      restart: components.restart,
    },
    { nodeName, budgetBytes: budget.memoryBytes },
  );
  return { pressure: meter.pressure, parts: [meter, memory], report: () => meter.report() };
}

/** The memory hierarchy has every pod's cgroup, if any has. */
function cgroupsOf(hierarchies: CgroupHierarchies): {
  readonly kind: "v1" | "v2" | "none";
  readonly mountPoint: string;
} {
  if (hierarchies.kind === "none") return { kind: "none", mountPoint: "" };
  if (hierarchies.kind === "v2") return { kind: "v2", mountPoint: hierarchies.mountPoint };
  const { controllers } = hierarchies;
  const mountPoint = controllers.get("memory") ?? controllers.get("cpu");
  return mountPoint === undefined ? { kind: "none", mountPoint: "" } : { kind: "v1", mountPoint };
}

/** A runtime that cannot say now is asked again. */
async function imageFolders(adapters: readonly RuntimeAdapter[], signal: AbortSignal): Promise<string[]> {
  const folders: string[] = [];
  for (const { images } of adapters) {
    try {
      const found = await images.filesystems?.(signal);
      if (found !== undefined) folders.push(found.images.mountPoint, found.containers.mountPoint);
    } catch (error) {
      if (isCancelled(error)) throw error;
    }
  }
  return folders;
}
