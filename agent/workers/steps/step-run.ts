/** What the steps of one round know, and what they have learnt on the way. */
import type {
  DesiredPod,
  ObservedContainer,
  ObservedPod,
  RuntimeAdapter,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { HookTarget } from "../../core/pods/probe-ports.ts";
import { type AnyContainer, containersOf } from "../../plan/container-roles.ts";
import type { PodView } from "../../plan/pod-view.ts";
import type { WorkerEvent } from "../../plan/worker-state.ts";

/** Where the steps are taken: one plan's view, its runtime, and how long it is worth going on. */
export interface StepContext {
  readonly view: PodView;
  /** `undefined`: this node has no runtime for the pod. */
  readonly adapter: RuntimeAdapter | undefined;
  /** Aborts when the pod is to be removed. */
  readonly signal: AbortSignal;
  /** Aborts with the worker; for what outlasts one round. */
  readonly life: AbortSignal;
}

/** A context with what its steps have learnt on the way. */
export type StepRun = StepContext & {
  observed: ObservedPod | undefined;
  /** Of the stops of this batch, by container id: when each is over, well or not. */
  readonly ends: Map<string, Promise<unknown>>;
};

/** What the steps tell their worker. */
export interface StepListener {
  happened(event: WorkerEvent): void;
  prepared(desired: DesiredPod | undefined): void;
  /** The pod's cgroup and its containers have what this one is granted. */
  resized(desired: DesiredPod): void;
}

export const containerOf = ({ pod }: DesiredPod, name: string): AnyContainer | undefined =>
  containersOf(pod).find((container) => container.name === name);

/** `undefined`: nothing of it could be reached. */
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
