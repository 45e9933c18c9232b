/** Has runtimes give up what they only keep ready as long as the node is short of memory. */
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PressureCondition } from "../core/node/node-pressure.ts";

export interface SpareGuardComponents {
  readonly adapters: readonly Pick<RuntimeAdapter, "shed">[];
  readonly pressure: Watch<readonly PressureCondition[]>;
}

export class SpareGuard implements Component {
  readonly name = "spare guard";
  readonly #components: SpareGuardComponents;

  constructor(components: SpareGuardComponents) {
    this.#components = components;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { adapters, pressure } = this.#components;
    for await (const conditions of pressure.changes(signal)) {
      const isShort = conditions.some(({ type, status }) => type === "MemoryPressure" && status === "True");
      if (isShort) for (const adapter of adapters) adapter.shed?.();
    }
  }
}
