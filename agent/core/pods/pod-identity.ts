import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/**
 * @returns the pod's `metadata.uid` in the API server. `desired.uid` identifies one incarnation on this node, in
 * cgroup, folders and labels. The two differ after a pod took over the containers of a pod with another UID.
 */
export const apiUidOf = ({ uid, pod }: DesiredPod): string => pod.metadata.uid || uid;
