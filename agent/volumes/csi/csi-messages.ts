/**
 * The messages of a CSI driver's node service, `csi.v1`, with their field numbers. Source: the public definition of the
 * interface, csi.proto 1.11 of the Container Storage Interface. Fields that are never read are left out of responses.
 */
import {
  bool,
  int32,
  int64,
  message,
  nested,
  repeated,
  string,
  stringMap,
  strings,
} from "@picolet/runtime-cri/wire/protobuf.ts";

/** `VolumeCapability.AccessMode.Mode` */
export const AccessMode = {
  singleNodeWriter: 1,
  multiNodeReaderOnly: 3,
  multiNodeMultiWriter: 5,
  singleNodeSingleWriter: 6,
  singleNodeMultiWriter: 7,
} as const;

/** `NodeServiceCapability.RPC.Type` */
export const NodeCapability = {
  stageUnstageVolume: 1,
  getVolumeStats: 2,
  expandVolume: 3,
  volumeCondition: 4,
  singleNodeMultiWriter: 5,
  volumeMountGroup: 6,
} as const;

/** `VolumeUsage.Unit` */
export const UsageUnit = { bytes: 1, inodes: 2 } as const;

const Empty = message("Empty", {});
const Topology = message("Topology", { segments: stringMap(1) });
const MountVolume = message("MountVolume", { fsType: string(1), mountFlags: strings(2), volumeMountGroup: string(3) });
const AccessModeMessage = message("AccessMode", { mode: int32(1) });
const VolumeCapability = message("VolumeCapability", {
  block: nested(1, Empty),
  mount: nested(2, MountVolume),
  accessMode: nested(3, AccessModeMessage),
});
const CapacityRange = message("CapacityRange", { requiredBytes: int64(1), limitBytes: int64(2) });

const NodeGetInfoResponse = message("NodeGetInfoResponse", {
  nodeId: string(1),
  maxVolumesPerNode: int64(2),
  accessibleTopology: nested(3, Topology),
});
const CapabilityRpc = message("RPC", { type: int32(1) });
const NodeServiceCapability = message("NodeServiceCapability", { rpc: nested(1, CapabilityRpc) });
const NodeGetCapabilitiesResponse = message("NodeGetCapabilitiesResponse", {
  capabilities: repeated(1, NodeServiceCapability),
});
const NodeStageVolumeRequest = message("NodeStageVolumeRequest", {
  volumeId: string(1),
  publishContext: stringMap(2),
  stagingTargetPath: string(3),
  volumeCapability: nested(4, VolumeCapability),
  secrets: stringMap(5),
  volumeContext: stringMap(6),
});
const NodeUnstageVolumeRequest = message("NodeUnstageVolumeRequest", {
  volumeId: string(1),
  stagingTargetPath: string(2),
});
const NodePublishVolumeRequest = message("NodePublishVolumeRequest", {
  volumeId: string(1),
  publishContext: stringMap(2),
  stagingTargetPath: string(3),
  targetPath: string(4),
  volumeCapability: nested(5, VolumeCapability),
  readonly: bool(6),
  secrets: stringMap(7),
  volumeContext: stringMap(8),
});
const NodeUnpublishVolumeRequest = message("NodeUnpublishVolumeRequest", {
  volumeId: string(1),
  targetPath: string(2),
});
const NodeGetVolumeStatsRequest = message("NodeGetVolumeStatsRequest", {
  volumeId: string(1),
  volumePath: string(2),
  stagingTargetPath: string(3),
});
const VolumeUsage = message("VolumeUsage", { available: int64(1), total: int64(2), used: int64(3), unit: int32(4) });
const VolumeCondition = message("VolumeCondition", { abnormal: bool(1), message: string(2) });
const NodeGetVolumeStatsResponse = message("NodeGetVolumeStatsResponse", {
  usage: repeated(1, VolumeUsage),
  volumeCondition: nested(2, VolumeCondition),
});
const NodeExpandVolumeRequest = message("NodeExpandVolumeRequest", {
  volumeId: string(1),
  volumePath: string(2),
  capacityRange: nested(3, CapacityRange),
  stagingTargetPath: string(4),
  volumeCapability: nested(5, VolumeCapability),
  secrets: stringMap(6),
});
const NodeExpandVolumeResponse = message("NodeExpandVolumeResponse", { capacityBytes: int64(1) });

const path = (name: string): string => `/csi.v1.Node/${name}`;

export const csiNode = {
  getInfo: { path: path("NodeGetInfo"), request: Empty, response: NodeGetInfoResponse },
  getCapabilities: { path: path("NodeGetCapabilities"), request: Empty, response: NodeGetCapabilitiesResponse },
  stage: { path: path("NodeStageVolume"), request: NodeStageVolumeRequest, response: Empty },
  unstage: { path: path("NodeUnstageVolume"), request: NodeUnstageVolumeRequest, response: Empty },
  publish: { path: path("NodePublishVolume"), request: NodePublishVolumeRequest, response: Empty },
  unpublish: { path: path("NodeUnpublishVolume"), request: NodeUnpublishVolumeRequest, response: Empty },
  stats: { path: path("NodeGetVolumeStats"), request: NodeGetVolumeStatsRequest, response: NodeGetVolumeStatsResponse },
  expand: { path: path("NodeExpandVolume"), request: NodeExpandVolumeRequest, response: NodeExpandVolumeResponse },
} as const;
