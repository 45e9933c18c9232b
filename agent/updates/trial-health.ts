/** Gathers from the agent's parts how healthy the board is. */
import type { NodeCondition, TunnelReport } from "@picolet/protocol/local-api/status.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { HealthBefore, HealthNow, PodNow } from "../plan/updates/judge-health.ts";

export interface HealthSources {
  readonly pods: () => readonly AgentPod[];
  readonly conditions: () => readonly NodeCondition[];
  readonly tunnel: () => TunnelReport;
}

const READY = "Ready";
const readyOf = (conditions: readonly NodeCondition[]): NodeCondition | undefined =>
  conditions.find(({ type }) => type === READY);

function podNow({ status }: AgentPod): PodNow {
  const phase = status?.phase;
  return {
    isRunning: phase === "Running",
    isReady: status?.conditions?.some(({ type, status: is }) => type === READY && is === "True") === true,
    isOver: phase === "Succeeded" || phase === "Failed",
  };
}

export function healthBefore({ pods, conditions, tunnel }: HealthSources): HealthBefore {
  const running = pods()
    .filter(({ status }) => status?.phase === "Running")
    .map((pod) => {
      const { namespace, name } = pod.desired.pod.metadata;
      return { name: `${namespace}/${name}`, uid: pod.desired.uid, isReady: podNow(pod).isReady };
    });
  return {
    isReady: readyOf(conditions())?.status === "True",
    isConnected: tunnel().state === "connected",
    pods: running,
  };
}

export function healthNow({ pods, conditions, tunnel }: HealthSources): HealthNow {
  const ready = readyOf(conditions());
  const { state, problem } = tunnel();
  return {
    notReady: ready?.status === "True" ? "" : (ready?.message ?? "it has no condition yet"),
    isConnected: state === "connected",
    tunnelProblem: problem ?? "",
    pods: new Map(pods().map((pod) => [pod.desired.uid, podNow(pod)])),
  };
}
