/** containerd's own service of leases. Source: its public leases.proto. */

import { bool, message, string } from "../wire/protobuf.ts";
import { CRI_NAMESPACE } from "./containerd-events.ts";

const metadata = ["containerd-namespace", CRI_NAMESPACE];
const Nothing = message("Nothing", {});

const lease = <Q>(name: string, request: Q) => ({
  path: `/containerd.services.leases.v1.Leases/${name}`,
  request,
  response: Nothing,
  metadata,
});

export const ContainerdLeases = {
  create: lease("Create", message("CreateLeaseRequest", { id: string(1) })),
  /** With `sync` it answers when everything that nothing holds any more has been collected. */
  delete: lease("Delete", message("DeleteLeaseRequest", { id: string(1), sync: bool(2) })),
};
