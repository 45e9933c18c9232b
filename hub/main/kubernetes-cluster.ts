import { PicoletError } from "../../protocol/errors.ts";
import type { ServeArguments } from "./arguments.ts";
import type { Cluster, HubPorts } from "./serve.ts";

export class KubernetesCluster {
  static async open(
    _ports: HubPorts,
    _args: ServeArguments & { readonly names: readonly string[] },
    _signal: AbortSignal,
  ): Promise<Cluster> {
    throw new PicoletError("unimplemented", "cannot serve a Kubernetes cluster yet");
  }
}
