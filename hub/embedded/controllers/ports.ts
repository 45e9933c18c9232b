import type { Clock, Log, Random } from "../../../protocol/ports.ts";
import type { KubeClient } from "../../core/kube-client.ts";

/** What every controller is handed. The client may do everything. */
export interface ControllerPorts {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}
