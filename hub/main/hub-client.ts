import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Clock, Random } from "@picolet/protocol/ports.ts";
import type { ClusterAccess } from "../kubernetes/cluster-access.ts";
import { HttpKubeClient } from "../kubernetes/http-kube-client.ts";
import { KubeTransport } from "../kubernetes/kube-transport.ts";

export { HUB_NAMESPACE } from "@picolet/hub-core/access-table.ts";

/** A client whose connections are closed when it is disposed of. */
export function openClient(
  { clock, random }: { readonly clock: Clock; readonly random: Random },
  access: ClusterAccess,
): HttpKubeClient & Component & AsyncDisposable {
  const transport = new KubeTransport({ access, clock, random });
  return Object.assign(new HttpKubeClient(transport), {
    name: "Kubernetes client",
    run: (signal: AbortSignal) => aborted(signal),
    [Symbol.asyncDispose]: () => transport[Symbol.asyncDispose](),
  });
}
