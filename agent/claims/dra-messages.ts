/** The kubelet's protocol of DRA drivers: k8s.io/kubelet/pkg/apis/dra. Its two versions differ in name alone. */
import type { GrpcMethod } from "@picolet/runtime-cri/wire/grpc-client.ts";
import {
  type InputOf,
  type MessageOf,
  message,
  nested,
  repeated,
  string,
  strings,
} from "@picolet/runtime-cri/wire/protobuf.ts";

const Claim = message("Claim", { namespace: string(1), uid: string(2), name: string(3) });
const ClaimsRequest = message("NodePrepareResourcesRequest", { claims: repeated(1, Claim) });
const Device = message("Device", {
  requestNames: strings(1),
  poolName: string(2),
  deviceName: string(3),
  cdiDeviceIds: strings(4),
});
const Prepared = message("NodePrepareResourceResponse", { devices: repeated(1, Device), error: string(2) });
const Unprepared = message("NodeUnprepareResourceResponse", { error: string(1) });
/** Maps by the UID of the claim, as their entries. */
const PrepareResponse = message("NodePrepareResourcesResponse", {
  claims: repeated(1, message("PreparedEntry", { uid: string(1), answer: nested(2, Prepared) })),
});
const UnprepareResponse = message("NodeUnprepareResourcesResponse", {
  claims: repeated(1, message("UnpreparedEntry", { uid: string(1), answer: nested(2, Unprepared) })),
});

type Request = InputOf<typeof ClaimsRequest>;

export interface DraService {
  readonly prepare: GrpcMethod<Request, MessageOf<typeof PrepareResponse>>;
  readonly unprepare: GrpcMethod<Request, MessageOf<typeof UnprepareResponse>>;
}

const serviceOf = (version: string): DraService => {
  const path = `/k8s.io.kubelet.pkg.apis.dra.${version}.DRAPlugin`;
  return {
    prepare: { path: `${path}/NodePrepareResources`, request: ClaimsRequest, response: PrepareResponse },
    unprepare: { path: `${path}/NodeUnprepareResources`, request: ClaimsRequest, response: UnprepareResponse },
  };
};

/** By the name in a driver's registration, the newest first. */
export const DRA_SERVICES: ReadonlyMap<string, DraService> = new Map([
  ["v1.DRAPlugin", serviceOf("v1")],
  ["v1beta1.DRAPlugin", serviceOf("v1beta1")],
]);
