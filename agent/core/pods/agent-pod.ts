/** A pod of this node with its status, for the local API and the streams of the tunnel. */
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod, ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";

export interface AgentPod {
  readonly desired: DesiredPod;
  /** `undefined` until its worker has inspected it. */
  readonly status: PodStatus | undefined;
  /** Since when it is being ended, milliseconds since the epoch; `undefined`: it is not. */
  readonly terminatingSinceMs: number | undefined;
  /**
   * The phase that it has or gets when nothing of it runs, because it is over or the node ends it: it was evicted,
   * preempted, shut down. `undefined`: neither.
   */
  readonly endsAs?: "Succeeded" | "Failed" | undefined;
  /** The name of the adapter that runs it; "" when none on this node can. */
  readonly runtime: string;
  /** As last observed, every attempt, in any order. */
  readonly containers: readonly ObservedContainer[];
  /**
   * `<podLogsDir>/<namespace>_<name>_<uid>`: holds `<container>/<attempt>.log` also while the runtime cannot be asked.
   */
  readonly logDirectory: string;
}
