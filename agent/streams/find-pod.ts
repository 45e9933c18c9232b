/** Which pod and which of its runs a request means. Errors are worded as Kubernetes words them. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { ContainerStatus } from "@picolet/protocol/pod/pod.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { PodSelector } from "./stream-params.ts";

/** The one that lives comes before those of the same name that are being ended. @throws `not_found` */
export function findPod(pods: readonly AgentPod[], { namespace, pod: name, uid }: PodSelector): AgentPod {
  const named = pods.filter(({ desired }) => {
    const { metadata } = desired.pod;
    if (metadata.namespace !== namespace || metadata.name !== name) return false;
    // The node's own identity of a pod can differ from the API server's.
    return uid === "" || metadata.uid === uid || desired.uid === uid;
  });
  const found = named.find((each) => each.terminatingSinceMs === undefined) ?? named[0];
  if (found !== undefined) return found;
  throw new PicoletError("not_found", `pods "${name}" not found`);
}

const namesIn = ({ desired }: AgentPod): readonly string[] => {
  const { containers, initContainers = [], ephemeralContainers = [] } = desired.pod.spec;
  return [...containers, ...initContainers, ...ephemeralContainers].map((each) => each.name);
};

/**
 * @param name "" for the first
 * @throws `not_found` for a container that the pod has not, `unavailable` for one that has not started yet, `conflict`
 * for one that has ended
 */
export function findRunning(pod: AgentPod, name: string): ObservedContainer {
  const names = namesIn(pod);
  const wanted = name === "" ? (names[0] ?? "") : name;
  if (!names.includes(wanted)) throw new PicoletError("not_found", `container not found ("${wanted}")`);
  const runs = pod.containers.filter((each) => each.name === wanted);
  const running = runs.find((each) => each.state.kind === "running");
  if (running !== undefined) return running;
  const { name: podName } = pod.desired.pod.metadata;
  const status = statusOf(pod, wanted);
  if (status?.state.waiting !== undefined || runs.length === 0) {
    const reason = status?.state.waiting?.reason ?? "ContainerCreating";
    throw new PicoletError("unavailable", `container "${wanted}" in pod "${podName}" is waiting to start: ${reason}`);
  }
  throw new PicoletError("conflict", `container "${wanted}" in pod "${podName}" is not running`);
}

function statusOf({ status }: AgentPod, name: string): ContainerStatus | undefined {
  const { containerStatuses = [], initContainerStatuses = [], ephemeralContainerStatuses = [] } = status ?? {};
  return [...containerStatuses, ...initContainerStatuses, ...ephemeralContainerStatuses].find(
    (each) => each.name === name,
  );
}
