import type { KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";

/** What every controller is handed. The client may do everything. */
export interface ControllerPorts {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}
