/** Ports of the host that pods take; no two may have the same. Pure. */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isSidecar } from "@picolet/protocol/pod/pod-resources.ts";

interface HostPort {
  readonly port: number;
  readonly protocol: string;
  readonly address: string;
}

const ANY_ADDRESS = "0.0.0.0";

/** Yields the ports of containers that live as long as the pod. On the host's network container ports are host ports. */
function* hostPorts({ spec }: Pod): Iterable<HostPort> {
  const lasting = [...(spec.initContainers ?? []).filter(isSidecar), ...spec.containers];
  for (const { ports = [] } of lasting) {
    for (const { hostPort = 0, hostIP = "", protocol } of ports) {
      if (hostPort > 0) yield { port: hostPort, protocol: protocol || "TCP", address: hostIP || ANY_ADDRESS };
    }
  }
}

export function hasFreePorts(pod: Pod, others: readonly Pod[]): boolean {
  const wanted = [...hostPorts(pod)];
  if (wanted.length === 0) return true;
  for (const other of others) {
    for (const taken of hostPorts(other)) if (wanted.some((each) => clash(each, taken))) return false;
  }
  return true;
}

const clash = (left: HostPort, right: HostPort): boolean =>
  left.port === right.port &&
  left.protocol === right.protocol &&
  (left.address === right.address || left.address === ANY_ADDRESS || right.address === ANY_ADDRESS);
