/**
 * On which CPUs and memory nodes containers run: the kubelet's CPU, memory and topology managers. `agent/topology`
 * implements it.
 */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { Cpuset, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Rejection } from "./pod-admission.ts";

export interface ContainerPlacement {
  /**
   * Takes what the pod's containers get for themselves alone, once for each pod, written down before it returns. Again
   * for the same pod: what it has. @returns why it cannot be (TopologyAffinityError, UnexpectedAdmissionError); nothing
   * is taken then.
   */
  admit(pod: DesiredPod): Rejection | undefined;
  /** With what a container is started; undefined: wherever the kernel likes. */
  cpuset(pod: DesiredPod, container: string): Cpuset | undefined;
  /** That container is about to start: init containers before it need nothing any more. Again is harmless. */
  starting(pod: DesiredPod, container: string): void;
  /** @returns whether a container of the pod has exclusive CPUs, on which no quota is enforced */
  hasExclusiveCpus(uid: PodUid): boolean;
  /**
   * @param changes whether it wants more or less of that. @returns why a pod that runs cannot have it, ever; undefined:
   * it may
   */
  refusesResize(requested: Pod, changes: (resource: "cpu" | "memory") => boolean): string | undefined;
  /** The pod is over, or gone: what it had is free. A second call is harmless. */
  release(uid: PodUid): void;
}
