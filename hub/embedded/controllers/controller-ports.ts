import type { KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";

/** The ports of every controller. The client has all rights. */
export interface ControllerPorts {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}
