/**
 * A pod of this node with what is known of it, as whatever shows it (local API, streams of the tunnel) is handed it.
 */
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod, ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";

export interface AgentPod {
  readonly desired: DesiredPod;
  /** `undefined` until its worker has looked at it. */
  readonly status: PodStatus | undefined;
  /** Since when it is being ended, milliseconds since the epoch; `undefined`: it is not. */
  readonly terminatingSinceMs: number | undefined;
  /** The name of the adapter that runs it; "" when none on this node can. */
  readonly runtime: string;
  /** As last observed, every attempt, in any order. */
  readonly containers: readonly ObservedContainer[];
  /**
   * `<podLogsDir>/<namespace>_<name>_<uid>`: holds `<container>/<attempt>.log` also while the runtime cannot be asked.
   */
  readonly logDirectory: string;
}
