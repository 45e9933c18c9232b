import type { Component } from "@picolet/protocol/async/component.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import type { ControllerPorts } from "./controller-ports.ts";
import { ReconcileLoop, type ReconcileLoopInit } from "./reconcile-loop.ts";

/** A component that is one reconcile loop. Its caches add keys; `reconcile` does the work. */
export abstract class Controller implements Component {
  readonly name: string;
  protected readonly loop: ReconcileLoop;

  constructor(ports: ControllerPorts, init: Omit<ReconcileLoopInit, "reconcile">) {
    this.name = init.name;
    this.loop = new ReconcileLoop(ports, { ...init, reconcile: (key, signal) => this.reconcile(key, signal) });
  }

  /** As `ReconcileLoopInit.reconcile`. */
  protected abstract reconcile(key: string, signal: AbortSignal): Promise<Millis | undefined>;

  run(signal: AbortSignal): Promise<void> {
    return this.loop.run(signal);
  }
}
