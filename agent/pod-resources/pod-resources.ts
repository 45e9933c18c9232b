/** Answers of the podresources API: which CPUs, memory, devices and claims each container has for itself. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { isSidecar } from "@picolet/protocol/pod/pod-resources.ts";
import type { Clock, PodUid } from "@picolet/protocol/ports.ts";
import type { Cpuset, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { served } from "@picolet/runtime-cri/wire/grpc-server.ts";
import type { ServedMethod } from "@picolet/runtime-cri/wire/grpc-server-connection.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { ContainerClaim } from "../core/pods/pod-claims.ts";
import { parseCpuList } from "../plan/node/cpu-list.ts";
import {
  type DevicesMessage,
  type MemoryMessage,
  POD_RESOURCES,
  type PodResourcesMessage,
} from "./pod-resources-messages.ts";

export interface HeldDevice {
  readonly resource: string;
  readonly id: string;
  /** NUMA nodes. */
  readonly nodes: readonly number[];
  readonly isHealthy: boolean;
  readonly holder: { readonly uid: PodUid; readonly container: string } | undefined;
}

export interface HeldMemory {
  /** `memory` or `hugepages-2Mi`. */
  readonly type: string;
  readonly bytes: number;
  readonly nodes: readonly number[];
}

export interface PodResourcesComponents {
  readonly clock: Clock;
  readonly counts?: NodeCounts | undefined;
  /** The pods that this node runs: neither ended nor gone. */
  readonly pods: () => readonly DesiredPod[];
  readonly cpuset: (pod: DesiredPod, container: string) => Cpuset | undefined;
  readonly memory: (uid: PodUid, container: string) => readonly HeldMemory[];
  readonly claims: (pod: DesiredPod, container: Container) => readonly ContainerClaim[];
  readonly devices: () => readonly HeldDevice[];
  /** CPUs and memory that one container may get alone; empty where no policy does. */
  readonly allocatable: () => { readonly cpus: readonly number[]; readonly memory: readonly HeldMemory[] };
}

type PodResourcesCall = "list" | "get" | "get_allocatable";

/** The kubelet's: 100 calls a second, ten at once. */
const CALLS_PER_SECOND = 100;
const BURST = 10;

export function podResourcesMethods(components: PodResourcesComponents): readonly ServedMethod[] {
  const limit = new RateLimit(components.clock);
  /** As in a kubelet, only calls within the limit count, and those of the version before 1 only in the total. */
  const admit = (counted: PodResourcesCall | undefined, version = "v1"): void => {
    limit.take();
    components.counts?.add("kubelet_pod_resources_endpoint_requests_total", version);
    if (counted !== undefined) components.counts?.add(`kubelet_pod_resources_endpoint_requests_${counted}`, version);
  };
  const list = () => {
    const devices = components.devices();
    return { podResources: components.pods().map((pod) => resourcesOf(pod, devices, components)) };
  };
  return [
    served(POD_RESOURCES.list, () => {
      admit("list");
      return list();
    }),
    served(POD_RESOURCES.listBefore, () => {
      admit(undefined, "v1alpha1");
      return list();
    }),
    served(POD_RESOURCES.allocatable, () => {
      admit("get_allocatable");
      const { cpus, memory } = components.allocatable();
      const devices = components.devices().filter(({ isHealthy }) => isHealthy);
      return { devices: devices.map(deviceMessage), cpuIds: cpus, memory: memory.map(memoryMessage) };
    }),
    served(POD_RESOURCES.get, ({ podName, podNamespace }) => {
      admit("get");
      const pod = components
        .pods()
        .find(({ pod: { metadata } }) => metadata.name === podName && metadata.namespace === podNamespace);
      if (pod !== undefined) return { podResources: resourcesOf(pod, components.devices(), components) };
      components.counts?.add("kubelet_pod_resources_endpoint_errors_get", "v1");
      throw new PicoletError("failed", `pod ${podName} in namespace ${podNamespace} not found`);
    }),
  ];
}

function resourcesOf(
  desired: DesiredPod,
  devices: readonly HeldDevice[],
  { cpuset, memory, claims }: PodResourcesComponents,
): PodResourcesMessage {
  const { pod, uid } = desired;
  const { name, namespace } = pod.metadata;
  const own = devices.filter(({ holder }) => holder?.uid === uid);
  const containers = [...(pod.spec.initContainers ?? []).filter(isSidecar), ...pod.spec.containers];
  return {
    name,
    namespace,
    containers: containers.map((container) => {
      const cpus = cpuset(desired, container.name);
      return {
        name: container.name,
        devices: own.filter(({ holder }) => holder?.container === container.name).map(deviceMessage),
        cpuIds: cpus?.exclusive === true ? (parseCpuList(cpus.cpus) ?? []) : [],
        memory: memory(uid, container.name).map(memoryMessage),
        dynamicResources: claims(desired, container).map((claim) => ({
          claimName: claim.name,
          claimNamespace: claim.namespace,
          claimResources: claim.devices.map(({ cdiDevices, driver, pool, device }) => ({
            cdiDevices: cdiDevices.map((cdi) => ({ name: cdi })),
            driverName: driver,
            poolName: pool,
            deviceName: device,
          })),
        })),
      };
    }),
  };
}

const topologyOf = (nodes: readonly number[]) =>
  nodes.length === 0 ? {} : { topology: { nodes: nodes.map((id) => ({ id })) } };
const deviceMessage = ({ resource, id, nodes }: HeldDevice): DevicesMessage => ({
  resourceName: resource,
  deviceIds: [id],
  ...topologyOf(nodes),
});
const memoryMessage = ({ type, bytes, nodes }: HeldMemory): MemoryMessage => ({
  memoryType: type,
  size: bytes,
  ...topologyOf(nodes),
});

/** A token bucket for all callers together, as in a kubelet. */
class RateLimit {
  readonly #clock: Clock;
  #tokens = BURST;
  #filledAtMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#filledAtMs = clock.monotonic();
  }

  /** @throws `resource_exhausted` in the kubelet's words */
  take(): void {
    const now = this.#clock.monotonic();
    this.#tokens = Math.min(BURST, this.#tokens + ((now - this.#filledAtMs) / 1000) * CALLS_PER_SECOND);
    this.#filledAtMs = now;
    if (this.#tokens < 1) throw new PicoletError("resource_exhausted", "rejected by rate limit");
    this.#tokens -= 1;
  }
}
