/** A pod's status from what is known of it, exactly as a kubelet would write it (pkg/kubelet/kubelet_pods.go). */
import type { ContainerStatus, PodPhase, PodStatus } from "../../protocol/pod.ts";
import { qosClass } from "../../protocol/qos.ts";
import { containerStatuses } from "./container-statuses.ts";
import { roleOf } from "./judge-container.ts";
import { kubeTime } from "./kube-time.ts";
import { podConditions } from "./pod-conditions.ts";
import type { PodView } from "./pod-view.ts";

/** @param view with the worker's state as it is after planning. */
export function deriveStatus(view: PodView): PodStatus {
  const { pod } = view.desired;
  const init = containerStatuses(view, pod.spec.initContainers ?? []);
  const regular = containerStatuses(view, pod.spec.containers);
  const phase = phaseOf(view, init, regular);
  const { generation } = pod.metadata;
  const [hostIp] = view.hostIps;
  const podIps = podIpsOf(view);
  const [podIp] = podIps;
  const outcome = view.worker.kind === "finished" ? view.worker.outcome : undefined;
  return {
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    phase,
    conditions: podConditions(view, { phase, init, regular }),
    ...(outcome?.message ? { message: outcome.message } : {}),
    ...(outcome?.reason ? { reason: outcome.reason } : {}),
    ...(hostIp === undefined ? {} : { hostIP: hostIp, hostIPs: view.hostIps.map((ip) => ({ ip })) }),
    ...(podIp === undefined ? {} : { podIP: podIp, podIPs: podIps.map((ip) => ({ ip })) }),
    startTime: view.previous?.startTime ?? kubeTime(view.wallMs),
    ...(init.length === 0 ? {} : { initContainerStatuses: init }),
    containerStatuses: regular.sort((left, right) => (left.name < right.name ? -1 : 1)),
    qosClass: view.previous?.qosClass ?? qosClass(pod),
  };
}

/** A pod that is ending keeps showing the addresses it had. */
function podIpsOf(view: PodView): readonly string[] {
  const sandbox = view.observed?.sandboxes[0];
  const ready = sandbox?.state === "ready";
  if (ready && view.desired.pod.spec.hostNetwork === true) return view.hostIps;
  if (ready) return sandbox.ips;
  if (view.observed !== undefined && view.worker.kind === "active") return [];
  return (view.previous?.podIPs ?? []).map((each) => each.ip);
}

const isOver = (phase: PodPhase | undefined): phase is "Succeeded" | "Failed" =>
  phase === "Succeeded" || phase === "Failed";

function phaseOf(view: PodView, init: readonly ContainerStatus[], regular: readonly ContainerStatus[]): PodPhase {
  const running = [...init, ...regular].some((each) => each.state.running !== undefined);
  const started = regular.filter((each) => each.state.waiting === undefined || each.lastState.terminated !== undefined);
  const state = view.worker;
  switch (state.kind) {
    case "finished":
      // A pod is not over while something of it runs.
      return running ? "Running" : state.outcome.phase;
    case "terminating":
    case "gone": {
      const told = view.previous?.phase;
      if (isOver(told)) return told;
      if (running) return started.length > 0 ? "Running" : "Pending";
      const ended = regular.filter((each) => each.state.terminated !== undefined);
      if (ended.length < regular.length) return started.length > 0 ? "Failed" : "Pending";
      return ended.every((each) => each.state.terminated?.exitCode === 0) ? "Succeeded" : "Failed";
    }
    case "waiting":
    case "active":
      // Before the first look nothing is known that could bring back what has ended.
      if (view.observed === undefined && isOver(view.previous?.phase)) return view.previous.phase;
      if (!started.length || started.length < regular.length || initializing(view, init, regular)) return "Pending";
      return "Running";
  }
}

function initializing(view: PodView, init: readonly ContainerStatus[], regular: readonly ContainerStatus[]): boolean {
  if (regular.some((each) => each.state.running !== undefined)) return false;
  const { pod } = view.desired;
  const sidecars = new Set(
    (pod.spec.initContainers ?? []).filter((each) => roleOf(pod, each) === "sidecar").map((each) => each.name),
  );
  return init.some((each) => !sidecars.has(each.name) && !each.ready);
}
