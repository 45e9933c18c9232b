/** A pod of this node as a Kubernetes object. */
import type { Pod, PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { AgentPod } from "./agent-pod.ts";
import { apiUidOf } from "./pod-identity.ts";

/** The kubelet's annotation for where a pod comes from. */
const SOURCE_ANNOTATION = "kubernetes.io/config.source";

export const PENDING_STATUS: PodStatus = { phase: "Pending" };

export const rfc3339 = (atMs: number): string => `${new Date(atMs).toISOString().slice(0, 19)}Z`;

/** The pod with its status, as `kubectl get pod -o json` would show it. */
export function podObject({ desired, status, terminatingSinceMs }: AgentPod): Pod {
  const { metadata } = desired.pod;
  return {
    ...desired.pod,
    metadata: {
      ...metadata,
      uid: apiUidOf(desired),
      annotations: { [SOURCE_ANNOTATION]: desired.source, ...metadata.annotations },
      ...(terminatingSinceMs === undefined
        ? {}
        : {
            deletionTimestamp: metadata.deletionTimestamp ?? rfc3339(terminatingSinceMs),
            deletionGracePeriodSeconds:
              metadata.deletionGracePeriodSeconds ?? desired.pod.spec.terminationGracePeriodSeconds,
          }),
    },
    status: status ?? PENDING_STATUS,
  };
}
