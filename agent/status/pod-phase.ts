/**
 * A pod's phase from the statuses of its containers, by the kubelet's rules (pkg/kubelet/kubelet_pods.go, getPhase).
 */
import type { Container, ContainerStatus, Pod, PodPhase } from "@picolet/protocol/pod/pod.ts";
import { type ContainerRole, isRestartedAfterExit, roleOf } from "../plan/container-roles.ts";

/** @param initialized whether a regular container has been in the sandbox that there is now. */
export function podPhase(pod: Pod, statuses: readonly ContainerStatus[], initialized: boolean): PodPhase {
  const of = (container: Container) => statuses.find(({ name }) => name === container.name);
  const initContainers = (pod.spec.initContainers ?? []).map((container) => {
    const role = roleOf(pod, container);
    return { role, told: judge(pod, container, role, of(container)) };
  });
  const init = initContainers.filter(({ role }) => role === "init").map(({ told }) => told);
  const sidecars = initContainers.filter(({ role }) => role === "sidecar").map(({ told }) => told);
  const regular = pod.spec.containers.map((container) => judge(pod, container, "regular", of(container)));

  if (init.some((each) => each.kind === "stopped" && each.exitCode !== 0 && !each.restarts)) return "Failed";
  if (init.some((each) => each.kind === "waiting" || each.kind === "running")) return "Pending";
  const isStarting = sidecars.some((each) => each.kind === "waiting" || (each.kind === "running" && !each.started));
  if (isStarting && !initialized) return "Pending";
  if ([...sidecars, ...regular].some((each) => each.kind === "waiting")) return "Pending";
  if ([...sidecars, ...regular].some((each) => each.kind === "running")) return "Running";
  const stopped = regular.filter((each) => each.kind === "stopped");
  if (stopped.some((each) => each.restarts)) return "Running";
  return stopped.every((each) => each.exitCode === 0 && !each.waits) ? "Succeeded" : "Failed";
}

type Told =
  | { readonly kind: "waiting" }
  | { readonly kind: "running"; readonly started: boolean }
  /** `waits`: it has been told to run again, and its end is the one before. */
  | { readonly kind: "stopped"; readonly exitCode: number; readonly restarts: boolean; readonly waits: boolean };

function judge(pod: Pod, container: Container, role: ContainerRole, status: ContainerStatus | undefined): Told {
  const { running, terminated } = status?.state ?? {};
  if (running !== undefined) return { kind: "running", started: status?.started === true };
  const ended = terminated ?? status?.lastState.terminated;
  if (ended === undefined) return { kind: "waiting" };
  const { exitCode } = ended;
  const restarts = isRestartedAfterExit(pod, container, role, exitCode);
  return { kind: "stopped", exitCode, restarts, waits: terminated === undefined };
}
