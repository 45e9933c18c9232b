/** The kubelet's podresources API: k8s.io/kubelet/pkg/apis/podresources. The older version's answer is a part of v1's. */
import {
  type InputOf,
  int64,
  int64s,
  message,
  nested,
  repeated,
  string,
  strings,
  uint64,
} from "@picolet/runtime-cri/wire/protobuf.ts";

const Empty = message("ListPodResourcesRequest", {});
const Topology = message("TopologyInfo", { nodes: repeated(1, message("NUMANode", { id: int64(1) })) });
const Devices = message("ContainerDevices", {
  resourceName: string(1),
  deviceIds: strings(2),
  topology: nested(3, Topology),
});
const Memory = message("ContainerMemory", { memoryType: string(1), size: uint64(2), topology: nested(3, Topology) });
const ClaimResource = message("ClaimResource", {
  cdiDevices: repeated(1, message("CDIDevice", { name: string(1) })),
  driverName: string(2),
  poolName: string(3),
  deviceName: string(4),
});
const DynamicResource = message("DynamicResource", {
  claimName: string(2),
  claimNamespace: string(3),
  claimResources: repeated(4, ClaimResource),
});
const Container = message("ContainerResources", {
  name: string(1),
  devices: repeated(2, Devices),
  cpuIds: int64s(3),
  memory: repeated(4, Memory),
  dynamicResources: repeated(5, DynamicResource),
});
const Pod = message("PodResources", { name: string(1), namespace: string(2), containers: repeated(3, Container) });

const method = (name: string, version = "v1"): string => `/${version}.PodResourcesLister/${name}`;
const List = { request: Empty, response: message("ListPodResourcesResponse", { podResources: repeated(1, Pod) }) };

export const POD_RESOURCES = {
  list: { path: method("List"), ...List },
  listBefore: { path: method("List", "v1alpha1"), ...List },
  allocatable: {
    path: method("GetAllocatableResources"),
    request: Empty,
    response: message("AllocatableResourcesResponse", {
      devices: repeated(1, Devices),
      cpuIds: int64s(2),
      memory: repeated(3, Memory),
    }),
  },
  get: {
    path: method("Get"),
    request: message("GetPodResourcesRequest", { podName: string(1), podNamespace: string(2) }),
    response: message("GetPodResourcesResponse", { podResources: nested(1, Pod) }),
  },
} as const;

export type PodResourcesMessage = InputOf<typeof Pod>;
export type DevicesMessage = InputOf<typeof Devices>;
export type MemoryMessage = InputOf<typeof Memory>;
