import type { AgentPod } from "../../agent/core/agent-pod.ts";
import type { ContainerLogs } from "../../agent/core/container-logs.ts";
import { PodLogs } from "../../agent/logs/pod-logs.ts";
import { systemClock } from "../../protocol/async/system-clock.ts";
import type { Watch } from "../../protocol/async/watch.ts";

/** The agent's own reader of logs, for the parts that are handed it. */
export const podLogs = (pods: () => readonly AgentPod[], podsChanged: Watch<unknown>): ContainerLogs =>
  new PodLogs({ pods: { pods, podsChanged }, clock: systemClock });
