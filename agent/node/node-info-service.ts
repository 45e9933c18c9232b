/** `node-info` of `wit/board`, at the agent's end: what a component may know of its node. */
import { readFileSync } from "node:fs";
import {
  type BoardService,
  type Plain,
  type ServiceMessage,
  type ServicePeer,
  ServiceRefusal,
} from "@picolet/runtime-contract/board-services.ts";
import type { NodeCondition } from "./node-conditions.ts";

export interface NodeInfoComponents {
  readonly conditions: () => readonly NodeCondition[];
  /** All of the node's; those that may be seen are chosen here. */
  readonly labels: () => Readonly<Record<string, string>>;
  readonly isClockSet: () => boolean;
  readonly hub: () => "standalone" | "disconnected" | "connected";
}

export interface NodeInfoInit {
  readonly nodeName: string;
  /** Keys of labels that components may see beside those of topology and hardware. */
  readonly shownLabels: readonly string[];
}

/** Reports the place and the hardware, and no other labels of the fleet's owner. */
const SHOWN =
  /^(?:topology\.kubernetes\.io\/.+|kubernetes\.io\/(?:arch|os|hostname)|node\.kubernetes\.io\/instance-type)$/;
/** Percent of the last ten seconds in which some task waited for a CPU. */
const CPU_PRESSURE_PERCENT = 60;
const CPU_PRESSURE_FILE = "/proc/pressure/cpu";

const PRESSURES: Readonly<Record<string, string>> = {
  MemoryPressure: "memory",
  DiskPressure: "disk",
  PIDPressure: "processes",
  FlashWearPressure: "flashWear",
};

export class NodeInfoService implements BoardService {
  readonly #components: NodeInfoComponents;
  readonly #init: NodeInfoInit;

  constructor(components: NodeInfoComponents, init: NodeInfoInit) {
    this.#components = components;
    this.#init = init;
  }

  call(_: ServicePeer, method: string): ServiceMessage {
    if (method !== "get") throw new ServiceRefusal("unavailable");
    const { conditions, labels, isClockSet, hub } = this.#components;
    const { nodeName: name, shownLabels } = this.#init;
    const pressure: Record<string, boolean> = { cpu: isCpuShort() };
    for (const { type, status } of conditions()) {
      const own = PRESSURES[type];
      if (own !== undefined) pressure[own] = status === "True";
    }
    const shown = Object.entries(labels()).filter(([key]) => SHOWN.test(key) || shownLabels.includes(key));
    const value: Plain = { name, labels: shown.sort(), pressure, clockIsSet: isClockSet(), hub: hub() };
    return { value, bytes: [] };
  }
}

/** False on a kernel that does not report it. */
function isCpuShort(): boolean {
  try {
    const [, percent] = /^some avg10=([\d.]+)/.exec(readFileSync(CPU_PRESSURE_FILE, "utf8")) ?? [];
    return Number(percent) >= CPU_PRESSURE_PERCENT;
  } catch {
    return false;
  }
}
