/** The kubelet's protocol of plugin registration, `pluginregistration.v1`: k8s.io/kubelet/pkg/apis/pluginregistration. */
import type { GrpcMethod } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { bool, type InputOf, type MessageOf, message, string, strings } from "@picolet/runtime-cri/wire/protobuf.ts";

const InfoRequest = message("InfoRequest", {});
const PluginInfo = message("PluginInfo", {
  type: string(1),
  name: string(2),
  endpoint: string(3),
  supportedVersions: strings(4),
});
const RegistrationStatus = message("RegistrationStatus", { pluginRegistered: bool(1), error: string(2) });
const RegistrationStatusResponse = message("RegistrationStatusResponse", {});

export type PluginInfo = MessageOf<typeof PluginInfo>;

export const GET_INFO: GrpcMethod<InputOf<typeof InfoRequest>, PluginInfo> = {
  path: "/pluginregistration.Registration/GetInfo",
  request: InfoRequest,
  response: PluginInfo,
};
export const NOTIFY_REGISTRATION_STATUS: GrpcMethod<InputOf<typeof RegistrationStatus>, object> = {
  path: "/pluginregistration.Registration/NotifyRegistrationStatus",
  request: RegistrationStatus,
  response: RegistrationStatusResponse,
};
