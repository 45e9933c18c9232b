import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod, ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ProbeResult } from "../core/pods/probe-ports.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";

/** The prober's input for one pod. */
export interface ProbedPod {
  readonly desired: DesiredPod;
  readonly adapter: RuntimeAdapter | undefined;
  readonly observed: ObservedPod;
  /** Its last published status. */
  readonly previous: PodStatus | undefined;
  /** A pod that is being ended gets no more probes. */
  readonly ending: boolean;
}

export function updateProbes(
  { prober, runtimeName }: Pick<WorkerPorts, "prober" | "runtimeName">,
  pod: ProbedPod,
): void {
  const { desired, adapter, observed, previous, ending } = pod;
  if (adapter === undefined) return;
  const runtime = runtimeName(adapter);
  const wasReady = (id: string): ProbeResult | undefined => reportedReadiness(previous, `${runtime}://${id}`);
  prober.follow(desired, observed, adapter, { ending, wasReady });
}

/** @returns the published readiness of the run with that container id */
function reportedReadiness(previous: PodStatus | undefined, containerID: string): ProbeResult | undefined {
  const { initContainerStatuses = [], containerStatuses = [] } = previous ?? {};
  const told = [...initContainerStatuses, ...containerStatuses].find((each) => each.containerID === containerID);
  return told?.state.running === undefined ? undefined : { started: told.started === true, ready: told.ready };
}
