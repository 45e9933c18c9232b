import { PicoletError } from "@picolet/protocol/errors.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { COMPONENT_RUNTIME_CLASS, type RuntimeRouter } from "../../core/pods/pod-ports.ts";
import { isComponentPod } from "../../core/pods/pod-runtime.ts";

/** Components go to the component adapter, all else to CRI, which knows its own runtime handlers. */
export class NodeRuntimes implements RuntimeRouter {
  readonly adapters: readonly RuntimeAdapter[];
  readonly components: RuntimeAdapter;
  readonly containers: RuntimeAdapter | undefined;

  /** @param containers `undefined`: this node has no container runtime. */
  constructor(components: RuntimeAdapter, containers: RuntimeAdapter | undefined) {
    this.components = components;
    this.containers = containers;
    this.adapters = containers === undefined ? [components] : [containers, components];
  }

  /** @returns `undefined`: no runtime of this node may run the pod */
  findAdapter(desired: DesiredPod): RuntimeAdapter | undefined {
    return isComponentPod(desired) ? this.components : this.containers;
  }

  adapterFor(desired: DesiredPod): RuntimeAdapter {
    const adapter = this.findAdapter(desired);
    if (adapter !== undefined) return adapter;
    const runtimeClass = desired.pod.spec.runtimeClassName;
    const asked = runtimeClass === undefined ? "containers" : `runtimeClassName ${runtimeClass}`;
    const advice = `this node runs components only (runtimeClassName: ${COMPONENT_RUNTIME_CLASS}); set containerRuntimeEndpoint to a container runtime's socket`;
    throw new PicoletError("invalid", `cannot run ${asked}: ${advice}`, { reason: "FailedCreatePodSandBox" });
  }
}
