/** The device plugin API `v1beta1`, for both sides of the socket: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1. */
import {
  bool,
  int32,
  int64,
  type MessageOf,
  message,
  nested,
  repeated,
  string,
  stringMap,
  strings,
} from "@picolet/runtime-cri/wire/protobuf.ts";

export const DEVICE_PLUGIN_VERSION = "v1beta1";

const Empty = message("Empty", {});
const Options = message("DevicePluginOptions", { preStartRequired: bool(1), getPreferredAllocationAvailable: bool(2) });
const RegisterRequest = message("RegisterRequest", {
  version: string(1),
  endpoint: string(2),
  resourceName: string(3),
  options: nested(4, Options),
});
const Device = message("Device", {
  id: string(1),
  health: string(2),
  topology: nested(3, message("TopologyInfo", { nodes: repeated(1, message("NUMANode", { id: int64(1) })) })),
});
const Mount = message("Mount", { containerPath: string(1), hostPath: string(2), readOnly: bool(3) });
const DeviceSpec = message("DeviceSpec", { containerPath: string(1), hostPath: string(2), permissions: string(3) });

/** Also what the checkpoint keeps of an allocation. */
export const ContainerAllocateResponse = message("ContainerAllocateResponse", {
  envs: stringMap(1),
  mounts: repeated(2, Mount),
  devices: repeated(3, DeviceSpec),
  annotations: stringMap(4),
  cdiDevices: repeated(5, message("CDIDevice", { name: string(1) })),
});

export type DevicePluginOptions = MessageOf<typeof Options>;
export type RegisterRequest = MessageOf<typeof RegisterRequest>;
export type ListedDevice = MessageOf<typeof Device>;
export type DeviceAnswer = MessageOf<typeof ContainerAllocateResponse>;

export const NO_ANSWER: DeviceAnswer = ContainerAllocateResponse.decode(Buffer.alloc(0));

export const REGISTER = { path: "/v1beta1.Registration/Register", request: RegisterRequest, response: Empty };

const Ids = { devicesIds: strings(1) };
const method = <Q, A>(name: string, request: Q, response: A) => ({
  path: `/v1beta1.DevicePlugin/${name}`,
  request,
  response,
});

export const DEVICE_PLUGIN = {
  options: method("GetDevicePluginOptions", Empty, Options),
  list: method("ListAndWatch", Empty, message("ListAndWatchResponse", { devices: repeated(1, Device) })),
  preferred: method(
    "GetPreferredAllocation",
    message("PreferredAllocationRequest", {
      containers: repeated(
        1,
        message("ContainerPreferredAllocationRequest", {
          available: strings(1),
          mustInclude: strings(2),
          size: int32(3),
        }),
      ),
    }),
    message("PreferredAllocationResponse", {
      containers: repeated(1, message("ContainerPreferredAllocationResponse", { deviceIds: strings(1) })),
    }),
  ),
  allocate: method(
    "Allocate",
    message("AllocateRequest", { containers: repeated(1, message("ContainerAllocateRequest", Ids)) }),
    message("AllocateResponse", { containers: repeated(1, ContainerAllocateResponse) }),
  ),
  preStart: method("PreStartContainer", message("PreStartContainerRequest", Ids), Empty),
};
