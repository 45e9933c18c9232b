import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/**
 * What everybody above this node calls the pod: its `metadata.uid` in the API server. `desired.uid` is the node's own,
 * of one incarnation: cgroup, folders and labels carry it. They part when a pod takes over what ran for another UID.
 */
export const apiUidOf = ({ uid, pod }: DesiredPod): string => pod.metadata.uid || uid;
