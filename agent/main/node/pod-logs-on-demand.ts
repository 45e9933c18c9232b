import type { ContainerLogs } from "../../core/pods/container-logs.ts";
import type { PodLogs } from "../../logs/pod-logs.ts";

/** The logs of this node's pods; the reader is loaded with the first request. */
export function podLogs(components: ConstructorParameters<typeof PodLogs>[0]): ContainerLogs {
  let logs: PodLogs | undefined;
  return {
    find: async (pod, wanted) => {
      const { PodLogs } = await import("../../logs/pod-logs.ts");
      logs ??= new PodLogs(components);
      return await logs.find(pod, wanted);
    },
  };
}
