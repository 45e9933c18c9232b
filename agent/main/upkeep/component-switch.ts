import { freemem } from "node:os";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { PodMover, PodSwitch } from "../../core/pods/pod-admission.ts";
import type { PodObserver } from "../../core/pods/pod-observer.ts";
import { isSwitchable } from "../../core/pods/pod-runtime.ts";
import type { DesiredSnapshot, DesiredStore } from "../../core/store/store-ports.ts";
import type { ComponentFallbacks, ComponentFallbacksComponents } from "../../images/component-fallbacks.ts";
import { isMemorySignal } from "../../plan/eviction/eviction-signals.ts";
import { amountOf, evictionThresholds } from "../../plan/eviction/eviction-thresholds.ts";

/** The memory of the largest pull and of a usual component's transpilation, plus a third. */
const PREPARATION_BYTES = 128 * MEBIBYTE;

/** @returns whether there is memory to prepare a component without coming near an eviction threshold */
export function makeRoomCheck(configuration: Configuration, memoryBytes: number): () => boolean {
  const ofMemory = evictionThresholds(configuration).filter(({ signal }) => isMemorySignal(signal));
  const kept = Math.max(0, ...ofMemory.map(({ value }) => amountOf(value, memoryBytes)));
  return () => freemem() - kept >= PREPARATION_BYTES;
}

export interface SwitchComponents extends Omit<ComponentFallbacksComponents, "desired"> {
  readonly store: Pick<DesiredStore, "desired" | "choose">;
  readonly containers: RuntimeAdapter;
  readonly observer: Pick<PodObserver, "listing">;
  readonly mover: () => PodMover;
}

/** Prepares and switches pods to components. Its parts are loaded with the first pod that may be switched. */
export class ComponentSwitch implements PodSwitch, Component {
  readonly name = "stand-ins";
  readonly #components: SwitchComponents;
  #fallbacks: ComponentFallbacks | undefined;

  constructor(components: SwitchComponents) {
    this.#components = components;
  }

  canSwitch(uid: PodUid): boolean {
    return this.#fallbacks?.canSwitch(uid) === true;
  }

  isLeaving(uid: PodUid): boolean {
    const { store, observer, containers } = this.#components;
    const isSwitched = store.desired.current.pods.get(uid)?.runtime?.reason === "MemoryPressure";
    // A runtime not listed since the start may have the pod, which must not run as components meanwhile.
    return isSwitched && observer.listing(containers)?.has(uid) !== false;
  }

  choose(uid: PodUid, message: string): void {
    this.#components.store.choose(uid, { kind: "component", reason: "MemoryPressure", message });
  }

  leave(...how: Parameters<PodMover["leave"]>): Promise<void> {
    return this.#components.mover().leave(...how);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { store, mover: _mover, containers: _containers, observer: _observer, ...ports } = this.#components;
    await untilOneMay(store.desired, signal);
    const { ComponentFallbacks } = await import("../../images/component-fallbacks.ts");
    this.#fallbacks = new ComponentFallbacks({ ...ports, desired: (uid) => store.desired.current.pods.get(uid) });
    await this.#fallbacks.run(signal);
  }
}

async function untilOneMay(desired: Watch<DesiredSnapshot>, signal: AbortSignal): Promise<void> {
  for await (const { pods } of desired.changes(signal)) {
    for (const pod of pods.values()) if (isSwitchable(pod)) return;
  }
  await aborted(signal);
}
