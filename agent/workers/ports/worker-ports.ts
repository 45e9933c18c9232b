/** The ports that all workers of a node share. */

import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedContainer, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import type { ContainerDevices } from "../../core/pods/container-devices.ts";
import type { ContainerPlacement } from "../../core/pods/container-placement.ts";
import type { Rejection } from "../../core/pods/pod-admission.ts";
import type { PodResources } from "../../core/pods/pod-cgroup-ports.ts";
import type { PodObserver } from "../../core/pods/pod-observer.ts";
import type { ImageManager, PodEnvironment, RuntimeChoices, RuntimeRouter } from "../../core/pods/pod-ports.ts";
import type { HookRunner, Prober } from "../../core/pods/probe-ports.ts";
import type { DecisionRecorder } from "../../core/store/decisions.ts";
import type { CrashBackoffLimits } from "../../plan/crash-backoff.ts";
import type { PlanPod, PodStatusRecorder } from "../../plan/pod-view.ts";
import type { NameClaims } from "./name-claims.ts";
import type { PodEvents } from "./pod-events.ts";
import type { Slots } from "./slots.ts";

export interface WorkerPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
  readonly environment: PodEnvironment;
  readonly images: ImageManager;
  readonly router: RuntimeRouter;
  /** Missing: no pod has a choice. */
  readonly choices?: RuntimeChoices | undefined;
  readonly observer: PodObserver;
  readonly statuses: PodStatusRecorder;
  readonly events: PodEvents;
  readonly decisions: DecisionRecorder;
  readonly names: NameClaims;
  readonly sandboxSlots: Slots;
  /** The runtime that has the pod, or else must run it; `undefined` when this node has none for it. */
  readonly adapterOf: (desired: DesiredPod) => RuntimeAdapter | undefined;
  /** True when the runtime that `adapterOf` returned must release the pod. */
  readonly isLeaving: (desired: DesiredPod, adapter: RuntimeAdapter) => boolean;
  /** True when all pods that this runtime had at the agent's start are identified. */
  readonly isSettled: (adapter: RuntimeAdapter) => boolean;
  /** Reports to the store that nothing of a pod is left. The store ignores it if the pod is wanted again. */
  readonly forget: (desired: DesiredPod) => void;
  readonly backoff: CrashBackoffLimits;
  readonly hostIps: () => readonly string[];
  readonly runtimeName: (adapter: RuntimeAdapter) => string;
  readonly prober: Prober;
  readonly hooks: HookRunner;
  /** Called once, before anything of a pod starts. */
  readonly admit: (desired: DesiredPod) => Rejection | undefined;
  readonly recursiveReadOnly: (desired: DesiredPod) => boolean;
  /** Missing: containers run on any CPU. */
  readonly placement?: ContainerPlacement | undefined;
  /** Missing: containers get no devices. */
  readonly devices?: ContainerDevices | undefined;
  /** Missing: pods have no cgroups here. */
  readonly podResources?: PodResources | undefined;
  /** Resources of a pod have become free: pending requests may fit now. */
  readonly released: () => void;
  readonly planPod: PlanPod;
  /** Reads an ended run's termination message file; "" without one. */
  readonly terminationMessage: (desired: DesiredPod, container: Container, ended: ObservedContainer) => string;
}
