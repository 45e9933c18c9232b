import type { DeviceReport } from "@picolet/protocol/local-api/status.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { DeviceRule } from "../../devices/device-rules.ts";
import type { NodeDevices } from "./node-devices.ts";

/** @returns every device with the container that has it, ordered by resource and device */
export function deviceReports(
  devices: ReturnType<NodeDevices["list"]>,
  rules: readonly DeviceRule[],
  pods: readonly AgentPod[],
): readonly DeviceReport[] {
  const holders = new Map(pods.map(({ desired }) => [desired.uid, desired.pod.metadata]));
  const reports = devices.map(({ resource, device, holder }): DeviceReport => {
    const pod = holder && holders.get(holder.uid);
    return {
      resource,
      device: device.id,
      source: rules.some(({ name }) => name === resource) ? "configuration" : "plugin",
      healthy: device.isHealthy,
      numaNodes: device.nodes,
      usedBy:
        pod === undefined ? null : { namespace: pod.namespace, pod: pod.name, container: holder?.container ?? "" },
    };
  });
  const keyOf = ({ resource, device }: DeviceReport): string => `${resource}\n${device}`;
  return reports.toSorted((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1));
}
