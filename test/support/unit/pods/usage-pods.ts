/** Pods as the collection of usage receives them. */
import type { AgentPod } from "@picolet/agent/core/pods/agent-pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podOf } from "./sample-pods.ts";

/** One running container for each id, which is its name too. */
export function usagePod(
  uid: string,
  ids: readonly string[],
  spec: Parameters<typeof podOf>[0] = {},
  logDirectory = `/logs/${uid}`,
): AgentPod {
  const containers = (ids.length === 0 ? ["none"] : ids).map((name) => ({ name, image: "i" }));
  return {
    desired: { uid: podUid(uid), source: "api", origin: "", pod: podOf({ containers, ...spec }, { name: uid }) },
    status: { phase: "Running" },
    terminatingSinceMs: undefined,
    runtime: "cri",
    containers: ids.map(runningContainer),
    logDirectory,
  };
}

export const runningContainer = (id: string): ObservedContainer => ({
  ...{ id, name: id, attempt: 0, sandboxId: "s", createdAtMs: 0, hash: "", backoff: millis(0) },
  ...{ image: "i", imageId: "i", logPath: "/log" },
  state: { kind: "running", startedAtMs: 0 },
});
