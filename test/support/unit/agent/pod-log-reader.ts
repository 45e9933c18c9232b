import type { AgentPod } from "@picolet/agent/core/pods/agent-pod.ts";
import type { ContainerLogs } from "@picolet/agent/core/pods/container-logs.ts";
import { PodLogs } from "@picolet/agent/logs/pod-logs.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";

/** The agent's own reader of logs, for the parts that are handed it. */
export const podLogs = (pods: () => readonly AgentPod[], podsChanged: Watch<unknown>): ContainerLogs =>
  new PodLogs({ pods: { pods, podsChanged }, clock: systemClock });
