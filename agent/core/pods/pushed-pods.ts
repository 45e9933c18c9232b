/** Pods pushed by users of the local API; `agent/sources` takes them. */
import type { PushAnswer, PushProblem } from "@picolet/protocol/local-api/status.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";

export type PushOutcome =
  | { readonly ok: true; readonly answer: PushAnswer }
  | { readonly ok: false; readonly problems: readonly PushProblem[] };

export interface PushedPods {
  /**
   * What is sent is all that is wanted from then on; taken whole or not at all. On disk (fsync) before it returns.
   * @param text Pod, List or PodList, in YAML documents or as JSON. A List without items removes what was pushed.
   * @throws `resource_exhausted` when the disk is full
   */
  replace(text: string, options: { readonly dryRun: boolean }): PushOutcome | Promise<PushOutcome>;
  /** One of them is wanted no more; on disk (fsync) before it resolves. @throws `resource_exhausted` when the disk is full */
  remove(uid: PodUid): Promise<void>;
}
