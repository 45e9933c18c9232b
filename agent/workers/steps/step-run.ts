/** The input of the steps of one round, and results that later steps of the round use. */
import type {
  DesiredPod,
  ObservedContainer,
  ObservedPod,
  RuntimeAdapter,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { HookTarget } from "../../core/pods/probe-ports.ts";
import { type AnyContainer, containersOf } from "../../plan/container-roles.ts";
import type { PodView } from "../../plan/pod-view.ts";
import type { WorkerAccess } from "./worker-access.ts";

/** The view and the runtime of one plan, and the signals that end its steps. */
export interface StepContext {
  readonly view: PodView;
  /** `undefined`: this node has no runtime for the pod. */
  readonly adapter: RuntimeAdapter | undefined;
  /** Aborts with the round. */
  readonly signal: AbortSignal;
  /** Aborts with the worker, for work that outlasts the round. */
  readonly life: AbortSignal;
}

/** A context with the results of its steps so far. */
export type StepRun = StepContext & {
  observed: ObservedPod | undefined;
  /** By container id, of the stops of this batch: resolves when the stop has succeeded or failed. */
  readonly ends: Map<string, Promise<unknown>>;
};

/** The worker whose steps are taken. */
export interface StepListener extends WorkerAccess {
  /** The pod's cgroup and containers have the resources that `desired` is granted. */
  resized(desired: DesiredPod): void;
}

export const containerOf = ({ pod }: DesiredPod, name: string): AnyContainer | undefined =>
  containersOf(pod).find((container) => container.name === name);

/** @returns `undefined` when the container cannot be reached */
export function hookTarget(
  { id: containerId, name }: ObservedContainer,
  { view, adapter, observed }: StepRun,
): HookTarget | undefined {
  const { desired: pod, hostIps } = view;
  const container = containerOf(pod, name);
  if (container === undefined || adapter === undefined) return undefined;
  const ips = observed?.sandboxes[0]?.ips ?? [];
  const podIps = pod.pod.spec.hostNetwork === true ? hostIps : ips;
  return { pod, container, containerId, podIps, adapter };
}
